"""Agreement of raters on ordered levels: quadratic weighted kappa, Krippendorff's alpha, and bootstrap intervals.

Pure. Levels are places 0..4 on the scale; None is a rating that was not given. Sources: Cohen 1968 (weighted kappa);
Krippendorff 2011, "Computing Krippendorff's alpha-reliability" (coincidences, interval metric).
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

LEVELS = 5
Metric = Literal["nominal", "interval"]
Pair = tuple[int, int]  # what is true or the first rater says, and what the second says
_DRAWS = 1_000
_TAIL = 0.025


def quadratic_kappa(pairs: Sequence[Pair]) -> float | None:
    """Cohen's kappa with quadratic weights; None where it is not defined: no pair, or one level throughout."""
    if not pairs:
        return None
    observed = sum((one - other) ** 2 for one, other in pairs)
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    expected = sum((one - other) ** 2 * n * m for one, n in first.items() for other, m in second.items())
    return 1 - observed * len(pairs) / expected if expected else None


def krippendorff_alpha(units: Sequence[Sequence[int | None]], metric: Metric = "interval") -> float | None:
    """Alpha over units, each the ratings of one thing. None where fewer than two were given of anything, or all given
    are the same."""
    rated = [given for unit in units if len(given := [one for one in unit if one is not None]) > 1]
    values = Counter(one for unit in rated for one in unit)
    total = sum(values.values())

    def distance(one: int, other: int) -> int:
        return (one - other) ** 2 if metric == "interval" else one != other

    expected = sum(distance(one, other) * n * m for one, n in values.items() for other, m in values.items())
    if not expected:
        return None
    observed = sum(sum(distance(one, other) for one in unit for other in unit) / (len(unit) - 1) for unit in rated)
    return 1 - (total - 1) * observed / expected


def accuracy(pairs: Sequence[Pair]) -> float | None:
    """The share of pairs that are equal; None without any."""
    return sum(one == other for one, other in pairs) / len(pairs) if pairs else None


def bootstrap_interval(
    pairs: Mapping[str, Sequence[Pair]], statistic: Callable[[Sequence[Pair]], float | None], seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of a statistic, drawing whole clusters (the keys): traces of one run are not independent."""
    dice, clusters = random.Random(seed), sorted(pairs)
    if not clusters:
        return None
    drawn = (
        statistic([pair for name in dice.choices(clusters, k=len(clusters)) for pair in pairs[name]])
        for _ in range(_DRAWS)
    )
    found = sorted(value for value in drawn if value is not None)
    return (found[int(_TAIL * len(found))], found[int((1 - _TAIL) * len(found)) - 1]) if found else None


def confusion(pairs: Sequence[Pair]) -> tuple[tuple[int, ...], ...]:
    """Counts by level: a row for each true level, a column for each given one."""
    counted: defaultdict[Pair, int] = defaultdict(int, Counter(pairs))
    return tuple(tuple(counted[row, column] for column in range(LEVELS)) for row in range(LEVELS))
