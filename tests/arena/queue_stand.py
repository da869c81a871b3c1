"""Agents that hold workers, before the real queue: its rows say what was charged, and time passes as the stand says."""

from __future__ import annotations

import heapq

import asyncpg
from msgspec.structs import replace

from arena.policy import Policy
from arena.race.decider import overdraft
from arena.records.model import AttemptRecord
from arena.records.port import Lease, WorkItem
from arena.records.sequencer import Sequencer
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, item


def item_of(hotkey: str, problem: int, race_id: str = "", stage: str = "qualifying") -> WorkItem:
    """One problem for the agent of a hotkey."""
    made = item(problem, race_id, stage, agent=hotkey)
    return replace(made, subject=replace(made.subject, miner_hotkey=hotkey))


async def end(sequencer: Sequencer, lease: Lease, agent_ms: int = 0) -> None:
    """The attempt ends, and its agent ran so long."""
    about, context = lease.item.subject, lease.item.context
    record = AttemptRecord(attempt_id=lease.attempt_id, subject=about, context=context, ended="evaluated")
    await sequencer.append([record], (), lease, host=replace(HOST, agent_time_ms=agent_ms))


async def served_ms(
    store: PostgresStore, sequencer: Sequencer, owner_dsn: str, policy: Policy, workers: int, lasts_ms: dict[str, int]
) -> int:
    """Enqueue a suite for every hotkey, in order, whose agent takes so long for each problem, and serve them with so
    many workers; when the suite of the last hotkey was done."""
    *_, last = lasts_ms
    for hotkey in lasts_ms:
        await store.enqueue([item_of(hotkey, problem) for problem in range(policy.qualifying.problems)])
    connection = await asyncpg.connect(owner_dsn)
    now_ms, left, running = 0, policy.qualifying.problems, list[tuple[int, int, Lease]]()
    try:
        while left:
            charge_ms = policy.limits.agent_time_ms
            while len(running) < workers and (leases := await store.claim(1, 3_600_000, charge_ms=charge_ms)):
                (lease,) = leases
                if overdraft(lease, policy) is None:
                    ends_ms = now_ms + lasts_ms[lease.item.subject.miner_hotkey]
                    heapq.heappush(running, (ends_ms, lease.fence, lease))
                else:
                    await end(sequencer, lease)
            now_ms, fence, lease = heapq.heappop(running)
            hotkey = lease.item.subject.miner_hotkey
            await end(sequencer, lease, lasts_ms[hotkey])
            await connection.execute(
                "update arena.lease set worker_ms = $1 where validator = $2 and fence = $3",
                *(lasts_ms[hotkey], store.validator, fence),
            )
            left -= hotkey == last
    finally:
        await connection.close()
    return now_ms
