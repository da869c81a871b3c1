"""Who may see what when: the whole matrix, and what holds for every row of it."""

from __future__ import annotations

import itertools
from typing import get_args

from arena.records.model import Context, ReleasedProblem
from arena.visibility.rule import MOMENTS, VIEWERS, Thing, may_see, standing_of
from problems.model import POOLS

THINGS: tuple[Thing, ...] = get_args(Thing)

# For each thing and viewer the moments open, racing, settled, published. S seen; p seen if its pool was asked
# for by name; w seen of a promoted winner and never of another; . not yet.
MATRIX = """
               public  owner
gate_verdict   SSSS    SSSS
score          ..SS    ..SS
settlement     ..SS    ..SS
problem        ..pp    ..pp
outcome        ..pp    ..pp
trace          ...p    ..pp
verdict        ...p    ..pp
source         ...w    SSSS
gate_finding   ...w    SSSS
"""
ROWS = [line.split() for line in MATRIX.splitlines()[2:]]
CELLS = [
    (viewer, row[0], moment, answer)
    for row in ROWS
    for viewer, answers in zip(VIEWERS, row[1:], strict=True)
    for moment, answer in zip(MOMENTS, answers, strict=True)
]
SUBSETS = [pools for size in range(len(POOLS) + 1) for pools in itertools.combinations(POOLS, size)]


def test_every_cell_of_the_matrix_holds():
    assert [row[0] for row in ROWS] == list(THINGS)
    abouts = itertools.product((False, True), (None, *POOLS), SUBSETS)
    for (viewer, thing, moment, answer), (is_winner, pool, pools) in itertools.product(CELLS, abouts):
        found = may_see(viewer, thing, moment, is_winner=is_winner, pool=pool, pools=pools)
        is_seen = {"S": True, "p": pool in pools, "w": is_winner, ".": False}[answer]
        assert found.is_seen == is_seen, (viewer, thing, moment, is_winner, pool, pools)
        assert bool(found.reason) == (not is_seen)
        if answer == ".":
            later = found.opens not in MOMENTS or MOMENTS.index(found.opens) > MOMENTS.index(moment)
            assert later, found


def test_a_record_stands_where_its_races_release_puts_it():
    released = {"r1": {"p1": ReleasedProblem(problem_id="p1", pool="eval", cluster_id="c")}}

    def about(stage, race_id, problem_id, embargoed=()):
        return standing_of(Context(stage=stage, race_id=race_id, problem_id=problem_id), released, embargoed)

    assert about("race", "r1", "p1") == ("published", "eval")
    assert about("race", "r1", "p1", {"r1"}) == ("settled", "eval")
    assert about("race", "r1", "p2") == ("published", None)
    assert about("race", "r2", "p1") == ("racing", None)
    assert about("qualifying", "r2", "p1") == ("published", "never_touch")
    assert about("qualifying", "r1", "p1", {"r1"}) == ("published", "never_touch")
