"""Settings completed by a release of the operator's files: what they leave open, the release fills in.

What a setting names stays. Files are placed where a node looks for them anyway: suites in `suites`, sealed
batches in `bank`, titles in `titles`, an index in `catalogues`, the policy in `policies`. A batch that stands there
with other content is never replaced, since a race may have committed to it.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from arena.exchange.operator_files import MODE, FileKind, FilesRelease, Operator, ReleaseStore, SharedFile, of_operator
from arena.gate.likeness import Sketch, decode_sketch, encode_sketch, make_sketch
from arena.policy import Policy
from foundation.canonical import UNREADABLE_JSON, canonical_bytes, read_canonical
from foundation.codes import FILE_UNUSABLE
from foundation.durable_files import coded, write_whole
from foundation.errors import ArenaError, Failure
from neurons.settings.inputs import shared_titles_folder, suite_folder
from neurons.settings.settings import Settings

NOBODY = "none"  # the setting operator_hotkey of a node that takes nobody's files
_FOLDER = "operator"
_INDEX_MANIFEST = "manifest.json"
# what is read once, when a node starts
AT_START: tuple[FileKind, ...] = ("policy", "suite", "titles", "sketch", "catalogue")


def open_releases(state_dir: Path) -> ReleaseStore:
    """The operator's files of a state folder. Raises ArenaError V2064."""
    return ReleaseStore(state_dir / _FOLDER)


def with_held_release(settings: Settings) -> Settings:
    """The settings as a node of this state folder would start with them, without asking anybody.

    Raises ArenaError V2105 for a policy that this software does not know, V2064.
    """
    held = _held_release(settings)
    return complete_settings(settings, open_releases(settings.state_dir), held) if held else settings


def held_sketches(settings: Settings) -> tuple[Sketch, ...]:
    """The operator's sketches of public programs that this state folder holds. Raises ArenaError V2064, V2105."""
    if (held := _held_release(settings)) is None:
        return ()
    store = open_releases(settings.state_dir)
    return tuple(decode_sketch(store.content(file)) for file in held.of_kind("sketch"))


def _held_release(settings: Settings) -> FilesRelease | None:
    if settings.operator_hotkey == NOBODY or not (settings.state_dir / _FOLDER).is_dir():
        return None
    whole = open_releases(settings.state_dir).whole()
    if whole is None:
        return None
    hotkey = settings.operator_hotkey or whole.release.signer  # it was checked against the chain when it was kept
    held = of_operator(whole, Operator(hotkey=hotkey, netuid=settings.netuid))
    return held.release if held else None


def complete_settings(settings: Settings, store: ReleaseStore, release: FilesRelease) -> Settings:
    """The settings with what a whole release has for those that are empty.

    Policy and index are named by path; `bank_hotkey` becomes the operator's where it brings a suite or batches. Raises
    ArenaError V2105, V2064 as the files are written.
    """
    found: dict[str, object] = {}
    policy = released_policy(store, release)
    if policy is not None and not settings.policy:
        found["policy"] = str(write_policy(settings.state_dir, policy, policy.policy_sha256))
    if release.of_kind("suite", "batch") and not settings.bank_hotkey:
        found["bank_hotkey"] = release.signer
    if settings.catalogue_dir is None and (folder := index_folder(settings.state_dir, release)) is not None:
        found["catalogue_dir"] = folder
    return settings.model_copy(update=found)


def released_policy(store: ReleaseStore, release: FilesRelease) -> Policy | None:
    """The policy of a whole release, or None where it has none. Raises ArenaError V2105 for one that can't be read, or
    names rules that this software does not know, since its races would be others than the network's; V2064."""
    for file in release.of_kind("policy"):
        content = store.content(file)
        try:
            policy = read_canonical(content, Policy)
        except UNREADABLE_JSON as error:
            raise ArenaError(FILE_UNUSABLE, f"policy {file.name} of release {release.sequence}: {error}") from error
        if not _is_within(msgspec.json.decode(content), msgspec.to_builtins(policy)):
            detail = f"policy {file.name} of release {release.sequence} names rules that this software does not know"
            raise ArenaError(FILE_UNUSABLE, detail)
        return policy
    return None


def _is_within(said: object, known: object) -> bool:
    """Whether a policy's file says nothing beyond `known`; what an earlier release could not say has its default."""
    if isinstance(said, dict) and isinstance(known, dict):
        return all(name in known and _is_within(value, known[name]) for name, value in said.items())
    return canonical_bytes(said) == canonical_bytes(known)


def write_policy(state_dir: Path, policy: Policy, policy_sha256: str) -> Path:
    """Keep a policy as `policies/<hash>.json` under `state_dir`, for `--policy`. Raises ArenaError V2064."""
    return _kept(state_dir / "policies" / f"{policy_sha256}.json", canonical_bytes(policy))


def keep_sketch(state_dir: Path, program: Path) -> Path:
    """Keep the sketch of a public program as `sketches/<name>.sketch` under `state_dir`, to be published. Raises
    ArenaError V2105 for a file that does not parse, V2064; OSError for one that can't be read."""
    try:
        sketch = make_sketch(program.read_bytes())
    except ValueError as error:
        raise ArenaError(FILE_UNUSABLE, f"{program}: {error}") from error
    return _kept(state_dir / "sketches" / f"{program.stem}.sketch", encode_sketch(sketch))


def _kept(path: Path, content: bytes) -> Path:
    with coded(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    return path


def place_files(
    settings: Settings, store: ReleaseStore, release: FilesRelease, kinds: Iterable[FileKind]
) -> tuple[Failure, ...]:
    """Put the files of some kinds of a whole release where this node reads them; those that can't be used (V2105).

    Raises ArenaError V2064 for a folder that can't be written, or a file that was damaged.
    """
    failures = []
    for file in release.of_kind(*kinds):
        folder = _folder_of(settings, release, file)
        if folder is None:
            continue
        path = folder / file.name
        with coded(path):
            # A batch may have come by hand under another name; two of one round would serve no race.
            standing = folder.glob("*.sealed.json") if file.kind == "batch" else [path] if path.exists() else []
            if any(filecmp.cmp(other, store.path_of(file), shallow=False) for other in standing):
                continue
            if path.exists() and file.kind == "batch":
                detail = f"{path} is another batch than {file.sha256[:16]} of release {release.sequence}"
                failures.append(Failure(code=FILE_UNUSABLE, detail=detail))
                continue
            folder.mkdir(parents=True, exist_ok=True)
            if file.kind == "catalogue":  # large, and nobody edits an index
                path.unlink(missing_ok=True)
                os.link(store.path_of(file), path)
            else:
                write_whole(path, store.content(file), mode=MODE)
    return tuple(failures)


def index_folder(state_dir: Path, release: FilesRelease) -> Path | None:
    """Where the index of a release stands, or None where it has none."""
    manifest = next((file for file in release.of_kind("catalogue") if file.name == _INDEX_MANIFEST), None)
    return state_dir / "catalogues" / f"released-{manifest.sha256[:16]}" if manifest else None


def _folder_of(settings: Settings, release: FilesRelease, file: SharedFile) -> Path | None:
    folders = {
        "suite": suite_folder(settings),
        "titles": shared_titles_folder(settings),
        "batch": settings.state_dir / "bank",
        "catalogue": index_folder(settings.state_dir, release),
    }
    return folders.get(file.kind)
