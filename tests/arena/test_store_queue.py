"""A validator's queue, on real Postgres: what is claimed in which order, and how a lease ends."""

from __future__ import annotations

import asyncio
import heapq

import asyncpg
import pytest
from msgspec.structs import replace

from arena.policies import PAPER
from arena.policy import Policy
from arena.race.decider import overdraft
from arena.race.schedule import qualified_within_ms
from arena.records.model import AttemptRecord
from arena.records.port import Lease, LeaseLostError, Requeue, WorkItem
from arena.records.sequencer import Sequencer
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, attempt, episode, item


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


LONG_MS = 60_000


async def test_finishing_appends_and_closes_the_item_in_one_step(store, sequencer, race_id) -> None:
    lease = await claim_one(store, race_id)
    payloads, body = episode(1, race_id=race_id, attempt_id=lease.attempt_id)
    await sequencer.append(payloads, [body], finish=lease)
    assert await store.open_items(race_id, "race") == 0
    with pytest.raises(LeaseLostError, match="V2022"):
        await sequencer.append(payloads, [body], finish=lease)
    assert (await store.head()).seq == 3


async def claim_one(store: PostgresStore, race_id: str, ttl_ms: int = LONG_MS):
    await store.enqueue([item(1, race_id)])
    (lease,) = await store.claim(1, ttl_ms)
    return lease


async def test_a_lease_that_ran_out_can_not_be_finished_and_its_records_are_not_written(
    store, sequencer, race_id
) -> None:
    lease = await claim_one(store, race_id, ttl_ms=1)
    await asyncio.sleep(0.01)
    payloads, body = episode(4711, race_id=race_id)  # a body no other test stores
    with pytest.raises(LeaseLostError, match="V2022"):
        await sequencer.append(payloads, [body], finish=lease)
    assert (await store.head()).seq == 0
    assert await store.body(body.body_sha256) is None


async def test_an_expired_lease_stays_listed_until_it_is_abandoned_with_its_record(store, sequencer, race_id) -> None:
    lease = await claim_one(store, race_id, ttl_ms=1)
    await asyncio.sleep(0.01)
    assert await store.claim(1, LONG_MS) == []  # its own attempt is owed a record first
    assert [owed.fence for owed in await store.expired()] == [lease.fence]
    await sequencer.abandon(lease, attempt(1), Requeue())
    assert await store.expired() == []
    (again,) = await store.claim(1, LONG_MS)
    assert again.item == lease.item
    assert (again.faults, again.fence > lease.fence) == (0, True)
    assert [record.seq async for record in store.records(store.validator, kinds=["attempt"])] == [1]


async def test_a_fault_abandons_a_running_lease_and_the_next_lease_knows_of_it(store, sequencer, race_id) -> None:
    lease = await claim_one(store, race_id)
    assert (lease.faults, lease.counted) == (0, 0)
    await sequencer.abandon(lease, attempt(1, ended="faulted"), Requeue(is_fault=True))
    with pytest.raises(LeaseLostError):
        await sequencer.abandon(lease, attempt(1, ended="faulted"), Requeue(is_fault=True))
    (again,) = await store.claim(1, LONG_MS)
    assert (again.faults, again.counted) == (1, 0)
    await sequencer.abandon(again, attempt(2, ended="faulted"), Requeue(is_fault=True, is_counted=True))
    (third,) = await store.claim(1, LONG_MS)
    assert (third.faults, third.counted, third.refused) == (2, 1, 0)
    await sequencer.abandon(third, attempt(3, ended="faulted"), Requeue(is_fault=True, is_refused=True))
    with pytest.raises(LeaseLostError):
        await sequencer.abandon(third, attempt(3, ended="faulted"), Requeue(is_fault=True, is_refused=True))
    (fourth,) = await store.claim(1, 1)
    assert (fourth.faults, fourth.counted, fourth.refused) == (3, 1, 1)
    assert (await store.head()).seq == 3
    await asyncio.sleep(0.01)
    assert await store.expired() == [fourth]


async def test_closed_items_are_not_claimed_again_and_their_leases_are_lost_but_owe_a_record(
    store, sequencer, race_id
) -> None:
    await store.enqueue([item(1, race_id), item(2, race_id)])
    (lease,) = await store.claim(1, LONG_MS)
    assert await store.close_items(race_id, "race") == 2
    assert (await store.close_items(race_id, "race"), await store.open_items(race_id, "race")) == (0, 0)
    assert await store.renew(lease, LONG_MS) is None
    payloads, body = episode(1, race_id=race_id, attempt_id=lease.attempt_id)
    with pytest.raises(LeaseLostError, match="V2022"):
        await sequencer.append(payloads, [body], finish=lease)
    assert [owed.fence for owed in await store.expired()] == [lease.fence]  # at once, though it did not run out
    await sequencer.abandon(lease, attempt(1), Requeue())
    assert (await store.expired(), await store.claim(9, LONG_MS)) == ([], [])
    assert await store.enqueue([item(1, race_id)]) == 0
    assert (await store.head()).seq == 1


async def test_the_control_agent_goes_first_then_the_owner_that_was_charged_least(store, sequencer, race_id) -> None:
    names = ("a", "a", "a", "b", "c", "d", "")
    items = [item_of(name, problem, race_id, "race") for problem, name in enumerate(names)]
    await store.enqueue(items, {"c": "cold", "d": "cold"})
    leases = [lease for _ in range(4) for lease in await store.claim(1, LONG_MS, charge_ms=1_000)]
    assert [lease.item.subject.miner_hotkey for lease in leases] == ["", "a", "b", "c"]  # at the claim, not at its end
    await end(sequencer, leases[3])  # it took no time: the other hotkey of its owner is the next
    rest = await store.claim(3, LONG_MS, charge_ms=1_000)
    assert [(lease.item.subject.miner_hotkey, lease.owner) for lease in rest] == [("d", "cold"), ("a", "a"), ("a", "a")]


async def test_a_lease_says_how_long_its_agents_code_ran_in_its_race(store, sequencer, race_id) -> None:
    await store.enqueue([item_of("a", 1, race_id, "race"), item_of("a", 2, race_id, "race"), item_of("a", 3)])
    (first,) = await store.claim(1, LONG_MS)
    await end(sequencer, first, agent_ms=700)
    assert [lease.agent_ms for lease in (first, *await store.claim(2, LONG_MS))] == [0, 700, 0]


@pytest.mark.parametrize("workers", [1, 2])
async def test_who_commits_behind_sleepers_is_qualified_in_time(store, sequencer, postgres, workers) -> None:
    agents = {f"sleeper{number}": 59_000 for number in range(3)} | {"honest": 40_000}
    took_ms = await served_ms(store, sequencer, postgres.owner_dsn, PAPER, workers, agents)
    assert took_ms <= qualified_within_ms(PAPER, len(agents), workers)
    problem_ms, own_ms = PAPER.limits.agent_time_ms, 40_000 * PAPER.qualifying.problems
    assert took_ms <= problem_ms + len(agents) * min(own_ms + problem_ms, PAPER.qualifying.worker_ms) / workers
