"""Two corpora side by side: every measure with its interval, and what chance alone would give.

Pure and seeded; equal episodes, seed and draws give equal values. What is drawn is problems with all their
episodes, never single episodes: several runs at one problem are alike, and would make intervals too narrow. Intervals
hold 95 %. A distance is read against three others: between random halves of the one corpus, of the other, and between
the two after their episodes were dealt anew (permutation): among the runs at one problem where both corpora know it,
else whole problems.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

import msgspec
import numpy as np

from training.corpus.distance.episodes import CallSequence
from training.corpus.distance.measures import (
    COVERAGE,
    GRAMS,
    LENGTH,
    OUTCOMES,
    Floats,
    Grams,
    Ratio,
    behaviour,
    by_problem,
    expected_distinct,
    gram_counts,
    js_distance,
    ratio_sums,
    shuffled_masks,
    transitions,
)

DRAWS = 1_000
PROBLEMS_MIN = 4  # two a half
_LOW, _HIGH = 2.5, 97.5
_DIGITS = 6
_Z2 = 1.959963984540054**2  # of a normal deviate, two-sided 95 %
_CELLS = 4_000_000
_CURVE_POINTS = 30
_LARGEST, _APART_MIN = 8, 0.01  # transitions listed


class BootstrapInterval(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """One distance in [0, 1]. `halves`: of 95 % of random halves of each corpus, at most; `shuffled`: of 95 % of
    permutations, at most; `p_value`: the share of permutations that lie as far apart."""

    name: str
    about: str
    distance: BootstrapInterval
    halves: tuple[float, float]
    shuffled: float
    p_value: float


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One measure in both corpora and their difference (second less first); None where it is not defined.

    `counts`: what it was taken over in each (calls, searches, demands).
    """

    name: str
    about: str
    is_share: bool
    values: tuple[BootstrapInterval | None, BootstrapInterval | None]
    difference: BootstrapInterval | None
    counts: tuple[int, int]


class Behaviours(msgspec.Struct, frozen=True, kw_only=True):
    """Distinct sequences of tools. `at`: episodes drawn from each for the two intervals; curves are (episodes, distinct
    behaviours expected)."""

    distinct: tuple[int, int]
    at: int
    expected: tuple[BootstrapInterval, BootstrapInterval]
    curves: tuple[tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """How often `after` follows `before`, of all that follows it, in each corpus."""

    before: str
    after: str
    shares: tuple[float, float]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus. `lengths`: (calls, episodes)."""

    name: str
    episodes: int
    problems: int
    known_problems: int  # whose demands are known
    calls: int
    lengths: tuple[tuple[int, int], ...]
    transitions: tuple[tuple[float | None, ...], ...]  # rows `start` and tools, columns tools and `end`


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison."""

    sides: tuple[Side, Side]
    seed: int
    draws: int
    tools: tuple[str, ...]
    distances: tuple[Distance, ...]
    length: Compared
    outcomes: tuple[Compared, ...]
    coverage: tuple[Compared, ...]
    behaviours: Behaviours
    largest: tuple[Transition, ...]


def compare(
    one: Sequence[CallSequence],
    other: Sequence[CallSequence],
    names: tuple[str, str],
    *,
    seed: int = 0,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare two corpora. Raises ValueError for one of fewer than four problems: it has no halves to speak of."""
    groups = (by_problem(one), by_problem(other))
    for name, found in zip(names, groups, strict=True):
        if len(found) < PROBLEMS_MIN:
            raise ValueError(f"{name}: {len(found)} problems; a comparison needs at least {PROBLEMS_MIN}")
    measures = (LENGTH, *OUTCOMES, *COVERAGE)
    total = len(GRAMS) + len(measures) + 1
    steps = iter(range(1, total + 1))

    def done() -> None:
        if progress:
            progress(next(steps), total)

    distances: list[Distance] = []
    compared: list[Compared] = []
    for grams in GRAMS:
        distances.append(_distance(grams, *groups, np.random.default_rng([seed, len(distances)]), draws))
        done()
    for ratio in measures:
        compared.append(_compared(ratio, *groups, np.random.default_rng([seed, 100 + len(compared)]), draws))
        done()
    behaviours = _behaviours(*groups)
    done()
    tools = tuple(sorted({step.tool for episode in (*one, *other) for step in episode.steps}))
    tables = (transitions(one, tools), transitions(other, tools))
    return Comparison(
        sides=(_side(names[0], one, tables[0]), _side(names[1], other, tables[1])),
        seed=seed,
        draws=draws,
        tools=tools,
        distances=tuple(distances),
        length=compared[0],
        outcomes=tuple(compared[1 : 1 + len(OUTCOMES)]),
        coverage=tuple(compared[1 + len(OUTCOMES) :]),
        behaviours=behaviours,
        largest=tuple(_largest(one, other, tools, tables)),
    )


_Groups = Sequence[Sequence[CallSequence]]


def _distance(grams: Grams, one: _Groups, other: _Groups, rng: np.random.Generator, draws: int) -> Distance:
    left, right = gram_counts(grams, one, other)
    value = float(js_distance(left.sum(axis=0), right.sum(axis=0)))
    drawn = js_distance(_drawn(left, rng, draws), _drawn(right, rng, draws))
    # drawn corpora lie further apart than the corpora they are drawn from: the interval is turned about the estimate
    low, high = (2 * value - found for found in np.nanpercentile(drawn, (_HIGH, _LOW)))
    shuffled = _shuffled(grams, one, other, rng, draws)
    halves = [float(np.nanpercentile(_splits(table, len(table) // 2, rng, draws), 95)) for table in (left, right)]
    return Distance(
        name=grams.name,
        about=grams.about,
        distance=_interval(value, min(value, max(0.0, low)), max(value, min(1.0, high))),
        halves=(_rounded(halves[0]), _rounded(halves[1])),
        shuffled=_rounded(float(np.nanpercentile(shuffled, 95))),
        p_value=_rounded((1 + int((shuffled >= value).sum())) / (1 + draws)),
    )


def _drawn(table: Floats, rng: np.random.Generator, draws: int) -> Floats:
    """For each draw, the sum of as many problems as there are, drawn with replacement."""
    even = np.full(len(table), 1 / len(table))
    return np.concatenate([rng.multinomial(len(table), even, size=size) @ table for size in _parts(len(table), draws)])


def _splits(table: Floats, first: int, rng: np.random.Generator, draws: int) -> Floats:
    """For each draw, the distance between `first` problems drawn without replacement, and the rest."""
    total, found = table.sum(axis=0), []
    for size in _parts(len(table), draws):
        places = rng.permuted(np.tile(np.arange(len(table)), (size, 1)), axis=1)
        part = (places < first).astype(np.float64) @ table
        found.append(js_distance(part, total - part))
    return np.concatenate(found)


def _shuffled(grams: Grams, one: _Groups, other: _Groups, rng: np.random.Generator, draws: int) -> Floats:
    """Distances after dealing anew: episodes within a problem that both corpora have, all others problem by problem."""
    known = [{group[0].problem for group in groups} for groups in (one, other)]
    both = known[0] & known[1]
    things = [
        [part for group in groups for part in ([[e] for e in group] if group[0].problem in both else [group])]
        for groups in (one, other)
    ]
    left, right = gram_counts(grams, *things)
    table = np.concatenate((left, right))
    total, found = table.sum(axis=0), []
    names = [[thing[0].problem for thing in side] for side in things]
    for mask in shuffled_masks(names, rng, draws):
        part = mask.astype(np.float64) @ table
        found.append(js_distance(part, total - part))
    return np.array(found)


def _parts(problems: int, draws: int) -> Iterator[int]:
    """Draws in parts, so that memory holds `_CELLS` numbers whatever the corpus."""
    most = max(1, _CELLS // problems)
    yield from (min(most, draws - begin) for begin in range(0, draws, most))


def _compared(ratio: Ratio, one: _Groups, other: _Groups, rng: np.random.Generator, draws: int) -> Compared:
    values: list[BootstrapInterval | None] = []
    estimates, counts = [], []
    for groups in (one, other):
        table = np.stack(ratio_sums(ratio, groups), axis=1)
        top, bottom = table.sum(axis=0)
        sums = _drawn(table, rng, draws)
        found = np.divide(sums[:, 0], sums[:, 1], out=np.full(draws, math.nan), where=sums[:, 1] > 0)
        is_defined = bool(bottom) and not np.isnan(found).all()
        estimates.append(top / bottom if bottom else math.nan)
        counts.append(int(bottom))
        low, high = np.nanpercentile(found, (_LOW, _HIGH)) if is_defined else (math.nan, math.nan)
        if ratio.is_share and low == high:  # what Wilson's bound leaves to problems that were not seen
            unseen = _Z2 / (int(np.count_nonzero(table[:, 1])) + _Z2)
            low, high = max(0.0, low - unseen), min(1.0, high + unseen)
        values.append(_interval(estimates[-1], low, high) if is_defined else None)
    left, right = values
    difference = None
    if left is not None and right is not None:
        apart = estimates[1] - estimates[0]
        # from the two intervals, which are independent (MOVER, Zou and Donner 2008)
        low = apart - math.hypot(right.value - right.low, left.high - left.value)
        high = apart + math.hypot(right.high - right.value, left.value - left.low)
        difference = _interval(apart, low, high)
    return Compared(
        name=ratio.name,
        about=ratio.about,
        is_share=ratio.is_share,
        values=(left, right),
        difference=difference,
        counts=(counts[0], counts[1]),
    )


def _behaviours(one: _Groups, other: _Groups) -> Behaviours:
    counted = [[Counter(behaviour(episode) for episode in group) for group in groups] for groups in (one, other)]
    totals = [sum(groups, Counter[Hashable]()) for groups in counted]
    # so many that they can still be drawn when any one problem is left out
    at = min(min(n.total() // 2, n.total() - max(map(Counter.total, g))) for n, g in zip(totals, counted, strict=True))
    at = max(1, at)
    expected = []
    for groups, total in zip(counted, totals, strict=True):
        value = expected_distinct(total.values(), at)
        without = np.array([expected_distinct((total - group).values(), at) for group in groups])
        # the jackknife over problems: a bootstrap would repeat episodes, and so lose behaviours
        error = math.sqrt((len(groups) - 1) / len(groups) * float(((without - without.mean()) ** 2).sum()))
        reach = math.sqrt(_Z2) * error
        expected.append(_interval(value, max(1.0, value - reach), min(float(at), value + reach)))
    curves = tuple(
        tuple((size, _rounded(expected_distinct(total.values(), size))) for size in sizes)
        for total, sizes in (
            (total, np.unique(np.linspace(1, total.total(), _CURVE_POINTS).round().astype(int)).tolist())
            for total in totals
        )
    )
    return Behaviours(
        distinct=(len(totals[0]), len(totals[1])),
        at=at,
        expected=(expected[0], expected[1]),
        curves=(curves[0], curves[1]),
    )


def _side(name: str, episodes: Sequence[CallSequence], table: list[list[float]]) -> Side:
    return Side(
        name=name,
        episodes=len(episodes),
        problems=len({one.problem for one in episodes}),
        known_problems=len({one.problem for one in episodes if one.demands is not None}),
        calls=sum(len(one.steps) for one in episodes),
        lengths=tuple(sorted(Counter(len(one.steps) for one in episodes).items())),
        transitions=tuple(tuple(None if math.isnan(one) else _rounded(one) for one in row) for row in table),
    )


def _largest(
    one: Sequence[CallSequence],
    other: Sequence[CallSequence],
    tools: Sequence[str],
    tables: tuple[list[list[float]], ...],
) -> Iterator[Transition]:
    """The transitions that differ most between the corpora, weighted by how often the first call is made."""
    rows, columns = ("start", *tools), (*tools, "end")
    weights = [1.0]
    for tool in tools:
        shares = [
            sum(step.tool == tool for episode in side for step in episode.steps) / max(1, len(side))
            for side in (one, other)
        ]
        weights.append(max(shares))
    found = []
    for row, before in enumerate(rows):
        for column, after in enumerate(columns):
            pair = (tables[0][row][column], tables[1][row][column])
            left, right = (0.0 if math.isnan(share) else _rounded(share) for share in pair)
            apart = abs(left - right) * weights[row]
            if apart >= _APART_MIN:
                found.append((-apart, Transition(before=before, after=after, shares=(left, right))))
    found.sort(key=lambda pair: (pair[0], pair[1].before, pair[1].after))
    return (transition for _, transition in found[:_LARGEST])


def _interval(value: float, low: float, high: float) -> BootstrapInterval:
    return BootstrapInterval(value=_rounded(value), low=_rounded(low), high=_rounded(high))


def _rounded(value: float) -> float:
    return round(float(value), _DIGITS)
