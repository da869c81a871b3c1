"""Ambiguity: how many products of a catalogue would do, for the reward and for a reader of the query.

Exact counts over the whole catalogue, the answer included. `accepted` counts what the reward takes: title,
and every constraint. `fitting` counts what a reader could take: products whose title holds all the title words that
the query says and that meet every constraint; an item that many products fit but few satisfy asks for guessing. A
problem with an item that more than `ACCEPTED_MAX` products satisfy or fit is tightened, by asking its answer for more
and saying it anew, or dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foundation.errors import Failure
from problems.model import Problem, RewardItem
from problems.product import Product
from problems.scoring.axes import match
from problems.scoring.title_index import TitleIndex
from problems.scoring.title_matching import TitleMatcher
from problems.synthesis.wording import said_names

ACCEPTED_MAX = 3


class Ambiguity(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one problem, one number per item. `failure` (P4019) is set when an item has more than it may."""

    problem_id: str
    accepted: tuple[int, ...]
    fitting: tuple[int, ...]
    failure: Failure | None = None


def measure_ambiguity(
    problem: Problem, index: TitleIndex, titles: TitleMatcher | None = None, at_most: int = ACCEPTED_MAX
) -> Ambiguity:
    """The counts of a problem. `titles` is `lexical/1` when left out; under a title release `accepted` is by its lists.

    Raises ArenaError V2040 when the matcher does not know a title.
    """
    names = said_names(problem)
    accepted = tuple(len(index.accepted(item, titles)) for item in problem.rewards)
    fitting = tuple(count_fitting(item, words, index) for item, words in zip(problem.rewards, names, strict=True))
    over = [
        f"reward[{slot}]: {counts[0]} products satisfy it, {counts[1]} fit its words"
        for slot, counts in enumerate(zip(accepted, fitting, strict=True))
        if max(counts) > at_most
    ]
    return Ambiguity(
        problem_id=problem.problem_id,
        accepted=accepted,
        fitting=fitting,
        failure=Failure(code="P4019", detail="; ".join(over)) if over else None,
    )


def count_fitting(item: RewardItem, words: Sequence[str], index: TitleIndex) -> int:
    """How many products hold all the words in their title and meet every constraint of the item."""
    return sum(meets_constraints(item, product) for product in index.holding(words))


def meets_constraints(item: RewardItem, product: Product) -> bool:
    """Whether a product meets everything that the item asks besides its title."""
    axes = match(item, product, _ANY_TITLE)
    return axes.hits - axes.title.hits == axes.total - axes.title.total


def is_clear(item: RewardItem, words: Sequence[str], index: TitleIndex) -> bool:
    """Whether at most `ACCEPTED_MAX` products satisfy the item, and as many fit the words and its constraints."""
    return (
        count_fitting(item, words, index) <= ACCEPTED_MAX and index.count_rivals(item, ACCEPTED_MAX - 1) < ACCEPTED_MAX
    )


class _AnyTitle(msgspec.Struct, frozen=True):
    """Takes every title for every other: what is left are the constraints."""

    name: str = "any"

    def matches(self, product: Product, reward_title: str) -> bool:
        """True."""
        return True


_ANY_TITLE = _AnyTitle()
