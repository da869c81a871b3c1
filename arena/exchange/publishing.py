"""Making a release: which files of a folder validators share, whether they may be shared, and the next number.

Nothing is published that validators would refuse, or that they must not have. A problem file is taken as part
of a signed suite alone and title releases only where they are named one by one, because a bank's own name its answers.
What the release before held goes on, unless it is replaced: its batches until `SPENT_MS` after their round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from arena.bank.sealing import SealedFile, read_sealed
from arena.bank.suite_signature import read_suite
from arena.chain.port import Signer, Timelock, Verifier
from arena.exchange import operator_files
from arena.gate.likeness import decode_sketch
from arena.policy import Policy
from foundation.durable_files import coded
from foundation.errors import ArenaError
from problems.titles import decode_accepted

SPENT_MS = 7 * 86_400_000
POLICY_FILE = "policy.json"
_INDEX_MANIFEST = "manifest.json"
_SUITE_MANIFEST = ".manifest.json"

Source = tuple[operator_files.FileKind, str, Path]


def collect(paths: Iterable[Path]) -> tuple[list[Source], list[Path]]:
    """What files and folders (with all below them) hold for validators, and the files that are nothing for them.

    Raises ArenaError V2105 for a named file that is nothing validators share, OSError for a path that is not there.
    """
    sources: list[Source] = []
    skipped: list[Path] = []
    for path in paths:
        path.stat()
        below = (one for one in path.rglob("*") if one.is_file() and not one.is_symlink())
        found = sorted(below) if path.is_dir() else [path]
        indexes = {file.parent for file in found if file.name == _INDEX_MANIFEST}
        for file in found:
            kind = _kind_of(file, indexes)
            if kind is not None and not (kind == "titles" and path.is_dir()):
                sources.append((kind, file.name, file))
            elif path.is_dir():
                skipped.append(file)
            else:
                raise ArenaError("V2105", f"{path} is nothing that validators share")
    return sources, skipped


def publish(
    store: operator_files.ReleaseStore,
    sources: Sequence[Source],
    *,
    signer: Signer,
    netuid: int,
    now_ms: int,
    timelock: Timelock,
    verify: Verifier,
    is_carried: bool = True,
) -> operator_files.SignedRelease:
    """Sign the next release of these files, and of what the one before held where `is_carried`; kept in `store`.

    Raises ArenaError V2105 for files that can't be one release, P4001, P4010 for a file that the key
    did not sign or that is damaged, V2064.
    """
    names = [(kind, name) for kind, name, _ in sources]
    if len(set(names)) != len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise ArenaError("V2105", f"two {twice[0]} files are named {twice[1]}")
    _check_contents(sources, signer.hotkey, verify, timelock)
    operator = operator_files.Operator(hotkey=signer.hotkey, netuid=netuid)
    with store.locked():
        files = tuple(store.add(*source) for source in sources)
        before = operator_files.of_operator(store.newest(), operator)
        carried = _carried(store, before.release, files, timelock, now_ms) if before and is_carried else ()
        if not files and not carried:
            raise ArenaError("V2105", "there is nothing to publish")
        release = operator_files.FilesRelease(
            netuid=netuid,
            sequence=before.release.sequence + 1 if before else 1,
            made_ms=now_ms,
            signer=signer.hotkey,
            files=tuple(sorted((*carried, *files), key=lambda file: (file.kind, file.name))),
        )
        signed = operator_files.sign_release(release, signer)
        try:
            operator_files.check_release(signed, operator, verify)
        except ArenaError as error:
            raise ArenaError("V2105", error.failure.detail) from error
        _refuse_shared_rounds(store, release)
        store.keep(signed)
    store.settle()
    return signed


def _kind_of(file: Path, indexes: set[Path]) -> operator_files.FileKind | None:
    """What a file is for validators, by its name and its neighbours."""
    if file.parent in indexes:
        return "catalogue" if operator_files.is_file_name("catalogue", file.name) else None
    if file.name == POLICY_FILE or file.name.endswith(f".{POLICY_FILE}"):
        return "policy"
    if operator_files.is_file_name("suite", file.name) and not operator_files.is_file_name("batch", file.name):
        return "suite" if (file.parent / f"{_suite_of(file.name)}{_SUITE_MANIFEST}").is_file() else None
    named: tuple[operator_files.FileKind, ...] = ("batch", "titles", "sketch")
    return next((kind for kind in named if operator_files.is_file_name(kind, file.name)), None)


def _suite_of(name: str) -> str:
    return next((name.removesuffix(ending) for ending in operator_files.SUITE_ENDINGS if name.endswith(ending)), name)


def _check_contents(sources: Sequence[Source], hotkey: str, verify: Verifier, timelock: Timelock) -> None:
    given = {(kind, name) for kind, name, _ in sources}
    for kind, name, path in sources:
        if kind == "policy":
            content = path.read_bytes()
            with coded(f"{path} is not a policy", "V2105"):
                msgspec.json.decode(content, type=Policy)
        elif kind == "titles":
            decode_accepted(path.read_bytes())
        elif kind == "sketch":
            decode_sketch(path.read_bytes())
        elif kind == "batch":
            network = read_sealed(path, hotkey, verify).notice.network
            if network != timelock.network:
                raise ArenaError("V2105", f"{path} opens with beacon {network}, this network's is {timelock.network}")
        elif kind == "suite":
            suite = _suite_of(name)
            if lacking := [
                suite + ending for ending in operator_files.SUITE_ENDINGS if ("suite", suite + ending) not in given
            ]:
                raise ArenaError("V2105", f"{path} belongs to suite {suite}: publish the folder with {lacking[0]}")
            if name.endswith(_SUITE_MANIFEST):
                read_suite(path.parent, suite, verify, hotkey)
        elif kind == "catalogue" and name == _INDEX_MANIFEST:
            from harness.catalogue.layout import read_manifest  # it loads the arrays' library

            read_manifest(path.parent)


def _carried(
    store: operator_files.ReleaseStore,
    before: operator_files.FilesRelease,
    files: Sequence[operator_files.SharedFile],
    timelock: Timelock,
    now_ms: int,
) -> tuple[operator_files.SharedFile, ...]:
    """The files of the release before that go on."""
    if missing := store.missing(before):
        detail = f"{len(missing)} files of release {before.sequence} are not here"
        raise ArenaError("V2105", f"{detail}: publish through a node that holds it whole")
    new_names = {(file.kind, file.name) for file in files}
    replaced = {file.kind for file in files if file.kind in ("policy", "catalogue")}  # of which there is one
    return tuple(
        file
        for file in before.files
        if (file.kind, file.name) not in new_names
        and file.kind not in replaced
        and (file.kind != "batch" or timelock.opens_ms(_round_of(store, file)) > now_ms - SPENT_MS)
    )


def _refuse_shared_rounds(store: operator_files.ReleaseStore, release: operator_files.FilesRelease) -> None:
    """A race takes the one batch of its round, so two of one round would serve none."""
    rounds: dict[int, str] = {}
    for file in release.of_kind("batch"):
        other = rounds.setdefault(_round_of(store, file), file.name)
        if other != file.name:
            raise ArenaError("V2105", f"{other} and {file.name} are both of round {_round_of(store, file)}")


def _round_of(store: operator_files.ReleaseStore, file: operator_files.SharedFile) -> int:
    return msgspec.json.decode(store.path_of(file).read_bytes(), type=SealedFile).notice.round
