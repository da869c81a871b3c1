"""The operator's files of one node: it starts with them, and keeps them up to date while it runs.

A node that names its operator and no policy waits until it has a whole release, and starts under its policy; every
other node asks once, briefly. A race past its close under another policy than the released one is first finished under
its own. Sealed batches of a whole release are usable at once; policy, suite, titles and index take effect together, at
the next start, and until then the log and the status say so.

What a setting names stays; what settings leave open, the release fills in. Files are placed where a node looks for them
anyway: suites in `suites`, sealed batches in `bank`, titles in `titles`, an index in `catalogues`, the policy in
`policies`. A batch that stands there with other content is never replaced, since a race may have committed to it.
"""

from __future__ import annotations

import asyncio
import filecmp
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec
from msgspec.structs import replace

from arena.chain.keys import canonical_hotkey, verify
from arena.chain.port import Subtensor
from arena.exchange.operator_files import (
    MODE,
    FileKind,
    FilesRelease,
    Operator,
    ReleaseStore,
    SignedRelease,
    of_operator,
)
from arena.exchange.pull import ReleasePuller
from arena.gate.likeness import Sketch, decode_sketch, encode_sketch, make_sketch
from arena.policy import Policy
from arena.race.machine import RaceState, runs_under_another
from foundation.backoff import Backoff
from foundation.canonical import canonical_bytes, read_canonical
from foundation.codes import FILE_UNUSABLE, FILES_LACKING, POLICY_WAITS
from foundation.durable_files import coded, write_whole
from foundation.errors import ArenaError, Failure
from foundation.logs import get_logger
from neurons.health.metrics import Metrics
from neurons.health.status import OperatorFacts
from neurons.settings.inputs import shared_titles_folder, suite_folder
from neurons.settings.settings import NOBODY, Settings

if TYPE_CHECKING:
    from neurons.loops.node import Sharing

_FOLDER = "operator"
_INDEX_MANIFEST = "manifest.json"
START_S = 30.0  # for a node that could start with what it has
PAUSES = Backoff(first_ms=1_000, most_ms=5_000)  # a start waits for it


async def operator_of(settings: Settings, chain: Subtensor) -> Operator | None:
    """Whose files this node takes: the key that the settings name, else the subnet owner's. None: nobody's.

    Raises ArenaError U3030, U3037.
    """
    if settings.operator_hotkey == NOBODY:
        return None
    named = settings.operator_hotkey or await chain.owner_hotkey()
    hotkey = canonical_hotkey(named) if named else None
    return Operator(hotkey=hotkey, netuid=chain.netuid) if hotkey else None


class OperatorFiles:
    """What validators share by the operator's signature, at one node."""

    name, every_s = "operator files", 30.0

    def __init__(
        self,
        settings: Settings,
        operator: Operator,
        own_hotkey: str,
        chain: Subtensor,
        sharing: Sharing | None,
        metrics: Metrics,
    ) -> None:
        """`settings` as they were given; of a node that shares no races nobody is asked."""
        self._settings, self._operator, self._own_hotkey, self._chain = settings, operator, own_hotkey, chain
        self._sharing, self._metrics, self._log = sharing, metrics, get_logger()
        self.store = open_releases(settings.state_dir)
        self._puller = ReleasePuller(sharing.peers, self.store, operator, verify) if sharing else None
        self._said = frozenset[tuple[str, str]]()  # complaints (peer, code) of the turn before
        self._placed: FilesRelease | None = None
        self._unusable: tuple[str, ...] = ()
        self._policy_sha256 = ""  # of the released policy that this process runs under
        self.facts = OperatorFacts(operator=operator.hotkey)

    async def start(
        self, newest: RaceState | None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> Settings:
        """The settings as the operator's newest whole release completes them; `newest` is the race opened last.

        Raises ArenaError U3048 where the node has to wait and has nobody to ask, V2105 for a policy that this software
        does not know, V2064, V2115, U3030.
        """
        settings, must_wait, failures = self._settings, bool(self._settings.operator_hotkey), 0
        while True:
            must_wait &= not settings.policy and self._whole() is None
            try:
                async with asyncio.timeout(None if must_wait else START_S):
                    await self._pull()
            except TimeoutError:
                self._log.info("operator's files are fetched while the node runs", seconds=START_S)
            except ArenaError as error:
                if not error.entry.is_retryable:
                    raise
                self._log.warning("operator's files", code=error.failure.code, detail=error.failure.detail)
            release = self._whole()
            if release is not None or not must_wait:
                break
            whose = f"{self._operator.hotkey} for netuid {self._operator.netuid}"
            lacking = f"no whole release of {whose} in {self.store.folder}"
            if self._puller is None:
                detail = f"{lacking}, and this node shares no races: `arena operator publish`, or set policy"
                raise ArenaError(FILES_LACKING, detail)
            failures += 1
            pause_s = PAUSES.pause_ms(failures) / 1_000
            self._log.warning("waiting for the operator's files", code=FILES_LACKING, detail=lacking, seconds=pause_s)
            await sleep(pause_s)
        if release is None:
            return settings
        completed = await asyncio.to_thread(complete_settings, settings, self.store, release)
        await asyncio.to_thread(self._place, release, get_args(FileKind))
        policy = None if settings.policy else released_policy(self.store, release)
        if policy is not None:
            self._policy_sha256 = policy.policy_sha256
            if newest is not None and newest.stage != "open" and runs_under_another(newest, policy):
                assert newest.opened is not None, "a race under a policy was opened"
                raced, self._policy_sha256 = newest.opened.policy, newest.opened.policy_sha256
                path = await asyncio.to_thread(write_policy, settings.state_dir, raced, self._policy_sha256)
                completed = replace(completed, policy=str(path))
        under = self._policy_sha256[:12] or f"setting {settings.policy or 'default'}"
        about = {"release": release.sequence, "sha256": release.release_sha256[:16], "files": len(release.files)}
        self._log.info("started with the operator's files", operator=release.signer, policy=under, **about)
        return completed

    async def turn(self) -> OperatorFacts:
        """Ask the others, take what came, also what was published here. Raises ArenaError V2064, V2115, U3030."""
        await self._pull()
        self.facts = await asyncio.to_thread(self._look)
        self._metrics.release_files_lacking.set(self.facts.lacking)
        self._metrics.policy_waits.set(bool(self.facts.policy_waits))
        return self.facts

    async def _pull(self) -> None:
        """Ask the others once, and say what came of it."""
        if self._puller is None or self._sharing is None:
            return
        turn = await self._puller.turn(self._sharing.others(await self._chain.metagraph(), self._own_hotkey))
        said, self._said = self._said, frozenset((each.peer, each.failure.code) for each in turn.complaints)
        for each in turn.complaints:
            code = each.failure.code
            self._metrics.release_complaints.labels(code).inc()
            if (each.peer, code) not in said:
                self._log.warning("peer", peer=each.peer, code=code, detail=each.failure.detail)
        newest = self.store.newest()
        if newest is not None and (turn.is_new or turn.fetched or turn.is_whole):
            about = {"release": newest.release.sequence, "lacking": turn.lacking, "fetched": len(turn.fetched)}
            self._log.info("operator's release", **about)

    def _look(self) -> OperatorFacts:
        """Place the batches of a newer whole release, and tell how all stands."""
        newest, whole, waits = self._own(self.store.newest()), self._whole(), ""
        if whole is not None:
            if whole != self._placed:
                self._place(whole, ("batch",))
                text = "operator's batches are in the bank; the rest of the release takes effect at the next start"
                self._log.info(text, release=whole.sequence)
            try:
                policy = None if self._settings.policy else released_policy(self.store, whole)
            except ArenaError as error:  # it stops the next start, not this node
                self._refuse(error.failure)
                policy = None
            if policy is not None and policy.policy_sha256 != self._policy_sha256:
                waits = policy.policy_sha256
        if waits and waits != self.facts.policy_waits:
            about = {"now": self._policy_sha256[:12], "released": waits[:12]}
            self._log.warning("released policy takes effect at the next start", code=POLICY_WAITS, **about)
        return OperatorFacts(
            operator=self._operator.hotkey,
            sequence=newest.sequence if newest else 0,
            release_sha256=newest.release_sha256 if newest else "",
            files=len(newest.files) if newest else 0,
            lacking=len(self.store.missing(newest)) if newest else 0,
            policy_waits=waits,
            unusable=self._unusable,
        )

    def _place(self, release: FilesRelease, kinds: Iterable[FileKind]) -> None:
        """Put the files of some kinds of a whole release where this node reads them; those that can't be used are
        noted (V2105). Raises ArenaError V2064 for a folder that can't be written, or a file that was damaged."""
        self._placed, self._unusable, settings = release, (), self._settings
        folders = {
            "suite": suite_folder(settings),
            "titles": shared_titles_folder(settings),
            "batch": settings.state_dir / "bank",
            "catalogue": index_folder(settings.state_dir, release),
        }
        for file in release.of_kind(*kinds):
            if (folder := folders.get(file.kind)) is None:
                continue
            path, content = folder / file.name, self.store.path_of(file)
            with coded(path):
                # A batch may have come by hand under another name; two of one round would serve no race.
                standing = folder.glob("*.sealed.json") if file.kind == "batch" else [path] if path.exists() else []
                if any(filecmp.cmp(other, content, shallow=False) for other in standing):
                    continue
                if path.exists() and file.kind == "batch":
                    detail = f"{path} is another batch than {file.sha256[:16]} of release {release.sequence}"
                    self._refuse(Failure(code=FILE_UNUSABLE, detail=detail))
                    continue
                folder.mkdir(parents=True, exist_ok=True)
                if file.kind == "catalogue":  # large, and nobody edits an index
                    path.unlink(missing_ok=True)
                    os.link(content, path)
                else:
                    write_whole(path, self.store.content(file), mode=MODE)

    def _refuse(self, failure: Failure) -> None:
        if failure.detail not in self._unusable:
            self._unusable += (failure.detail,)
            self._log.warning("operator's file", code=failure.code, detail=failure.detail)

    def _whole(self) -> FilesRelease | None:
        return self._own(self.store.whole())

    def _own(self, signed: SignedRelease | None) -> FilesRelease | None:
        """A kept release, if it is this operator's."""
        held = of_operator(signed, self._operator)
        return held.release if held else None


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
    return replace(settings, **found)


def released_policy(store: ReleaseStore, release: FilesRelease) -> Policy | None:
    """The policy of a whole release, or None where it has none. Raises ArenaError V2105 for one that can't be read, or
    names rules that this software does not know, since its races would be others than the network's; V2064."""
    for file in release.of_kind("policy"):
        content = store.content(file)
        with coded(f"policy {file.name} of release {release.sequence}", FILE_UNUSABLE):
            policy = read_canonical(content, Policy)
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


def index_folder(state_dir: Path, release: FilesRelease) -> Path | None:
    """Where the index of a release stands, or None where it has none."""
    manifest = next((file for file in release.of_kind("catalogue") if file.name == _INDEX_MANIFEST), None)
    return state_dir / "catalogues" / f"released-{manifest.sha256[:16]}" if manifest else None
