"""Difficulty: how hard a problem is, measured from the problem and its catalogue, in integers.

`measure_difficulty` is a pure function of a finished problem and an index, so that it says the same of a
synthesised problem, of one worded by a model and of a public one; synthesis draws until the measure is the level asked
for.

Points. Each item: one per constraint (every SKU pair, attribute, service, price bound has to be looked up and
compared), and two per doubling of its namesakes, the titles of the catalogue that hold all title words the query says
(1: the words lead to the answer alone; 16: eight points, since so many listings have to be told apart by their
constraints). The problem: the mean over its items, plus one for each item after the first. Easy is below 4 points,
hard from 7 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from problems.model import Bucket, Problem
from problems.scoring.title_index import TitleIndex
from problems.synthesis.constraints import Appetite, count_constraints
from problems.synthesis.wording import said_names

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")
Mix = Mapping[Level, int]  # weights: {"easy": 1, "hard": 1} is half and half
_MEDIUM_FROM_E4, _HARD_FROM_E4 = 40_000, 70_000


class Difficulty(msgspec.Struct, frozen=True, kw_only=True):
    """The measure of one problem; tuples hold one number per item."""

    items: int
    constraints: tuple[int, ...]
    namesakes: tuple[int, ...]  # titles with all the title words that the query says, the answer's included
    points_e4: int
    level: Level


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What synthesis draws for a level before it measures: items per bucket, constraints per item, namesakes."""

    items: dict[Bucket, tuple[int, int]]
    appetite: Appetite
    namesakes: tuple[int, int]


PUBLIC_AIM = Aim(  # as the public generator draws, whatever level comes out
    items={"product": (1, 1), "shop": (2, 4), "voucher": (1, 4)}, appetite=Appetite(), namesakes=(1, 3)
)
AIMS: dict[Level, Aim] = {
    "easy": Aim(
        items={"product": (1, 1), "shop": (2, 2), "voucher": (1, 2)}, appetite=Appetite(most=3), namesakes=(1, 1)
    ),
    "medium": Aim(
        items={"product": (1, 1), "shop": (2, 3), "voucher": (1, 3)},
        appetite=Appetite(least=2, most=5),
        namesakes=(1, 3),
    ),
    "hard": Aim(
        items={"product": (1, 1), "shop": (3, 4), "voucher": (3, 4)}, appetite=Appetite(least=3), namesakes=(3, 24)
    ),
}


def measure_difficulty(problem: Problem, index: TitleIndex) -> Difficulty:
    """The measure of a problem over the catalogue it is asked of. An answer that is not there counts no namesakes."""
    constraints = tuple(map(count_constraints, problem.rewards))
    namesakes = tuple(index.count_holding(words) for words in said_names(problem))
    points = sum(constraints) + 2 * sum(max(0, count - 1).bit_length() for count in namesakes)
    items = len(problem.rewards)
    points_e4 = 10_000 * points // items + 10_000 * (items - 1)
    return Difficulty(
        items=items,
        constraints=constraints,
        namesakes=namesakes,
        points_e4=points_e4,
        level="easy" if points_e4 < _MEDIUM_FROM_E4 else "medium" if points_e4 < _HARD_FROM_E4 else "hard",
    )


def share_out(count: int, mix: Mix) -> dict[Level, int]:
    """`count` problems by level, in proportion to the weights; what is left over goes to the largest remainders.

    Raises ValueError when no weight is positive, one is negative, or a level is unknown.
    """
    total = sum(mix.values())
    if total <= 0 or min(mix.values()) < 0 or not set(mix) <= set(LEVELS):
        raise ValueError(f"a mix gives positive weights to some of {', '.join(LEVELS)}")
    shares = {level: count * mix.get(level, 0) // total for level in LEVELS}
    by_remainder = sorted(LEVELS, key=lambda level: (-(count * mix.get(level, 0) % total), LEVELS.index(level)))
    for level in by_remainder[: count - sum(shares.values())]:
        shares[level] += 1
    return shares


def count_levels(difficulties: Iterable[Difficulty]) -> dict[Level, int]:
    """How many problems stand at each level."""
    counts: dict[Level, int] = dict.fromkeys(LEVELS, 0)
    for difficulty in difficulties:
        counts[difficulty.level] += 1
    return counts
