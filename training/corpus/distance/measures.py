"""Measures over episodes, summed by problem so that they can be drawn again problem by problem. Pure.

A distance is the square root of the Jensen-Shannon divergence to base 2: 0 for equal distributions, 1 for
distributions that share nothing. A ratio whose denominator is 0 is nothing (NaN), never 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from training.corpus.distance.episodes import CallOutcome, CallSequence, Demand, is_recovered

START, END = "start", "end"

Floats = NDArray[np.float64]
Sums = tuple[Floats, Floats]  # numerators and denominators, one each a problem


class Grams(msgspec.Struct, frozen=True, kw_only=True):
    """One way to cut an episode into stretches of calls: `length` calls in a row, each named by `name_of`."""

    name: str
    about: str
    length: int
    name_of: Callable[[CallOutcome], str]

    def of(self, episode: CallSequence) -> Iterator[tuple[str, ...]]:
        """The stretches; those of more than one call count the episode's start and end as calls."""
        names = [self.name_of(step) for step in episode.steps]
        if self.length > 1:
            names = [START, *names, END]
        return zip(*(names[begin:] for begin in range(self.length)), strict=False)


GRAMS = (
    Grams(name="tools", about="which tools are called, and how often", length=1, name_of=lambda step: step.tool),
    Grams(name="pairs", about="which tool follows which", length=2, name_of=lambda step: step.tool),
    Grams(name="triples", about="three tools in a row", length=3, name_of=lambda step: step.tool),
    Grams(name="forms", about="tools with the arguments filled in", length=1, name_of=lambda step: step.form),
)


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A measure that is a sum over another: of `numerator` and `denominator` of every episode."""

    name: str
    about: str
    of: Callable[[CallSequence], tuple[int, int]]
    is_share: bool = True  # between 0 and 1


def _failed(episode: CallSequence) -> list[int]:
    return [place for place, step in enumerate(episode.steps) if step.outcome in ("error", "empty")]


def _demand(kind: Demand) -> Callable[[CallSequence], tuple[int, int]]:
    return lambda episode: (episode.demands or {}).get(kind, (0, 0))


LENGTH = Ratio(name="calls", about="calls in an episode", of=lambda one: (len(one.steps), 1), is_share=False)
OUTCOMES = (
    Ratio(
        name="errors",
        about="calls that the tool answered with an error",
        of=lambda one: (sum(step.outcome == "error" for step in one.steps), len(one.steps)),
    ),
    Ratio(
        name="empty searches",
        about="searches that found nothing",
        of=lambda one: (
            sum(step.outcome == "empty" for step in one.steps),
            sum(step.is_search for step in one.steps),
        ),
    ),
    Ratio(
        name="recovered",
        about="errors and empty searches after which the same tool was called with success",
        of=lambda one: (sum(is_recovered(one.steps, place) for place in _failed(one)), len(_failed(one))),
    ),
)
COVERAGE = (
    Ratio(
        name="request words",
        about="content words of the request that some call's arguments hold",
        of=lambda one: (one.said, one.asked),
    ),
    Ratio(name="title", about="products half of whose title one call asks for", of=_demand("title")),
    Ratio(name="price", about="price bounds, where some call sets a price filter", of=_demand("price")),
    Ratio(name="service", about="services that some call filters by", of=_demand("service")),
    Ratio(name="option", about="options (colour, size) that one call names", of=_demand("option")),
    Ratio(name="attribute", about="attributes that one call names", of=_demand("attribute")),
    Ratio(name="one shop", about="problems of one shop where a call names a shop", of=_demand("shop")),
    Ratio(name="budget", about="problems with a voucher where the voucher is calculated", of=_demand("budget")),
)


def by_problem(episodes: Sequence[CallSequence]) -> list[list[CallSequence]]:
    """Episodes in groups of one problem, sorted by its name: what is drawn together."""
    groups: dict[str, list[CallSequence]] = {}
    for one in episodes:
        groups.setdefault(one.problem, []).append(one)
    return [groups[name] for name in sorted(groups)]


def gram_counts(grams: Grams, *sets: Sequence[Sequence[CallSequence]]) -> list[Floats]:
    """For each set of groups, counts of stretches: a row a group, a column a stretch that some set has."""
    counted = [[Counter(gram for one in group for gram in grams.of(one)) for group in groups] for groups in sets]
    columns = {gram: number for number, gram in enumerate(sorted({g for rows in counted for row in rows for g in row}))}
    tables = []
    for rows in counted:
        table = np.zeros((len(rows), len(columns)))
        for number, row in enumerate(rows):
            for gram, count in row.items():
                table[number, columns[gram]] = count
        tables.append(table)
    return tables


def shuffled_masks(
    problems: Sequence[Sequence[str]], rng: np.random.Generator, draws: int
) -> Iterator[NDArray[np.bool_]]:
    """Ways to deal what two sets hold to two sets of the same sizes: which of all (first the one's) go to the first.

    `problems` names the problem of each thing. Things on a problem that both sets know change places among themselves
    alone, so that a set on easier problems is not taken for another behaviour; all others change places freely.
    """
    shared = set(problems[0]) & set(problems[1])
    names = [name if name in shared else "" for name in (*problems[0], *problems[1])]
    strata = np.unique(names, return_inverse=True)[1]
    sizes = np.bincount(strata)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    to_first = np.bincount(strata[: len(problems[0])], minlength=len(sizes))
    for _ in range(draws):
        order = np.lexsort((rng.random(len(strata)), strata))
        mask = np.zeros(len(strata), np.bool_)
        mask[order] = np.arange(len(strata)) - starts[strata[order]] < to_first[strata[order]]
        yield mask


def ratio_sums(ratio: Ratio, groups: Sequence[Sequence[CallSequence]]) -> Sums:
    """Numerators and denominators of a ratio, one each a problem."""
    pairs = np.array([[sum(part) for part in zip(*map(ratio.of, group), strict=True)] for group in groups], np.float64)
    return pairs[:, 0], pairs[:, 1]


def js_distance(one: Floats, other: Floats) -> Floats:
    """Between counts along the last axis; NaN where one side is empty."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p, q = one / one.sum(axis=-1, keepdims=True), other / other.sum(axis=-1, keepdims=True)
        middle = (p + q) / 2
        parts = [np.where(side == 0, 0.0, side * np.log2(side / middle)).sum(axis=-1) for side in (p, q)]
    distance: Floats = np.sqrt(np.clip((parts[0] + parts[1]) / 2, 0.0, 1.0))
    return distance


def transitions(episodes: Sequence[CallSequence], names: Sequence[str]) -> list[list[float]]:
    """How often a call of one tool (row) is followed by another (column): shares of each row, NaN in a row of none.

    Rows are `start` and `names`, columns `names` and `end`.
    """
    counts: Counter[tuple[str, ...]] = Counter(pair for one in episodes for pair in GRAMS[1].of(one))
    rows = [[counts[left, right] for right in (*names, END)] for left in (START, *names)]
    return [[value / sum(row) if sum(row) else math.nan for value in row] for row in rows]


def behaviour(episode: CallSequence) -> Hashable:
    """What counts as one behaviour: the tools called, in order."""
    return tuple(step.tool for step in episode.steps)


def expected_distinct(counts: Iterable[int], size: int) -> float:
    """How many distinct behaviours a draw of `size` episodes without replacement holds on average (Hurlbert, 1971).

    `counts`: how many episodes show each behaviour.
    """
    times = Counter(counts)
    total = sum(count * number for count, number in times.items())
    everything = _log_choose(total, size)
    return sum(
        number * (1.0 - (math.exp(_log_choose(total - count, size) - everything) if total - count >= size else 0.0))
        for count, number in times.items()
        if count
    )


def _log_choose(total: int, size: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(size + 1) - math.lgamma(total - size + 1)
