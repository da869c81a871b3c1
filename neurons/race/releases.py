"""The loop that keeps the operator's files up to date while a node runs.

Sealed batches of a whole release are usable at once; policy, suite, titles and index take effect together, at
the next start, and until then the log and the status say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from arena.chain.keys import verify
from arena.exchange.operator_files import FilesRelease, ReleaseStore
from arena.exchange.port import Peer
from arena.exchange.pull import ReleasePuller, ReleaseTurn, of_operator
from foundation.codes import POLICY_WAITS
from foundation.errors import ArenaError, Failure
from neurons.health.status import OperatorFacts
from neurons.loops.node import Node, OperatorFiles
from neurons.settings.released import (
    place_files,
    released_policy,
)


class ReleaseLoop:
    """Fetches releases for one node, and says what became of them."""

    name, every_s = "operator files", 30.0

    def __init__(self, node: Node, files: OperatorFiles, peers: Callable[[], Sequence[Peer]]) -> None:
        """`peers` are the other validators now; of a node that shares no races nobody is asked."""
        self._node, self._files, self._peers = node, files, peers
        asks = node.sharing.peers if node.sharing else None
        self._puller = ReleasePuller(asks, files.store, files.operator, verify) if asks else None
        self._said: set[tuple[str, str]] = set()
        self._placed: FilesRelease | None = files.started_with
        self._unusable: tuple[str, ...] = ()
        self.facts = OperatorFacts(operator=files.operator.hotkey)

    async def turn(self) -> OperatorFacts:
        """Ask the others, take what came. Raises ArenaError V2064, V2115."""
        peers = self._peers()
        if self._puller is not None and peers:
            turn = await self._puller.turn(peers)
            for complaint in turn.complaints:
                self._node.metrics.release_complaints.labels(complaint.failure.code).inc()
            log_turn(turn, self._files.store, self._said)
        self.facts = await asyncio.to_thread(self._look)
        metrics = self._node.metrics
        metrics.release_sequence.set(self.facts.sequence)
        metrics.release_files_lacking.set(self.facts.lacking)
        metrics.policy_waits.set(bool(self.facts.policy_waits))
        return self.facts

    def _look(self) -> OperatorFacts:
        """Place what a newer whole release brought, also one that was published here, and tell how it stands."""
        files, log = self._files, self._node.log
        newest, whole = (
            of_operator(signed, files.operator, verify) for signed in (files.store.newest(), files.store.whole())
        )
        waits = ""
        if whole is not None:
            if whole.release != self._placed:
                self._place(whole.release)
            try:
                policy = None if files.settings.policy else released_policy(files.store, whole.release)
            except ArenaError as error:  # it stops the next start, not this node
                self._refuse(error.failure)
                policy = None
            if policy is not None and policy.policy_sha256 != files.policy_sha256:
                waits = policy.policy_sha256
        if waits and waits != self.facts.policy_waits:
            log.warning(
                "released policy takes effect at the next start",
                code=POLICY_WAITS,
                now=self._node.policy.policy_sha256[:12],
                released=waits[:12],
            )
        return OperatorFacts(
            operator=files.operator.hotkey,
            sequence=newest.release.sequence if newest else 0,
            release_sha256=newest.release.release_sha256 if newest else "",
            files=len(newest.release.files) if newest else 0,
            lacking=len(files.store.missing(newest.release)) if newest else 0,
            policy_waits=waits,
            unusable=self._unusable,
        )

    def _place(self, release: FilesRelease) -> None:
        files, log = self._files, self._node.log
        self._unusable = ()
        failures = place_files(files.settings, files.store, release, ("batch",))
        for failure in failures:
            self._refuse(failure)
        log.info(
            "operator's batches are in the bank; the rest of the release takes effect at the next start",
            release=release.sequence,
            batches=len(release.of_kind("batch")) - len(failures),
        )
        self._placed = release

    def _refuse(self, failure: Failure) -> None:
        if failure.detail not in self._unusable:
            self._unusable += (failure.detail,)
            self._node.log.warning("operator's file", code=failure.code, detail=failure.detail)


def log_turn(turn: ReleaseTurn, store: ReleaseStore, said: set[tuple[str, str]]) -> None:
    """What a turn of fetching brought, and complaints (peer, code) that are not `said` since the turn before."""
    log, before = structlog.get_logger(), frozenset(said)
    said.clear()
    for complaint in turn.complaints:
        said.add(told := (complaint.peer, complaint.failure.code))
        if told not in before:
            log.warning("peer", peer=complaint.peer, code=complaint.failure.code, detail=complaint.failure.detail)
    newest = store.newest()
    if newest is None or not (turn.is_new or turn.fetched or turn.is_whole):
        return
    release = newest.release
    state = "whole" if not turn.lacking else "incomplete"
    log.info(
        "operator's release", release=release.sequence, state=state, lacking=turn.lacking, fetched=len(turn.fetched)
    )
