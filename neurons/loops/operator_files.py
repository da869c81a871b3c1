"""The operator's files of one node: it starts with them, and keeps them up to date while it runs.

A node that names its operator and no policy waits until it has a whole release, and starts under its policy; every
other node asks once, briefly. A race past its close under another policy than the released one is first finished under
its own. Sealed batches of a whole release are usable at once; policy, suite, titles and index take effect together, at
the next start, and until then the log and the status say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from arena.chain.keys import canonical_hotkey, verify
from arena.chain.port import Subtensor
from arena.exchange.operator_files import FileKind, FilesRelease, Operator, SignedRelease, of_operator
from arena.exchange.pull import ReleasePuller
from arena.race.machine import RaceState, runs_under_another
from foundation.backoff import Backoff
from foundation.codes import FILES_LACKING, POLICY_WAITS
from foundation.errors import ArenaError, Failure
from neurons.health.metrics import Metrics
from neurons.health.status import OperatorFacts
from neurons.settings.released import (
    AT_START,
    NOBODY,
    complete_settings,
    open_releases,
    place_files,
    released_policy,
    write_policy,
)
from neurons.settings.settings import Settings

if TYPE_CHECKING:
    from neurons.loops.node import Sharing

START_S = 30.0  # for a node that could start with what it has
PAUSES = Backoff(first_ms=1_000, most_ms=5_000)  # a start waits for it


async def operator_of(settings: Settings, chain: Subtensor) -> Operator | None:
    """Whose files this node takes: the key that the settings name, else the subnet owner's. None: nobody's.

    Raises ArenaError V2030 for a malformed key, U3030, U3037.
    """
    if settings.operator_hotkey == NOBODY:
        return None
    named = settings.operator_hotkey or await chain.owner_hotkey()
    hotkey = canonical_hotkey(named) if named else None
    if named and hotkey is None:
        raise ArenaError("V2030", f"operator_hotkey {named!r} is no ss58 address")
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
        self._sharing, self._metrics, self._log = sharing, metrics, structlog.get_logger()
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
        await asyncio.to_thread(self._place, release, (*AT_START, "batch"))
        policy = None if settings.policy else released_policy(self.store, release)
        if policy is not None:
            self._policy_sha256 = policy.policy_sha256
            if newest is not None and newest.stage != "open" and runs_under_another(newest, policy):
                assert newest.opened is not None, "a race under a policy was opened"
                raced, self._policy_sha256 = newest.opened.policy, newest.opened.policy_sha256
                path = await asyncio.to_thread(write_policy, settings.state_dir, raced, self._policy_sha256)
                completed = completed.model_copy(update={"policy": str(path)})
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

    def _place(self, release: FilesRelease, kinds: tuple[FileKind, ...]) -> None:
        self._placed, self._unusable = release, ()
        for failure in place_files(self._settings, self.store, release, kinds):
            self._refuse(failure)

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
