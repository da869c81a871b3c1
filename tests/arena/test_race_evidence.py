"""The crown by evidence: what a bet holds after a race, what carries it on, and what neither copies, new versions nor
one liar change."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.api.board import RaceView
from arena.door.service import Desk
from arena.policy import PromotionRules
from arena.race.settle import settle
from arena.race.weights import STAKES, UNIT, carry, held_millionths, is_enough, lead, needed
from arena.records.model import Evidence, SettlementRecord, Top
from tests.arena.race_stand import VALS, candidate, controlled, inputs, policy

RULES = PromotionRules(kind="evidence", evidence_alone=200)
TOP = Top(agent_version_id="v-top", miner_hotkey="hk-top", promoted_ms=1)
SOLVED = {"a": 10_000}


@pytest.mark.parametrize(
    ("ours", "theirs", "left_out", "expected"),
    [
        (SOLVED, {"a": 0}, "", 60_000),
        (SOLVED, SOLVED, "", 0),
        ({"a": 0}, SOLVED, "", -60_000),
        ({}, SOLVED, "", -60_000),  # missing is 0
        (SOLVED, {}, "", 60_000),
        ({"a": 10_000, "b": 0, "c": 0}, {"a": 0}, "", 20_000),
        ({"a": 10_000, "b": 0, "c": 0}, {"a": 0, "b": 0}, "a", 0),
        ({"a": 10_000, "b": 9_125}, {"c": 0}, "b", 60_000),
        (SOLVED, {"b": 0}, "a", 0),  # all of an agent's runs are left out: it says nothing
        ({"a": 1}, {"a": 0, "b": 0, "c": 0, "d": 1}, "", 4),  # rounded down
        ({"a": 0}, {"a": 0, "b": 0, "c": 0, "d": 1}, "", -2),
    ],
)
def test_a_lead_is_six_times_the_difference_of_the_means(ours, theirs, left_out, expected):
    assert lead(ours, theirs, left_out) == expected


def test_one_race_multiplies_every_stake_and_rounds_down():
    once = carry(Evidence(), {"hk": [SOLVED, {"a": 5_000}]}, [{"b": 0}, {"b": 10_000}])
    (held,) = once.held
    expected = [UNIT * (16 + stake) * (32 - stake) // (16 * 32) for stake in STAKES]
    assert once.left_out == ("", "a", "b")
    assert (held.races, held.millionths[0]) == (1, tuple(expected))
    assert held.millionths[1:] == ((UNIT,) * 4, (UNIT,) * 4), "without the one validator there is nothing to tell"
    assert held_millionths(held, 2) == sum(expected) // 4
    assert held_millionths(held, 3) == UNIT


scores = st.dictionaries(st.sampled_from("abcde"), st.sampled_from([0, 7_000, 9_125, 10_000]), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(scores, scores), min_size=1, max_size=8), max_size=3))
def test_what_is_held_is_the_product_of_the_leads_whichever_validator_is_left_out(races):
    evidence = Evidence()
    for problems in races:
        evidence = carry(evidence, {"hk": [mine for mine, _ in problems]}, [other for _, other in problems])
    for held in evidence.held:
        for left_out, row in zip(evidence.left_out, held.millionths, strict=True):
            for stake, value in zip(STAKES, row, strict=True):
                exact = Fraction(UNIT)
                for mine, other in (pair for problems in races for pair in problems):
                    exact *= 1 + Fraction(stake * lead(mine, other, left_out), 960_000)
                assert exact * Fraction(99, 100) - 3 <= value <= exact


def test_who_does_not_race_holds_what_it_held():
    first = carry(Evidence(), {"x": [SOLVED], "y": [SOLVED]}, [{"b": 0}])
    second = carry(first, {"x": [SOLVED]}, [{"b": 0}])
    held = {one.miner_hotkey: one for one in second.held}
    assert held["y"] == first.held[1]
    assert (held["x"].races, held["y"].races) == (2, 1)


def test_equal_agents_are_seldom_crowned_and_better_ones_in_time():
    """Two hundred reigns of ten races of 90 problems; a solver of 70 % against one of 70 % and one of 82 %."""
    dice = random.Random(5)
    crowned = {0.70: 0, 0.82: 0}
    for skill in crowned:
        for _ in range(200):
            evidence = Evidence()
            for _ in range(10):
                mine, theirs = ([{"v": 10_000 * (dice.random() < each)} for _ in range(90)] for each in (skill, 0.70))
                evidence = carry(evidence, {"hk": mine}, theirs)
                if is_enough(evidence.held[0], RULES, 1):
                    crowned[skill] += 1
                    break
    assert crowned[0.70] <= 4
    assert crowned[0.82] >= 160


# -- in a settlement
def race(field, shares, *, history=(), incumbent=TOP, validators=("val-a",), lies=(), rules=None, **changes):
    """A race in which `shares` says which part of the draw each agent solves; `lies`: (validator, agent, outcome)."""
    told = {(validator, agent): outcome for validator, agent, outcome in lies}

    def outcome(agent, problem_id, validator):
        dice = random.Random(f"{len(history)} {agent} {problem_id} {validator}")
        honest = dice.random() < shares[agent.removeprefix("v-")]
        return told.get((validator, agent), honest), 9_000

    base = rules or (controlled if len(validators) > 1 else policy)(problems=60, batch_problems=60)
    crowning = replace(base, promotion=PromotionRules(kind="evidence"))
    return settle(
        inputs(field, outcome, rules=crowning, validators=validators, history=history, incumbent=incumbent, **changes)
    )


def reign(field, shares, races: int, **options) -> list[SettlementRecord]:
    """Races until one crowns somebody, at most so many."""
    done: list[SettlementRecord] = []
    while len(done) < races and not (done and done[-1].is_promotion):
        record = race(field, shares, history=tuple(done), **options)
        done.append(replace(record, race_id=f"race-{len(done) + 1:06}"))
    return done


A, B, TOP_AGENT = candidate("a", block=12), candidate("b", block=11), candidate("top", block=1, is_incumbent=True)


def test_a_better_agent_takes_the_top_after_two_races_at_the_earliest():
    done = reign((A, TOP_AGENT), {"a": 1.0, "top": 0.1}, 4)
    assert [one.is_promotion for one in done] == [False, True]
    assert (done[-1].top_agent_version_id, done[-1].evidence.held[0].races) == ("v-a", 2)
    now = replace(policy(), promotion=PromotionRules(kind="evidence", evidence_alone=999))  # changed since the race
    desk = Desk(None, None, now, SimpleNamespace(race_episodes=Counter(), once=lambda *_: {}))
    own = desk._race(RaceView(1, "race-000001", None, done[0], None, "settled", None), "v-a", 0, 0)
    assert own.stood.evidence_needed == needed(PromotionRules(kind="evidence"), 1) < 999 and own.stood.evidence > 1
    assert own.stood.wins_needed == 0 and own.against == "v-top"


def test_a_lead_by_code_is_weighed_as_the_race_score_weighs_it():
    rules = replace(policy(lambda_e4=3_000), promotion=PromotionRules(kind="evidence"))
    solved, count = lambda agent, *_: (agent == "v-a", 9_000), rules.race.problems
    given = inputs((A, TOP_AGENT), solved, rules=rules, validators=("val-a",), incumbent=TOP)
    by_code = tuple(replace(row, record=replace(row.record, is_agentic=False)) for row in given.evaluations)
    (held,) = settle(replace(given, evaluations=by_code)).evidence.held
    assert (held,) == carry(Evidence(), {"hk-a": [{"val-a": 7_000}] * count}, [{"val-a": 0}] * count).held


def test_evidence_begins_anew_when_the_top_changes_and_outlives_a_new_version_of_the_same_hotkey():
    done = reign((A, TOP_AGENT), {"a": 1.0, "top": 0.1}, 4)
    after = race(
        (A, TOP_AGENT), {"a": 1.0, "top": 1.0}, history=tuple(done), incumbent=replace(TOP, agent_version_id="v-a")
    )
    assert [one.races for one in after.evidence.held] == [1]
    newer = replace(A, subject=replace(A.subject, agent_version_id="v-newer"))
    again = race((newer, TOP_AGENT), {"newer": 1.0, "top": 0.1}, history=tuple(done[:1]))
    assert (again.top_agent_version_id, again.is_promotion) == ("v-newer", True)


def test_of_several_the_highest_evidence_then_the_earlier_commitment_is_crowned():
    best = reign((A, B, TOP_AGENT), {"a": 1.0, "b": 0.9, "top": 0.1}, 3)
    assert best[-1].top_agent_version_id == "v-a"
    equal = reign((A, B, TOP_AGENT), {"a": 1.0, "b": 1.0, "top": 0.1}, 3)
    assert equal[-1].top_agent_version_id == "v-b"


def test_copies_of_the_top_hold_up_nobody():
    copies = tuple(candidate(f"copy{number}") for number in range(6))
    shares = {f"copy{number}": 0.5 for number in range(6)} | {"a": 0.9, "top": 0.5}
    alone, beside = (reign((A, TOP_AGENT, *more), shares, 6) for more in ((), copies))
    assert beside[-1].top_agent_version_id == alone[-1].top_agent_version_id == "v-a"
    assert len(beside) == len(alone)


def test_an_empty_seat_is_the_control_agents_and_nobody_is_crowned_for_being_the_first():
    """The control agent solves everything here."""
    assert reign((A, B), {"a": 0.9, "b": 0.2}, 3, incumbent=None)[-1].top_agent_version_id == ""
    gone = reign((A,), {"a": 0.9}, 3)
    assert {one.top_agent_version_id for one in gone} == {"v-top"}, "nor for a top agent that does not race"


def test_one_lying_validator_of_three_crowns_nobody():
    lies = (("val-a", "v-a", True), ("val-a", "v-top", False))
    done = reign((A, TOP_AGENT), {"a": 0.5, "top": 0.5}, 6, validators=VALS, lies=lies)
    assert not any(one.is_promotion for one in done)
    (held,) = done[-1].evidence.held
    assert held_millionths(held, 2) > 200 * UNIT, "the lie itself would have done"
    assert held_millionths(held, 3) < 200 * UNIT


def test_three_honest_validators_crown_the_better_agent():
    done = reign((A, TOP_AGENT), {"a": 0.9, "top": 0.4}, 6, validators=VALS)
    assert done[-1].top_agent_version_id == "v-a"
