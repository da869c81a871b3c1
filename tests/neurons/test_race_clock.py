"""The race clock and the weights loop on a real store, chain, beacon and bank: months unattended, in seconds."""

from __future__ import annotations

import itertools
from collections import Counter
from unittest import mock

import pytest
from msgspec.structs import replace

from arena.race.agreement import NO_QUORUM
from arena.race.machine import RaceState
from arena.records.body import decode_content
from arena.records.model import SettlementRecord
from foundation.errors import ArenaError
from neurons.loops.watches import STALE_MS, ChainWatch
from neurons.race.weights import WeightsLoop
from tests.arena.chain_faults import deregister
from tests.keys import generate_signer
from tests.neurons.clock_stand import POLICY, Desk
from tests.simulation.faults import Crash, CrashAt, FaultyStore

OTHER = replace(POLICY, name="other", race=replace(POLICY.race, closes_after_ms=20_000))


def solves(desk: Desk, *names: str):
    """Only these agents solve anything."""
    return lambda lease: desk.names.get(lease.item.subject.agent_version_id) in names


# -- a race and its weights
async def raced(desk: Desk) -> SettlementRecord:
    await desk.turn_until("running")
    await desk.clock.turn()
    await desk.work(solves(desk, "good"))
    return (await desk.turn_until("settled")).settlement


async def test_weights_are_set_again_every_tempo_and_a_winner_that_left_is_paid_no_more(desk):
    winner = await desk.submit("good")
    settlement = await raced(desk)
    first = await desk.weights.turn()
    assert first.status == "ok" and len(first.uids) == 2
    paid = tuple(zip(settlement.uids, settlement.weights_u16, strict=True))
    assert await desk.chain.weights(desk.signer.hotkey) == paid
    assert await desk.weights.turn() is None
    await deregister(desk.chain, winner.miner_hotkey)
    stranger = generate_signer()
    await desk.chain.register(stranger)
    assert (await desk.chain.metagraph()).uid_of(stranger.hotkey) in first.uids  # the uid was recycled
    desk.time.pass_s(49)
    desk.start(desk.policy)  # a restart forgets nothing
    assert await desk.weights.turn() is None
    desk.time.pass_s(5)
    again = await desk.weights.turn()
    assert (again.status, again.uids, again.weights_u16) == ("ok", (0,), (65_535,))


async def test_a_race_killed_at_any_of_its_writes_goes_on_to_the_same_settlement(desk):
    """Race after race, each killed before one write later."""
    await desk.submit("good")
    await desk.submit("weak")
    desk.store, ends, deaths = FaultyStore(desk.store, counts := Counter()), [], itertools.count()
    desk.start(POLICY)
    while sum(counts.values()) == (number := next(deaths)):
        desk.store.arm(CrashAt(desk=0, at=0.0, writes=number + 1, is_before=True))
        for _ in range(80):
            try:
                state = await desk.clock.turn()
                with desk.store.spared():
                    await desk.work(solves(desk, "good"))
                state = next((each for each in await desk.clock.states() if each.race_id == state.race_id), state)
            except Crash:
                desk.start(POLICY)
                continue
            if state.is_finished:
                break
            desk.time.pass_s(1)
        kinds = [record async for record in desk.store.records(kinds=("settlement", "release"), race_id=state.race_id)]
        made = [decode_content(record.content).payload for record in kinds]
        assert made[0] == state.settlement and len(made) == 2, number
        ends.append([(row.agent_version_id, row.race_score_e4, row.missing) for row in made[0].standings])
    assert number > 10 and ends == [ends[0]] * len(ends) and [score for _, score, _ in ends[0]] == [10_000, 0]


async def test_a_restart_forgets_no_race_that_others_settled_without_this_node(desk):
    await desk.submit("good")
    own = await raced(desk)
    missed = replace((await desk.clock.states())[0], proposed=None, is_adopted=True)
    away = replace(missed, settlement=replace(own, state="cancelled", reason=NO_QUORUM), is_adopted=False)
    theirs = replace(own, inputs=replace(own.inputs, history=("a race",)))
    behind = replace(missed, settlement=theirs, proposed=own)
    ends = (((), ""), ((missed,), "missed"), ((away,), "missed"), ((away, behind), "missed"))
    for states, wanted in (*ends, ((behind,), "not_ours"), ((missed, missed), "not_ours")):
        desk.start(POLICY)
        desk.clock.states = mock.AsyncMock(return_value=[*states, RaceState(race_id="race-000009")])
        await desk.clock.adopt_policy()
        assert [name for name in ("missed", "not_ours") if getattr(desk.clock, name)] == ([wanted] if wanted else [])


@pytest.mark.parametrize("unforeseen", [KeyError("Z"), OverflowError("too large"), TypeError("not hashable")])
async def test_a_bug_that_a_record_brings_out_delays_the_race_and_does_not_stop_the_node(desk, monkeypatch, unforeseen):
    await desk.submit("good")
    fail = mock.AsyncMock(side_effect=unforeseen)
    with monkeypatch.context() as broken:
        broken.setattr(desk.beacon, "fetch", fail)
        await desk.turn_until("closed")
        desk.time.pass_s(1)
        assert (await desk.clock.turn()).stage == "closed" and fail.await_count
    assert (await desk.turn_until("running", turns=70)).draw is not None


async def test_no_weights_are_set_from_a_chain_that_stands_still_and_they_follow_once_it_moves(desk):
    await desk.submit("good")
    watch = ChainWatch(desk.node)
    desk.weights = WeightsLoop(desk.node, desk.clock, is_stale=watch.is_stale)
    assert not watch.is_stale()
    await raced(desk)
    await watch.turn()
    head = await desk.chain.block()

    async def standing() -> int:
        return head

    desk.chain.block = standing  # type: ignore[method-assign]  # an endpoint that hears no new blocks
    desk.time.pass_s(STALE_MS / 1_000 + 1)
    with pytest.raises(ArenaError, match=f"U3034.*race-000001 wait for a block after {head}"):
        await desk.weights.turn()
    assert await desk.store.weights_results() == []
    del desk.chain.block
    await watch.turn()
    assert (await desk.weights.turn()).status == "ok"


# -- whom a closed race waits for


async def test_a_closed_race_waits_for_agents_committed_by_its_close_and_not_for_ever(desk):
    await desk.submit("good")
    await desk.submit("slow", state="accepted")
    await desk.turn_until("closed")
    desk.time.pass_s(5)
    assert (await desk.clock.turn()).field is None
    desk.time.pass_s(POLICY.race.qualifying_grace_ms / 1_000)
    assert (await desk.clock.turn()).field is not None


# -- the policy of a race
async def test_a_new_policy_takes_over_before_the_close_and_agents_qualify_again_under_it(desk):
    agent = await desk.submit("good")
    await desk.clock.turn()
    desk.start(OTHER)
    state = await desk.clock.turn()
    assert (state.stage, state.opened.policy) == ("open", OTHER)
    assert [s.state for s in await desk.store.submissions()] == ["accepted"]
    await desk.qualify(agent)
    await desk.store.set_submission_state(agent.agent_version_id, "qualified")
    state = await desk.turn_until("running")
    assert [who.subject for who in state.field.field] == [agent]
