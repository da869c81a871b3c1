"""Settlement: medians, voids, ranking, promotion, and equal bytes from equal inputs in any order."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from arena.policies import SN15_2026_08
from arena.policy import PromotionRules
from arena.race import scores as scoring
from arena.race.admission import select_candidates
from arena.race.machine import vector_at
from arena.race.settle import settle
from arena.race.weights import UNIT, beats_margin, no_places, weighted_scores
from arena.records.model import Candidate, Evidence, HeldEvidence, Origin, SettlementRecord, Top
from foundation.canonical import canonical_bytes
from tests.arena import race_stand as stand
from tests.arena.race_stand import LEVEL, batch, candidate, changed, controlled, drawn_of, inputs, policy, solves
from tests.arena.test_race_field import ended

ABC = (candidate("a"), candidate("b"), candidate("c"))
SCORES = {"a": 8, "b": 5, "c": 2}
VALS = ("val-a", "val-b", "val-c")
DRAWN = drawn_of(policy(), batch())


def ids(record: SettlementRecord) -> list[str]:
    return [row.agent_version_id for row in record.standings]


# -- the plain race
def shuffled(made: scoring.SettlementInputs, seed: int) -> scoring.SettlementInputs:
    chance = random.Random(seed)

    def mixed(rows):
        return tuple(chance.sample(rows, len(rows)))

    names = ("evaluations", "verdicts", "field", "validators", "problem_ids", "neurons")
    return changed(made, **{name: mixed(getattr(made, name, None) or getattr(made.stated, name)) for name in names})


@given(st.integers(0, 2**32))
def test_equal_inputs_give_equal_bytes_in_any_order(seed):
    made = inputs(ABC, noisy(7), rules=controlled(), validators=VALS)
    assert canonical_bytes(settle(shuffled(made, seed))) == canonical_bytes(settle(made))


def noisy(seed: int):
    def outcomes(agent, problem_id, validator):
        chance = random.Random(f"{seed} {agent} {problem_id} {validator}")
        return chance.random() < 0.6, chance.choice([1_000, 3_000, 5_000, 7_000, 9_000])

    return outcomes


# -- several validators


@pytest.mark.parametrize("liar", VALS)
def test_one_lying_validator_of_three_changes_no_score(liar):
    honest = solves(SCORES)

    def outcomes(agent, problem_id, validator):
        is_success, quality_e4 = honest(agent, problem_id, validator)
        return (not is_success, quality_e4) if validator == liar else (is_success, quality_e4)

    made = inputs(ABC, outcomes, rules=controlled(), validators=VALS)
    record = settle(made)
    assert [row.race_score_e4 for row in record.standings] == [8_000, 5_000, 2_000]
    pairs, apart = len(ABC) * len(record.drawn), {liar: 2}  # a liar differs from both others, they from the liar alone
    for validator in VALS:
        assert scoring.compared_with_others(made, validator) == (2 * pairs, apart.get(validator, 1) * pairs)
    assert scoring.compared_with_others(made, "val-of-nobody") == (0, 0)


def test_results_beyond_the_assigned_count_only_where_an_assigned_validator_gave_none():
    rules = controlled(validators_per_problem=1, results_required=1)

    def outcomes(agent, problem_id, validator):
        return validator == "val-a", 9_000

    everybody = settle(inputs(ABC, outcomes, rules=rules, validators=VALS))
    alone = settle(changed(inputs(ABC, outcomes, rules=rules, validators=("val-a",)), validators=VALS))
    assert 0 < everybody.standings[0].race_score_e4 < 10_000
    assert [row.race_score_e4 for row in alone.standings] == [10_000] * 3


# -- which records count


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: replace(r, context=replace(r.context, race_id="race-000009")),
        lambda r: replace(r, context=replace(r.context, stage="qualifying")),
        lambda r: replace(r, context=replace(r.context, batch_sha256="0" * 64)),
        lambda r: replace(r, context=replace(r.context, problem_id="p999")),
        lambda r: replace(r, conditions=replace(r.conditions, policy_sha256="0" * 64)),
        lambda r: replace(r, subject=replace(r.subject, agent_version_id="v-stranger")),
    ],
    ids=["race", "stage", "batch", "problem", "policy", "agent"],
)
def test_a_record_of_something_else_is_left_out(spoil):
    made = inputs(ABC, solves(SCORES))
    spoiled = tuple(replace(row, record=spoil(row.record)) for row in made.evaluations)
    assert settle(replace(made, evaluations=spoiled)).reason == "no validator gave a result"


def test_a_jail_that_may_not_race_counts_only_where_the_policy_says_so():
    strict = replace(policy(), guest=replace(policy().guest, is_racing_level_required=True))
    for rules, state in ((policy(), "settled"), (strict, "cancelled")):
        made, level = inputs(ABC, solves(SCORES), rules=rules), replace(LEVEL, may_race=False)
        records = [
            replace(row.record, conditions=replace(row.record.conditions, sandbox=level)) for row in made.evaluations
        ]
        weak = tuple(replace(row, record=record) for row, record in zip(made.evaluations, records, strict=True))
        assert settle(replace(made, evaluations=weak)).state == state


# -- missing and void


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"beacon": None}, "the beacon did not come"),
        ({"field": ()}, "no agent raced"),
        ({"validators": ()}, "no validator holds a permit"),
        ({"evaluations": ()}, "no validator"),
    ],
)
def test_a_race_that_could_not_run_is_cancelled_and_keeps_the_top(changes, reason):
    top = Top(agent_version_id="v-a", miner_hotkey="hk-a", promoted_ms=0)
    record = settle(changed(inputs(ABC, solves(SCORES), incumbent=top), **changes))
    assert record.state == "cancelled" and record.reason.startswith(reason)
    assert (record.top_agent_version_id, record.is_promotion, record.uids) == ("v-a", False, ())


# -- ranking
def agent_score(name: str, *scores: int, block: int = 10, agentic: int = 10_000) -> scoring.AgentScore:
    problems = tuple(
        scoring.ProblemScore(
            problem_id=f"p{n}",
            state="scored",
            score_e4=score,
            is_success=score > 0,
            is_agentic=n * 10_000 < agentic * len(scores),
        )
        for n, score in enumerate(scores)
    )
    return scoring.AgentScore(candidate=candidate(name, block=block), problems=problems)


def test_ranking_is_exact_and_ties_go_to_the_earlier_commitment_then_to_the_smaller_id():
    rows = [agent_score("c", 1), agent_score("b", 1, block=5), agent_score("a", 1), agent_score("d", 2, block=90)]
    for order in itertools.permutations(rows):
        assert [a.candidate.subject.agent_version_id for a in scoring.rank(order, 0)] == ["v-d", "v-b", "v-a", "v-c"]
    ahead, behind = agent_score("z", 5_000, 5_001, 0), agent_score("a", 5_000, 5_000, 0)
    assert scoring.race_score_e4(ahead, 0) == scoring.race_score_e4(behind, 0)  # as they are published
    assert scoring.rank([behind, ahead], 0)[0] is ahead


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=90), st.integers(0, 10_000))
def test_scores_stay_between_zero_and_one_and_lambda_never_adds(scores, lambda_e4):
    agent = agent_score("a", *scores, agentic=5_000)
    assert 0 <= scoring.race_score_e4(agent, lambda_e4) <= scoring.race_score_e4(agent, 0) <= 10_000
    assert scoring.exact_score(agent, lambda_e4) >= 0


@pytest.mark.parametrize(("agentic", "expected"), [(0, 1_750), (7_500, 1_750), (10_000, 2_500)])
def test_an_agentic_episode_that_failed_lifts_no_problem_that_code_solved(agentic, expected):
    agent = agent_score("a", 0, 0, 0, 10_000, agentic=agentic)
    assert scoring.race_score_e4(agent, 3_000) == expected
    assert scoring.bootstrap_interval(agent, 3_000, [[0, 1, 2, 3]] * 40) == (expected, expected)


# -- promotion: the decaying margin and SN15's window; and what follows for the top and its weights


DAY_MS = 86_400_000


# -- promotion
MARGIN = PromotionRules()


@pytest.mark.parametrize(
    ("challenger", "days", "is_promoted"),
    [
        (5_149, 0, False),
        (5_150, 0, True),
        (5_075, 3.5, True),
        (5_074, 3.5, False),
        (5_001, 7, True),
        (5_000, 30, False),
    ],
)
def test_a_challenger_needs_the_margin_that_is_left(challenger, days, is_promoted):
    assert beats_margin(challenger, 5_000, MARGIN, round(days * DAY_MS)) is is_promoted


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 30), st.integers(0, 30))
def test_waiting_never_makes_promotion_harder_and_a_lower_score_never_promotes(challenger, top, early, later):
    early, later = sorted((early, later))
    if beats_margin(challenger, top, MARGIN, early * DAY_MS):
        assert challenger > top
        assert beats_margin(challenger, top, MARGIN, later * DAY_MS)


def top_at(days: float) -> Top:
    return Top(agent_version_id="v-b", miner_hotkey="hk-b", promoted_ms=1_000_000 - round(days * DAY_MS))


def test_the_incumbent_keeps_the_top_share_within_the_margin_and_loses_it_later():
    def outcomes(agent, problem_id, _):
        place = DRAWN.index(problem_id)
        return True, 9_000 if agent == "v-a" or place > 0 else 7_000  # v-b: 1 x .9125, 9 x 1: 0.88 % behind

    early = settle(inputs(ABC[:2], outcomes, incumbent=top_at(0)))
    late = settle(inputs(ABC[:2], outcomes, incumbent=top_at(6)))
    assert ids(early) == ids(late) == ["v-a", "v-b"]
    assert (early.top_agent_version_id, early.is_promotion) == ("v-b", False)
    assert (late.top_agent_version_id, late.is_promotion) == ("v-a", True)
    assert early.uids != late.uids


def test_an_incumbent_that_does_not_race_is_succeeded_by_the_best():
    record = settle(inputs((ABC[0], ABC[2]), solves(SCORES), incumbent=top_at(0)))
    assert (record.top_agent_version_id, record.is_promotion) == ("v-a", True)


# -- window (sn15)
def test_a_debut_divides_its_lead_by_the_window():
    scores = {"v-new": 9_000, "v-old": 6_000}
    past = settle(inputs((candidate("old"), candidate("x")), solves({"old": 9, "x": 3})))
    assert weighted_scores(scores, [past, past], 3) == {"v-new": 9_000, "v-old": 9_000 - 1_000}
    assert weighted_scores({"v-new": 9_000, "v-old": 3_000}, [], 3) == {"v-new": 9_000, "v-old": 7_000}


def test_the_window_policy_crowns_by_weighted_and_eliminates_by_raw_score():
    rules = replace(policy(), promotion=SN15_2026_08.promotion)
    field = tuple(candidate(name) for name in "abcdefghij")
    shares = {name: 10 - place for place, name in enumerate("abcdefghij")}
    record = settle(inputs(field, solves(shares), rules=rules))
    gone = [row.agent_version_id for row in record.standings if row.is_eliminated]
    assert gone == ["v-e", "v-f", "v-g", "v-h", "v-i", "v-j"]
    assert [row.race_score_e4 for row in record.standings[:2]] == [10_000, 9_000]
    assert [row.crown_score_e4 for row in record.standings[:2]] == [8_666, 8_333]  # anchor 8,000 + a third of the lead


# -- one seat, one place and one share for each owner and each class of likeness, and none below the control agent


def of(name: str, owner: str = "", head: str | None = None, *, order: int = 0, **more: int) -> Candidate:
    """An agent of an owner in a class; both are its own where they are not given."""
    origin = Origin(owner=owner or f"ck-{name}", head=f"v-{name}" if head is None else head, order=order)
    return stand.candidate(name, origin=origin, **more)


def by_classes(rules=None):
    base = rules or policy()
    return replace(base, gate=replace(base.gate, class_e4=6_000))


def race(field, shares, control=1, top="a", **more) -> SettlementRecord:
    """A race with this agent at the top, in which the control agent solves so many of ten problems."""
    incumbent = Top(agent_version_id=f"v-{top}", miner_hotkey=f"hk-{top}", promoted_ms=1_000_000)
    given = {"incumbent": incumbent, "rules": by_classes(), "control_solves": control} | more
    return settle(inputs(field, solves(shares), **given))


EVIDENCE = replace(by_classes(), promotion=PromotionRules(kind="evidence", evidence_alone=200))
NAMES = "abcdefghij"
FALLING = {name: 10 - place for place, name in enumerate(NAMES)}


@pytest.mark.parametrize(
    ("field", "paid", "unpaid"),
    [
        (
            [of(name) for name in NAMES],
            "abcdefghi",
            {"j": "control"},
        ),  # the last one is no better than the control agent
        ([of(name, "one") for name in NAMES], "a", dict.fromkeys("bcdefghij", "owner")),
        (
            [of(name, head="v-a") for name in NAMES],
            "a",
            dict.fromkeys("bcdefghij", "class"),
        ),  # who builds on the winner
        (
            [of(name, head="" if name in "bcd" else None) for name in NAMES],
            "abefghi",
            {"c": "template", "d": "template", "j": "control"},
        ),
        (
            [of("a"), of("b", "one"), of("c", "one", "v-x"), of("d", "two", "v-x"), of("e", "two")],
            "abd",
            dict.fromkeys("ce", "owner"),
        ),
    ],
)
def test_of_each_owner_and_each_class_the_best_is_paid(field, paid, unpaid):
    record = race(field, FALLING)
    assert record.places == tuple(f"hk-{name}" for name in paid)
    assert {hotkey: said.why for hotkey, said in no_places(record).items()} == {f"hk-{n}": w for n, w in unpaid.items()}
    assert {said.holder for said in no_places(record).values()} <= {"", *(f"v-{name}" for name in paid)}
    assert [row.miner_hotkey for row in record.standings] == [each.subject.miner_hotkey for each in field]
    assert len(record.uids) == 1 + max(1, len(paid) // 2), "burn, top, and the rest of the upper half"
    vector = vector_at(ended(1, record), stand.metagraph([each.subject.miner_hotkey for each in field]))
    assert (vector.uids, vector.weights) == (record.uids, record.weights_u16)


def test_the_top_keeps_its_place_whatever_it_scores_and_nobody_below_the_control_agent_has_one():
    field, shares = [of("a"), of("b", head="v-a"), of("c", "ck-a"), of("d")], {"a": 2, "b": 9, "c": 8, "d": 7}
    assert race(field, shares, control=7, rules=EVIDENCE).places == ("hk-a",)
    assert race(field, shares, control=6, rules=EVIDENCE).places == ("hk-d", "hk-a")
    assert race(field, shares, rules=policy()).places is UNSET


def test_who_builds_on_the_winner_takes_the_crown_by_evidence():
    held = HeldEvidence(miner_hotkey="hk-b", races=1, millionths=((199 * UNIT,) * 4,))
    field = [of("a", is_incumbent=True), of("b", head="v-a")]
    past = race(field, FALLING)
    past = replace(past, evidence=Evidence(held=(held,)), race_id="race-000000", is_promotion=False)
    record = race(field, {"a": 2, "b": 9}, rules=EVIDENCE, history=(past,))
    assert (record.top_agent_version_id, record.is_promotion, record.places) == ("v-b", True, ("hk-b",))


def test_ten_hotkeys_of_one_coldkey_have_one_seat_and_ties_follow_the_extrinsics():
    ten = [of(name, "one", score_e4=1_000 + place) for place, name in enumerate(NAMES)]
    assert select_candidates([*ten, of("x")], 50) == (ten[-1], of("x"))
    top = replace(ten[0], is_incumbent=True)
    assert select_candidates([top, *ten[1:]], 50) == (top,)
    first, second = of("z", "one", order=1), of("a", "one", order=2)
    assert select_candidates([second, first], 50) == (first,)
    tie = race([of("z", order=1), of("a", order=2)], {"z": 5, "a": 5}, top="nobody")
    assert [row.agent_version_id for row in tie.standings] == ["v-z", "v-a"]


def test_what_a_validator_found_of_agents_of_its_own_coldkey_counts_for_nothing():
    """It says that they solve everything and that others' fail; two honest ones know better."""

    def outcome(agent, problem_id, validator):
        return (agent == "v-own") if validator == "val-a" else (agent == "v-other"), 9_000

    rules = by_classes(controlled(results_required=1))
    for validators, scores in ((VALS, {"own": 0, "other": 10_000}), (VALS[:1], {"own": 0, "other": 0})):
        made = inputs([of("own", "cold"), of("other")], outcome, rules=rules, validators=validators)
        neurons = (replace(each, coldkey="cold" if each.hotkey == "val-a" else "x") for each in made.stated.neurons)
        record = settle(changed(made, neurons=tuple(neurons)))
        assert {row.miner_hotkey: row.race_score_e4 for row in record.standings} == {
            f"hk-{name}": score for name, score in scores.items()
        }
