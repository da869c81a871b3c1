"""Several validators and one race: whatever a minority does, honest ones end alike, or say that there is no quorum."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.race.agreement import NO_QUORUM, explain_end
from arena.race.decider import STAND_INS_WAITING, decide
from arena.race.machine import EnqueueStandIns, RaceSettled, apply, paid_race
from tests.arena.agreement_world import PLAN, RULES, STEP_MS, Member, Network, run

HONEST = {"val-a": 40, "val-b": 35, "val-c": 25}
STAKES = st.lists(st.integers(1, 100), min_size=2, max_size=5)


def outcomes(network) -> dict[str, str]:
    return {hotkey: member.outcome for hotkey, member in network.members.items()}


@settings(max_examples=120, deadline=None)
@given(STAKES, st.lists(st.integers(1, 100), max_size=3), st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 0.8]))
def test_a_lying_minority_cannot_split_honest_validators(honest, lies, seed, loss):
    total, liars = sum(honest), []
    for stake in lies:  # up to just under half of the stake
        if sum(liars) + stake < total:
            liars.append(stake)
    network = run(
        {f"val-{n}": stake for n, stake in enumerate(honest)},
        {f"liar-{n}": stake for n, stake in enumerate(liars)},
        seed,
        loss=loss,
    )
    assert len({outcome for outcome in outcomes(network).values() if outcome}) <= 1
    for member in network.members.values():
        assert member.state.stage in ("settled", "cancelled")
        assert member.state.stage == "settled" or "no quorum" in member.state.settlement.reason


def test_liars_cost_no_quorum_and_one_that_slept_goes_on_from_what_the_others_settled():
    network = run({"val-a": 30, "val-b": 25, "val-c": 20}, {"liar-a": 40, "liar-b": 33}, 7)
    (outcome,) = set(outcomes(network).values())
    assert outcome and not any(member.state.is_adopted for member in network.members.values())
    network = run(HONEST, {}, seed=5, wakes_ms={"val-c": PLAN.countersign_ms + 3_600_000})
    late = network.members["val-c"].state
    assert late.stage == "settled" and late.is_adopted
    assert len(set(outcomes(network).values())) == 1
    assert paid_race([late]) is None  # but nobody is paid on others' word


def test_no_quorum_is_said_with_the_figures_and_a_lacking_log_by_its_name():
    two, nothing = {"val-a": 10, "val-b": 10}, {"field": (), "results": ()}
    member = run(two, {}, seed=1, wakes_ms=dict.fromkeys(two, PLAN.settling_ms * 2)).members["val-a"]
    (closes,) = decide(member.state, member.facts())
    before = apply(member.state, closes)
    (end,) = decide(before, member.facts())
    assert explain_end(before, end, nothing).detail == "the anchors or receipts of the field could not be read"
    state = run(two, {}, seed=1, wakes_ms=dict.fromkeys(two, PLAN.countersign_ms)).members["val-b"].state
    assert state.settlement.reason == NO_QUORUM
    failure = explain_end(state, RaceSettled(settlement=state.settlement), nothing)
    assert failure.code == "V2100" and "0 of 2 validators took part" in failure.detail
    other = RaceSettled(settlement=replace(state.settlement, reason="no agent raced"), is_adopted=True)
    failure = explain_end(replace(state, proposed=state.settlement), other, nothing)
    assert (failure.code, failure.detail) == ("V2101", "differs in reason")


def test_stand_ins_never_pile_up_in_the_queue_and_none_begins_once_logs_may_be_anchored():
    network = Network(HONEST, random.Random(1))
    members, network.now_ms = [Member(name, network) for name in HONEST], PLAN.closing_ms
    while members[0].state.items is None:
        for member in members:
            member.turn()
        network.now_ms += STEP_MS
    state, facts = members[0].state, members[0].facts()
    late = replace(facts, now_ms=state.draw.drawn_ms + 2 * RULES.race.stand_in_ms, done={})
    assert room(state, late) == STAND_INS_WAITING
    assert room(state, replace(late, open_race_items=3)) == STAND_INS_WAITING - 3
    assert room(state, replace(late, open_race_items=STAND_INS_WAITING)) == 0
    assert room(state, replace(late, now_ms=PLAN.settling_ms - PLAN.lead_ms)) == 0


def room(state, facts) -> int:
    return sum(due.room for due in decide(state, facts) if isinstance(due, EnqueueStandIns))
