"""Who races, on which problems, before which validators, and what a race takes over: recomputable, never early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.policies import AGENTIC, DEMO, PAPER, SN15_2026_08
from arena.race.admission import lone_race_refusal, seat, select_candidates
from arena.race.decider import race_items
from arena.race.draw import QualifyingResult, SuiteEnd, draw_problems, race_seed, suite_ends, work_order
from arena.race.machine import RaceState, open_race, succession
from arena.race.settle import settle
from arena.race.weights import UNIT
from arena.records.model import Evidence, HeldEvidence, Origin, PastSettlement, Top
from tests.arena import race_stand as stand
from tests.arena.race_stand import BEACON, RACE, candidate, controlled, drawn_race

SEED = race_seed(RACE, "b" * 64, BEACON)
SUITE = ("s1", "s2", "s3", "s4")


def suite_end(*scores: int | None, withdrawn_max_e4: int = 5_000, worker_ms: int = 0) -> SuiteEnd | None:
    """How a suite with these results ends at one validator; the bar is a mean of .2."""
    race = replace(PAPER.race, cancel_void_e4=withdrawn_max_e4)
    rules = replace(PAPER, race=race, qualifying=replace(PAPER.qualifying, worker_ms=worker_ms))
    rows = [
        QualifyingResult(validator="a", problem_id=problem_id, score_e4=score)
        for problem_id, score in zip((*SUITE, *SUITE, "of another suite"), scores, strict=False)
    ]
    return suite_ends(rows, SUITE, rules).get("a")


# -- qualifying
@pytest.mark.parametrize(
    ("scores", "withdrawn_max_e4", "expected"),
    [
        ((10_000, 0, 0, 1), 5_000, 2_500),  # rounded down
        ((0, 0, 0), 5_000, None),  # an owed result is no zero
        ((1, 1, 1, 1, 9, 9, 9, 9, 9), 5_000, 1),  # the first results count, and those of the suite
        ((None, 10_000, 0, 0), 2_500, 3_333),
        # nobody passes or fails on what is left of a suite that was withdrawn too far
        ((None, 10_000, 10_000, 10_000), 2_499, None),
        ((None, None, None, 10_000), 5_000, None),
        ((None, None, None, None), 10_000, None),
    ],
)
def test_a_suite_comes_to_the_mean_of_what_is_left_of_it_once_all_of_it_is_there(scores, withdrawn_max_e4, expected):
    end = suite_end(*scores, withdrawn_max_e4=withdrawn_max_e4)
    assert end == (None if expected is None else SuiteEnd(expected >= 2_000, expected))


@pytest.mark.parametrize(
    ("scores", "is_passed"),
    [
        ((8_000,), True),  # whatever the rest scores
        ((7_999,), None),
        ((0, 0, 0), None),
        ((None, 5_999), None),
        ((None, 6_000), True),  # of three that are left
        ((7_999, 0, 0, 0), False),
    ],
)
def test_a_bounded_suite_ends_once_its_end_is_certain(scores, is_passed):
    end = suite_end(*scores, worker_ms=1)
    assert (None if end is None else end.is_passed) == is_passed
    assert end is None or (end.mean_e4 is None) == (len(scores) < len(SUITE))


@given(st.lists(st.integers(0, 10_000) | st.none(), min_size=4, max_size=4), st.integers(0, 3))
def test_no_result_that_is_still_to_come_changes_an_early_end(scores, known):
    early, whole = suite_end(*scores[:known], worker_ms=1), suite_end(*scores)
    assert early is None or whole is None or early.is_passed == whole.is_passed


# -- candidates
def test_one_version_per_hotkey_races_the_best_qualified():
    weak = candidate("x", score_e4=3_000)
    strong = replace(weak, subject=replace(weak.subject, agent_version_id="v-x2"), qualifying_score_e4=4_000)
    assert select_candidates([weak, strong, candidate("y")], 50) == (strong, candidate("y"))


def test_the_newest_version_of_a_hotkey_races_where_no_score_is_stated():
    first = candidate("x", block=10, score_e4=None)
    newest = replace(first, subject=replace(first.subject, agent_version_id="v-x2", commitment_block=11))
    assert select_candidates([newest, first], 50) == select_candidates([first, newest], 50) == (newest,)


def held(**evidence: tuple[int, int]) -> Evidence:
    """By hotkey: evidence, and races in this reign."""
    return Evidence(
        held=tuple(
            HeldEvidence(miner_hotkey=f"hk-{name}", races=races, millionths=((whole * UNIT,) * 4,))
            for name, (whole, races) in evidence.items()
        )
    )


@pytest.mark.parametrize(
    ("names", "before", "seated"),
    [
        ("abcdef", held(), "abcd"),  # by commitment
        ("abcdef", held(e=(3, 1), f=(2, 1), d=(1, 5)), "efab"),
        ("abcdef", held(d=(2, 1), e=(3, 1), f=(4, 1)), "fea" + "b"),  # half of the seats
        ("abcdef", held(a=(1, 1), b=(0, 3), c=(1, 2)), "defa"),  # by fewest races
        ("aAbcd", held(), "abcd"),  # one of a class before another has two
        ("aAbcd", held(a=(9, 1)), "abcd"),
        ("aAbB", held(), "aAbB"),
        ("Tabcd", held(), "abcd"),  # the top agent's class has its seat
        ("aAbcd", held(A=(9, 1)), "Abcd"),
        ("aAbcd", held(a=(4, 1), A=(3, 1)), "abcd"),
    ],
)
def test_half_of_the_seats_go_by_evidence_and_half_by_fewest_races_beside_the_top_agents(names, before, seated):
    field = [
        candidate(name, block=block, origin=Origin(owner=name, head=f"v-{name.lower()}", order=0))
        for block, name in enumerate(names)
    ]
    top = candidate("top", is_incumbent=True, block=99, origin=Origin(owner="", head="v-t", order=0))
    wanted = [*field, top]
    found = seat(wanted, before, 1, 4)
    assert {one.subject.miner_hotkey for one in found} == {"hk-top", *(f"hk-{name}" for name in seated)}
    assert seat(wanted, before, 1, 0) == tuple(wanted) and seat(wanted[::-1], before, 1, 4) == found[::-1]


def test_a_late_commitment_waits_the_incumbent_races_and_the_eliminated_do_not():
    assert select_candidates([candidate("x", block=51)], 50) == ()
    assert select_candidates([candidate("x", block=50)], 50) == (candidate("x", block=50),)
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
    ids, other = [f"p{n}" for n in range(120)], {"round": 78, "signature": "ab" * 47 + "ac", "network": "other"}
    seeds = {SEED, race_seed("race-000002", "b" * 64, BEACON), race_seed(RACE, "c" * 64, BEACON)}
    seeds |= {race_seed(RACE, "b" * 64, replace(BEACON, **{name: value})) for name, value in other.items()}
    assert len({draw_problems(seed, ids, 90) for seed in seeds}) == len(seeds) == 6


def test_seed_and_draw_are_pinned_for_ever():
    assert SEED == "78501568ab2894e937fbd572200404c5fd84becdc5fa89ed0aef20dc33303ee1"
    assert draw_problems("00" * 32, ["a", "b", "c", "d"], 4) == ("d", "a", "c", "b")


@pytest.mark.parametrize(("ids", "count"), [(["a", "a"], 1), (["a"], 2)])
def test_a_batch_that_cannot_serve_the_draw_is_refused(ids, count):
    with pytest.raises(ValueError):
        draw_problems(SEED, ids, count)


# -- assignment
VALIDATORS = [f"val-{n}" for n in range(7)]


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
        assert sorted(assigned) == sorted(work_order(SEED, "v-x", problem_id, permits)[:3])
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
    cancelled = replace(first, race_id="race-000003", state="cancelled", standings=(), is_promotion=False)
    after = succession([ended(2, second, is_adopted=True, history=(first,)), ended(3, cancelled)])
    assert (after.top, after.eliminated) == (late.top, late.eliminated)  # it changes nobody's place
