"""The one release rule, as a matrix: who asks, for what, when, and out of which pool."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from msgspec.structs import replace

from arena.bank.batches.release import Audience, BatchState, Matter, reason_withheld, settled_state, standing_of
from arena.records.model import Context, RaceInputs, ReleasedProblem
from problems.model import POOLS
from tests.arena.log_stand import settlement

STATES = ("sealed", "drawn", "released")


@pytest.mark.parametrize("audience", ["public", "validators"])
@pytest.mark.parametrize("matter", ["counts", "release"])
@pytest.mark.parametrize("state", STATES)
def test_counts_and_release_records_are_always_public(audience, matter, state):
    assert reason_withheld(matter, audience=audience, state=state) == ""


@pytest.mark.parametrize(("state", "pool", "asked"), list(itertools.product(STATES, (None, *POOLS), POOLS)))
def test_a_problem_reaches_the_public_when_it_is_released_and_its_pool_was_asked_for(state, pool, asked):
    reason = reason_withheld("problem", audience="public", state=state, pool=pool, pools=(asked,))
    assert reason == ("unreleased" if state != "released" else "" if pool == asked else "pool")


def test_a_problem_without_a_pool_reaches_the_public_whatever_was_asked_for_never():
    assert reason_withheld("problem", audience="public", state="released", pool=None, pools=POOLS) == "pool"


@pytest.mark.parametrize(("state", "pool"), list(itertools.product(STATES, (None, *POOLS))))
def test_validators_see_problems_from_the_draw_on_whatever_their_pool(state, pool):
    reason = reason_withheld("problem", audience="validators", state=state, pool=pool)
    assert reason == ("unreleased" if state == "sealed" else "")


@pytest.mark.parametrize("state", STATES)
def test_a_settlement_names_drawn_problems_and_waits_for_their_release_if_there_are_any(state):
    reason = reason_withheld("settlement", audience="public", state=state)
    assert reason == ("unreleased" if state == "drawn" else "")


# The release rule (docs/architecture.md#problems-and-pools): who asks, for what, in which batch state, which pools.
# . goes out, u waits for the release, p needs its pool asked for by name. The settlement of a sealed batch is that of a
# race which was cancelled before its draw: no release will come.
MATRIX = """
                          sealed drawn released
public     counts           .     .     .
public     release          .     .     .
public     settlement       .     u     .
public     problem          u     u     p
validators counts           .     .     .
validators release          .     .     .
validators settlement       .     .     .
validators problem          u     .     .
"""
ANSWERS = {".": "", "u": "unreleased", "p": "pool"}
ROWS = [line.split() for line in MATRIX.splitlines()[2:]]
SUBSETS = [pools for size in range(len(POOLS) + 1) for pools in itertools.combinations(POOLS, size)]


@pytest.mark.parametrize(("audience", "matter", "answers"), [(row[0], row[1], row[2:]) for row in ROWS])
def test_the_whole_matrix_holds_for_every_pool_and_every_choice_of_pools(audience, matter, answers):
    for state, answer in zip(STATES, answers, strict=True):
        for pool, asked in itertools.product((None, *POOLS), SUBSETS):
            expected = "" if answer == "p" and pool in asked else ANSWERS[answer]
            found = reason_withheld(matter, audience=audience, state=state, pool=pool, pools=asked)
            assert found == expected, (state, pool, asked)


def test_the_matrix_names_every_audience_and_every_matter_once():
    named = [(audience, matter) for audience, matter, *_ in ROWS]
    assert sorted(named) == sorted(itertools.product(get_args(Audience), get_args(Matter)))
    assert get_args(BatchState) == STATES


def test_a_record_stands_where_its_races_release_puts_it():
    released = {"r1": {"p1": ReleasedProblem(problem_id="p1", pool="eval", cluster_id="c")}}

    def about(stage, race_id, problem_id):
        return standing_of(Context(stage=stage, race_id=race_id, problem_id=problem_id), released)

    assert about("race", "r1", "p1") == ("released", "eval")
    assert about("race", "r1", "p2") == ("released", None)
    assert about("race", "r2", "p1") == ("drawn", None)
    assert about("qualifying", "r2", "p1") == ("released", "never_touch")
    assert about("qualifying", "r1", "p1") == ("released", "never_touch")


INPUTS = RaceInputs(
    policy="{}",
    problem_ids=("p1", "p2"),
    closes_ms=0,
    field=(),
    validators=(),
    neurons=(),
    incumbent=None,
    history=(),
    eliminated=(),
    logs=(),
    beacon_network="",
    beacon_signature="",
    undrawn_why="the beacon did not come",
)


@pytest.mark.parametrize(
    ("change", "unreleased"),
    [
        ({"state": "cancelled", "drawn": ()}, "sealed"),
        ({"state": "cancelled", "drawn": (), "inputs": INPUTS}, "sealed"),
        ({"state": "cancelled", "drawn": (), "inputs": replace(INPUTS, beacon_signature="ab")}, "drawn"),
        ({"state": "cancelled", "drawn": ("p1",)}, "drawn"),
        ({"state": "settled", "drawn": ("p1",)}, "drawn"),
    ],
)
def test_a_settlement_says_itself_whether_its_batch_was_drawn_from(change, unreleased):
    record = replace(settlement("r1"), **change)
    assert settled_state(record, is_released=False) == unreleased
    assert settled_state(record, is_released=True) == "released"
