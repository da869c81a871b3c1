"""Who races, on which problems, before which validators, and what a race takes over: recomputable, never early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.policies import AGENTIC, DEMO, PAPER, SN15_2026_08
from arena.policy import Policy, QualifyingRules
from arena.race.admission import lone_race_refusal, select_candidates
from arena.race.decider import race_items
from arena.race.draw import QualifyingResult, assign, draw_problems, qualify, race_seed
from arena.race.machine import RaceState, open_race, succession
from arena.race.settle import settle
from arena.records.model import PastSettlement, Top
from tests.arena import race_stand as stand
from tests.arena.race_stand import BEACON, RACE, candidate, controlled, drawn_race, policy

SEED = race_seed(RACE, "b" * 64, BEACON)
SUITE = ("s1", "s2", "s3", "s4")


def qualifying_under(*, withdrawn_max_e4: int = 5_000, **rules: int) -> Policy:
    return replace(
        PAPER, qualifying=QualifyingRules(**rules), race=replace(PAPER.race, cancel_void_e4=withdrawn_max_e4)
    )


ONE_OF_ONE = qualifying_under()
TWO_OF_THREE = qualifying_under(validators_required=2, validators_asked=3, score_min_e4=5_000)


def results(validator: str, *scores: int | None) -> list[QualifyingResult]:
    return [
        QualifyingResult(validator=validator, problem_id=problem_id, score_e4=score)
        for problem_id, score in zip(SUITE, scores, strict=False)
    ]


# -- qualifying
def test_the_bar_is_met_at_exactly_the_threshold():
    rules = qualifying_under(score_min_e4=2_500)
    assert qualify(results("a", 10_000, 0, 0, 0), SUITE, rules).state == "qualified"
    assert qualify(results("a", 9_999, 0, 0, 0), SUITE, rules).state == "unqualified"


def test_an_owed_result_keeps_an_agent_pending_and_is_no_zero():
    found = qualify(results("a", 0, 0, 0), SUITE, ONE_OF_ONE)
    assert (found.state, found.score_e4) == ("pending", None)


@pytest.mark.parametrize(
    ("scores", "withdrawn_max_e4"),
    [
        ((None, 10_000, 10_000, 10_000), 2_499),
        ((None, None, None, 10_000), 5_000),
        ((None, None, None, 0), 5_000),
        ((None, None, None, None), 10_000),
    ],
)
def test_nobody_passes_or_fails_on_what_is_left_of_a_suite_withdrawn_too_far(scores, withdrawn_max_e4):
    found = qualify(results("a", *scores), SUITE, qualifying_under(withdrawn_max_e4=withdrawn_max_e4))
    assert (found.state, found.score_e4, found.finished) == ("pending", None, 0)


@pytest.mark.parametrize(
    ("means", "state"),
    [
        ([], "pending"),
        ([9_000], "pending"),
        ([9_000, 9_000], "qualified"),
        ([0], "pending"),
        ([0, 0], "unqualified"),
        ([0, 9_000], "pending"),
        ([0, 9_000, 9_000], "qualified"),
        ([0, 0, 9_000], "unqualified"),
    ],
)
def test_two_of_controlled_decide(means, state):
    rows = [row for place, mean in enumerate(means) for row in results(f"v{place}", *[mean] * 4)]
    assert qualify(rows, SUITE, TWO_OF_THREE).state == state


# -- candidates
def test_one_version_per_hotkey_races_the_best_qualified():
    weak = candidate("x", score_e4=3_000)
    strong = replace(weak, subject=replace(weak.subject, agent_version_id="v-x2"), qualifying_score_e4=4_000)
    assert select_candidates([weak, strong, candidate("y")], 50) == (strong, candidate("y"))


@pytest.mark.parametrize("block", [51, 52])
def test_a_commitment_after_the_closing_block_waits_for_the_next_race(block):
    assert select_candidates([candidate("x", block=block)], 50) == ()
    assert select_candidates([candidate("x", block=50)], 50) == (candidate("x", block=50),)


def test_the_incumbent_races_and_the_eliminated_do_not():
    top, gone = candidate("t", is_incumbent=True), candidate("g")
    assert select_candidates([top, gone], 50, frozenset({"v-g", "v-t"})) == (top,)


# -- the draw
IDS = st.lists(st.text(min_size=1, max_size=8), min_size=5, max_size=40, unique=True)


@given(IDS, st.randoms())
def test_a_draw_depends_on_the_set_of_problems_and_not_on_its_order(ids, chance):
    shuffled = list(ids)
    chance.shuffle(shuffled)
    drawn = draw_problems(SEED, ids, 5)
    assert drawn == draw_problems(SEED, shuffled, 5)
    assert len(set(drawn)) == 5 and set(drawn) <= set(ids)


def test_every_part_of_the_seed_matters_so_no_draw_is_known_before_the_beacon():
    ids = [f"p{n}" for n in range(120)]
    later = replace(BEACON, round=78)
    signed = replace(BEACON, signature="ab" * 47 + "ac")
    seeds = {
        race_seed(RACE, "b" * 64, BEACON),
        race_seed("race-000002", "b" * 64, BEACON),
        race_seed(RACE, "c" * 64, BEACON),
        race_seed(RACE, "b" * 64, later),
        race_seed(RACE, "b" * 64, signed),
        race_seed(RACE, "b" * 64, replace(BEACON, network="other")),
    }
    assert len(seeds) == 6
    assert len({draw_problems(seed, ids, 90) for seed in seeds}) == 6


def test_seed_and_draw_are_pinned_for_ever():
    assert SEED == "78501568ab2894e937fbd572200404c5fd84becdc5fa89ed0aef20dc33303ee1"
    assert draw_problems("00" * 32, ["a", "b", "c", "d"], 4) == ("d", "a", "c", "b")


@pytest.mark.parametrize(("ids", "count"), [(["a", "a"], 1), (["a"], 2)])
def test_a_batch_that_cannot_serve_the_draw_is_refused(ids, count):
    with pytest.raises(ValueError):
        draw_problems(SEED, ids, count)


# -- assignment
VALIDATORS = [f"val-{n}" for n in range(7)]


# -- work items
def items(names: str, problems: tuple[str, ...] = ("p001", "p000"), validator: str = "val-0", **changes: int):
    field = [candidate(name) for name in names]
    return race_items(drawn_race(field, policy(**changes), problems, VALIDATORS, SEED), validator)


@pytest.mark.parametrize(("validators", "copies"), [(1, 1), (2, 2), (7, 3)])
def test_each_pair_is_an_item_of_the_validators_it_is_assigned_to(validators, copies):
    permits = VALIDATORS[:validators]
    work = drawn_race([candidate("x")], controlled(), ("p001", "p000"), permits, SEED)
    queues = {validator: race_items(work, validator) for validator in permits}
    for problem_id in ("p001", "p000"):
        assigned = [
            validator
            for validator, queue in queues.items()
            if any(item.context.problem_id == problem_id and not item.subject.is_control for item in queue)
        ]
        assert sorted(assigned) == sorted(assign(SEED, "v-x", problem_id, permits, 3).assigned)
        assert len(assigned) == copies


# -- one validator alone
@pytest.mark.parametrize(
    ("rules", "validators", "is_refused"),
    [
        (DEMO, 1, False),
        (DEMO, 40, False),
        (PAPER, 1, False),  # as many results as permits
        (PAPER, 2, True),
        (AGENTIC, 64, True),
        (SN15_2026_08, 1, True),  # two validators qualify an agent, whoever holds a permit
    ],
)
def test_a_policy_that_needs_other_validators_is_told_before_the_start(rules, validators, is_refused):
    refusal = lone_race_refusal(rules, validators)
    assert bool(refusal) == is_refused
    assert refusal is None or rules.name in refusal


RACED = stand.policy()


def ended(number: int, settlement, *, is_adopted: bool = False, history=()) -> RaceState:
    name = f"race-{number:06d}"
    opened = open_race(name, RACED, stand.batch(), number * 1_000, number * 1_000 + 15_000)
    return RaceState(
        race_id=name,
        stage=settlement.state,
        opened=opened,
        settlement=settlement,
        is_adopted=is_adopted,
        adopted_history=history,
    )


FIELD = (stand.candidate("a"), stand.candidate("b"))


def settled(number: int, shares: dict[str, int], incumbent: Top | None = None):
    made = settle(stand.inputs(FIELD, stand.solves(shares), incumbent=incumbent))
    return replace(made, race_id=f"race-{number:06d}")


def test_a_validator_that_adopts_stands_where_the_others_stand():
    first = settled(1, {"a": 8, "b": 2})
    top = Top(agent_version_id="v-a", miner_hotkey="hk-a", promoted_ms=first.inputs.closes_ms)
    second = settled(2, {"a": 8, "b": 2}, top)
    second = replace(
        second,
        inputs=replace(
            second.inputs, eliminated=("v-z",), history=(PastSettlement(race_id="x", settlement_sha256="y"),)
        ),
    )
    late = succession([ended(2, second, is_adopted=True, history=(first,))])
    assert late.top == top and late.eliminated == ("v-z",)
    assert late.history == (first, second)
    assert late.incumbent.subject == FIELD[0].subject and late.incumbent.is_incumbent


def test_a_race_without_a_settlement_in_force_changes_nobodys_place():
    first = settled(1, {"a": 8, "b": 2})
    before = succession([ended(1, first, is_adopted=True)])
    cancelled = replace(first, state="cancelled", standings=(), is_promotion=False, top_agent_version_id="")
    after = succession([ended(1, first, is_adopted=True), ended(2, replace(cancelled, race_id="race-000002"))])
    assert before.top is not None
    assert (after.top, after.eliminated) == (before.top, before.eliminated)
