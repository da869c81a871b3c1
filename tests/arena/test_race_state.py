"""The race as a state machine: one legal path, nothing asked twice, and a stream that replays to the same state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.policies import PAPER
from arena.race.admission import RaceRecords
from arena.race.agreement import TOO_LATE
from arena.race.decider import decide
from arena.race.machine import (
    FixField,
    IllegalEventError,
    RaceSettled,
    SettlementDue,
    Succession,
    apply,
    encode_event,
    open_race,
    replay,
    runs_under_another,
    settlement_inputs,
    succession,
)
from arena.race.schedule import timeline
from arena.records.model import Top
from tests.arena.race_stand import RACE, batch, metagraph
from tests.arena.race_world import CLOSES_MS, FIELD, OPENED_MS, RULES, World, at_close, finished, running


def test_the_whole_race_takes_the_one_path():
    world = finished()
    assert world.done == [
        "SealBatch",
        "RaceClosed",
        "ReadChain",
        "FixField",
        "ProblemsDrawn",
        "EnqueueItems",
        "SettlementDue",
        "Settle",
        "RaceSettled",
        "ReleaseBatch",
    ]
    assert world.state.stage == "settled"
    assert decide(world.state, world.facts()) == ()
    assert succession([world.state]).top == Top(agent_version_id="v-a", miner_hotkey="hk-a", promoted_ms=CLOSES_MS)


def test_a_missing_repeated_or_swapped_event_is_refused():
    stream = finished().stream
    for place in range(len(stream) - 1):
        swapped = [*stream[:place], stream[place + 1], stream[place], *stream[place + 2 :]]
        if '"event":"read"' not in "".join(
            stream[place : place + 2]
        ):  # the chain may be read at any time after the close
            with pytest.raises(IllegalEventError):
                replay(RACE, swapped)
        with pytest.raises(IllegalEventError):
            replay(RACE, [*stream[: place + 1], *stream[place:]])


@given(st.integers(0, 20))
def test_a_driver_that_dies_between_effect_and_event_asks_for_the_same_again(turns):
    world = at_close()
    for _ in range(turns):
        due = decide(world.state, world.facts())
        assert decide(world.state, world.facts()) == due  # nothing was appended: nothing changed
        world.turn()
        world.open_items = 0


# -- the close


def test_a_policy_that_admits_by_agreement_follows_the_chain_and_gives_up_with_the_others():
    agreed = replace(RULES, admission=PAPER.admission)
    world = at_close()
    world.stream[0] = encode_event(open_race(RACE, agreed, batch(), OPENED_MS, CLOSES_MS))
    world.turn()
    plan = timeline(CLOSES_MS, agreed.race)
    late = replace(world.facts(), now_ms=plan.abandon_ms)
    (due,) = decide(world.state, late)
    assert isinstance(due, RaceSettled) and due.settlement.reason == TOO_LATE  # it was never read who else is in it
    world.turn()
    assert world.state.read("closing") is not None
    (due,) = decide(world.state, late)
    assert isinstance(due, FixField)  # nobody else holds a permit: there is nothing to give up


def test_the_field_waits_for_qualifying_work_but_not_for_ever():
    world = at_close()
    world.turn()
    world.turn()
    world.pending_qualifying = 3
    assert decide(world.state, world.facts()) == ()
    world.later(RULES.race.qualifying_grace_ms)
    assert [type(due) for due in decide(world.state, world.facts())] == [FixField]


def test_a_race_without_agents_is_cancelled_without_a_beacon():
    world = at_close(field=())
    world.beacon = None
    for _ in range(7):
        world.turn()
    assert world.state.stage == "cancelled"
    assert world.state.settlement.reason == "no agent raced"
    assert world.state.is_finished


# -- the beacon
def test_a_late_beacon_delays_the_draw_and_then_cancels_by_settlement():
    top = Top(agent_version_id="v-b", miner_hotkey="hk-b", promoted_ms=5)
    world = at_close(incumbent=top)
    world.beacon = None
    for _ in range(5):
        world.turn()
    assert world.state.stage == "closed"
    assert set(world.done[2:]) == {"FetchBeacon", "ReadChain", "FixField"}
    world.later(RULES.race.beacon_grace_ms)
    for _ in range(4):
        world.turn()
    assert world.state.stage == "cancelled"
    assert world.state.settlement.reason == "the beacon did not come"
    assert world.state.settlement.top_agent_version_id == top.agent_version_id


def test_a_node_that_was_down_past_the_grace_asks_for_the_round_before_it_cancels():
    world = at_close()
    world.turn()
    round_, world.beacon, world.is_beacon_asked = world.beacon, None, False
    world.later(RULES.race.beacon_grace_ms)
    for _ in range(3):
        world.turn()
    assert world.state.stage == "closed" and world.done[-1] == "FetchBeacon"
    world.beacon = round_
    world.turn()
    assert world.state.draw is not None


# -- running
def test_the_race_waits_for_items_and_verdicts():
    world = running()
    assert world.state.items == (1 + len(FIELD)) * RULES.race.problems  # the control agent runs, too
    assert decide(world.state, world.facts()) == ()
    world.open_items, world.owed_verdicts = 0, 1
    assert decide(world.state, world.facts()) == ()
    world.owed_verdicts = 0
    assert [type(due) for due in decide(world.state, world.facts())] == [SettlementDue]


def test_the_race_does_not_wait_for_ever():
    world = running()
    world.later(RULES.race.run_ms)
    (due,) = decide(world.state, world.facts())
    assert isinstance(due, SettlementDue) and due.why == "the time for results is over"


# -- opening, and the policy of a race


OTHER = replace(RULES, race=replace(RULES.race, closes_after_ms=60_000, run_ms=5))


def test_another_policy_takes_over_until_the_close_and_with_the_same_batch_only():
    world = World()
    assert not runs_under_another(world.state, OTHER)
    world.turn()
    assert runs_under_another(world.state, OTHER) and not runs_under_another(world.state, RULES)
    with pytest.raises(IllegalEventError):
        apply(world.state, open_race(RACE, OTHER, batch(20), OPENED_MS, CLOSES_MS))
    world.stream.append(encode_event(open_race(RACE, OTHER, batch(), OPENED_MS + 5, CLOSES_MS)))
    assert world.state.opened.policy == OTHER
    assert not runs_under_another(world.state, OTHER)


def test_past_its_close_a_race_keeps_its_policy_and_after_its_settlement_needs_none():
    world = at_close()
    for _ in range(5):
        world.turn()
        assert runs_under_another(world.state, OTHER)
        with pytest.raises(IllegalEventError):
            apply(world.state, open_race(RACE, OTHER, batch(), OPENED_MS, CLOSES_MS))
    assert not runs_under_another(finished().state, OTHER)


def test_inputs_exist_only_while_settling():
    with pytest.raises(IllegalEventError):
        settlement_inputs(running().state, metagraph([]), RaceRecords(), Succession())
