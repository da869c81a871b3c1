"""The heartbeat: at intervals the node writes its state into its file, its metrics and its log.

It decides nothing, and reads little whatever the log's length. If the disk is full, a warning is logged
instead of the file. If the store is away, the beat is left out, and a reader of the file sees its age.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable

import msgspec

from arena.bank.stock.level import HORIZON_RACES
from arena.race.state.schedule import coming_closes_ms
from arena.records.model import Stage
from foundation.errors import ArenaError
from neurons.health.node_file import (
    Heartbeat,
    NodeFile,
    OperatorFacts,
    PeerSeen,
    UnjudgedTrace,
    skewed,
    write_node_file,
)
from neurons.health.status_reading import read_race
from neurons.loops.chain_watch import ChainWatch
from neurons.loops.run_loop import StopSignal
from neurons.node.node import Node
from neurons.race.log import QUALIFYING, RaceLog

EVERY_S = 30.0
_BANK_EVERY_MS = 600_000


class Schedules(msgspec.Struct, frozen=True, kw_only=True):
    """How often a node promises to sign and to anchor; ages are compared with it."""

    checkpoint_every_s: int
    anchor_every_s: int


class HeartbeatLoop:
    """Beats for one node."""

    def __init__(
        self,
        node: Node,
        watch: ChainWatch,
        schedules: Schedules,
        *,
        logs: Callable[[], list[RaceLog]],
        peers: Callable[[], tuple[PeerSeen, ...]] = tuple,
        release: Callable[[], OperatorFacts | None] = lambda: None,
    ) -> None:
        """`logs` are those in which verdicts may be owed; `peers` are the other validators heard of; `release` says how
        the operator's files stand here."""
        self._release = release
        self._node, self._watch, self._schedules = node, watch, schedules
        self._logs, self._peers = logs, peers
        self._started_ms = node.now_ms()
        self._open_since_ms: dict[Stage, int] = {}  # since when there has been open work; 0: there is none
        self._bank_until_ms: int | None = None
        self._bank_looked_ms: int | None = None
        sandbox = node.conditions.sandbox
        node.metrics.node.labels(node.policy.policy_sha256, sandbox.guest_sha256, sandbox.name).set(1)

    async def beat(self, drain: StopSignal) -> Heartbeat:
        """Gather, show and keep one heartbeat. Raises ArenaError V2021 while the store is away."""
        node, sandbox = self._node, self._node.conditions.sandbox
        node.metrics.disk_free_bytes.set(shutil.disk_usage(node.state_dir).free)
        head = await node.store.head()
        await self._look_at_bank()
        store, metrics = node.store, node.metrics  # a status reads these from the store
        race = await read_race(store, node.now_ms())
        metrics.race_stage.clear()
        if race is not None:
            metrics.race_stage.labels(race.stage).set(1)
            metrics.race_deadline_ms.set(race.deadline.at_ms if race.deadline else 0)
        self._show_queue("race", race.open_items if race is not None else 0)
        self._show_queue("qualifying", await store.open_items(QUALIFYING, "qualifying"))
        metrics.weights_status.clear()
        for latest in await store.weights_results(1):
            metrics.weights_status.labels(latest.status).set(1)
            metrics.weights_block.set(latest.block)
        made = Heartbeat(
            hotkey=node.signer.hotkey,
            netuid=node.chain.netuid,
            process_id=os.getpid(),
            started_ms=self._started_ms,
            beat_ms=node.now_ms(),
            policy=node.policy.name,
            policy_sha256=node.policy.policy_sha256,
            guest_sha256=sandbox.guest_sha256,
            sandbox=sandbox.name,
            code_commit=node.conditions.code_commit,
            records=head.seq,
            owed_verdicts=sum(len(log.owed(node.signer.hotkey)) for log in self._logs()),
            chain=self._watch.facts,
            waits=tuple(drain.waits[name] for name in sorted(drain.waits)),
            peers=self._peers(),
            checkpoint_every_s=self._schedules.checkpoint_every_s,
            anchor_every_s=self._schedules.anchor_every_s,
            bank_until_ms=self._bank_until_ms,
            bank_days_min=node.bank_days_min,
            resting=node.pool.resting,
            unjudged=tuple(
                UnjudgedTrace(seq=row.seq, body_sha256=row.record.body_sha256, race_id=row.record.context.race_id)
                for log in self._logs()
                for row in log.records.quarantined(node.signer.hotkey)
            ),
            release=self._release(),
        )
        self._show(made)
        try:
            write_node_file(node.state_dir, NodeFile(beat=made))
        except OSError as error:
            node.log.warning("heartbeat not written", code="V2115", reason=str(error))
        return made

    def _show_queue(self, stage: Stage, open_items: int) -> None:
        metrics = self._node.metrics
        metrics.open_items.labels(stage).set(open_items)
        self._open_since_ms[stage] = (self._open_since_ms.get(stage) or self._node.now_ms()) if open_items else 0
        metrics.queue_since_ms.labels(stage).set(self._open_since_ms[stage])

    def _show(self, beat: Heartbeat) -> None:
        metrics = self._node.metrics
        metrics.records.set(beat.records)
        metrics.heartbeat_ms.set(beat.beat_ms)
        metrics.waiting.set(len(beat.waits))
        metrics.resting_slots.set(len(beat.resting))
        metrics.owed_verdicts.set(beat.owed_verdicts)
        metrics.peers.set(len(beat.peers))
        metrics.peers_skewed.set(len(skewed(beat)))
        if beat.bank_until_ms is not None:
            metrics.bank_lasts_ms.set(max(0, beat.bank_until_ms - beat.beat_ms))
        self._node.log.debug(
            "heartbeat",
            hotkey=beat.hotkey,
            records=beat.records,
            policy=beat.policy_sha256[:12],
            guest=beat.guest_sha256[:12],
            sandbox=beat.sandbox,
            waiting=[f"{wait.loop} {wait.code}" for wait in beat.waits],
        )

    async def _look_at_bank(self) -> None:
        """How long the stock lasts, now and again: measuring opens files."""
        node, now_ms = self._node, self._node.now_ms()
        if self._bank_looked_ms is not None and now_ms - self._bank_looked_ms < _BANK_EVERY_MS:
            return
        self._bank_looked_ms = now_ms
        try:
            closes_ms = coming_closes_ms(now_ms, node.policy.race, HORIZON_RACES)
            level = await asyncio.to_thread(node.stock.level, closes_ms, now_ms)
        except ArenaError as error:
            node.log.warning("bank not measured", code=error.failure.code, detail=error.failure.detail)
            return
        self._bank_until_ms = None if level.is_made_here else now_ms + level.lasts_ms
