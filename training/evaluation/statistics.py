"""The arithmetic of an evaluation: pass@k, intervals and paired tests. Pure, seeded, in plain numbers.

Sources: pass@k is the unbiased estimator 1 - C(n-c, k) / C(n, k) of Chen et al. 2021; two checkpoints on the same
problems are compared by the exact McNemar test. Intervals are over problems, so that samples of one problem are never
taken for independent. Where every problem counts 0 or 1 they are score intervals, which have width at the ends too:
Wilson's of a share (Wilson 1927), Newcombe's of the difference of two shares of the same problems (Newcombe 1998, Stat.
Med. 17:2635, method 10). Else they are percentile bootstraps. Where all problems have one value the bootstrap would
have no width: then Wilson's bound on the share of problems that differ, which were not seen, gives it.

A score interval holds the truth in about 95 of 100 cases; the exact test errs in at most 5, most often in fewer. So an
interval may leave out 0 by a little beside a p value somewhat above .05: of 75 problems, up to about .08.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal

import msgspec

_Z = 1.959963984540054  # of a normal deviate, two-sided 95 %

Method = Literal["wilson", "newcombe", "bootstrap", "unseen"]


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval, over `n` problems, and how the interval was taken.

    `unseen`: all problems have one value; the interval is what Wilson's bound leaves to those that were not seen.
    """

    value: float
    low: float
    high: float
    n: int
    method: Method = "bootstrap"


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """Two results on the same problems: solved only by the first, only by the second, and the two-sided p value."""

    first_only: int
    second_only: int
    n: int
    p_value: float


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that one of `k` samples drawn without replacement is correct. Raises ValueError for k > samples."""
    if not 0 < k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} of {samples} samples, {correct} correct")
    return 1 - math.comb(samples - correct, k) / math.comb(samples, k)


def mean_estimate(values: Sequence[float], seed: int, resamples: int = 2_000) -> Estimate:
    """Mean over problems of values in [0, 1] with its 95 % interval. Raises ValueError for no values."""
    if values and all(value in (0.0, 1.0) for value in values):
        return _wilson(round(sum(values)), len(values))
    return _resampled(values, seed, resamples, least=0.0, most=1.0)


def difference_estimate(first: Sequence[float], second: Sequence[float], seed: int, resamples: int = 2_000) -> Estimate:
    """Mean over problems of second minus first, each in [0, 1] and of the same problem, with its 95 % interval.

    Raises ValueError for no values, or another number of them.
    """
    pairs = list(zip(first, second, strict=True))
    if pairs and all(value in (0.0, 1.0) for pair in pairs for value in pair):
        return _newcombe([(bool(mine), bool(other)) for mine, other in pairs])
    return _resampled([other - mine for mine, other in pairs], seed, resamples, least=-1.0, most=1.0)


def compare_paired(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """The exact two-sided McNemar test on results of the same problems in the same order."""
    pairs = list(zip(first, second, strict=True))
    first_only = sum(a and not b for a, b in pairs)
    second_only = sum(b and not a for a, b in pairs)
    fewer, total = min(first_only, second_only), first_only + second_only  # of a fair coin under no difference
    tail = sum(math.comb(total, hits) for hits in range(fewer + 1)) / (1 << total)
    return Paired(first_only=first_only, second_only=second_only, n=len(pairs), p_value=min(1.0, 2 * tail))


def _wilson(hits: int, n: int) -> Estimate:
    """Wilson's score interval of `hits` in `n`."""
    share, weight = hits / n, _Z * _Z / n
    middle = (share + weight / 2) / (1 + weight)
    half = _Z * math.sqrt(share * (1 - share) / n + weight / (4 * n)) / (1 + weight)
    low = 0.0 if hits == 0 else middle - half  # exactly, whatever rounding says
    high = 1.0 if hits == n else middle + half
    return Estimate(value=share, low=low, high=high, n=n, method="wilson")


def _newcombe(pairs: Sequence[tuple[bool, bool]]) -> Estimate:
    """Newcombe's interval of second minus first: Wilson's two, added in squares with their correlation (his phi)."""
    n = len(pairs)
    both, neither = sum(a and b for a, b in pairs), sum(not a and not b for a, b in pairs)
    first_only, second_only = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    one, other = _wilson(both + first_only, n), _wilson(both + second_only, n)
    together = float(both * neither - first_only * second_only)
    if together > 0:
        together = max(0.0, together - n / 2)  # his correction for continuity, which method 10 makes for these alone
    margins = (both + first_only) * (second_only + neither) * (both + second_only) * (first_only + neither)
    phi = together / math.sqrt(margins) if margins else 0.0
    gap = (second_only - first_only) / n

    def width(up: float, down: float) -> float:
        return math.sqrt(max(0.0, up * up - 2 * phi * up * down + down * down))

    low = gap - width(other.value - other.low, one.high - one.value)
    high = gap + width(other.high - other.value, one.value - one.low)
    return Estimate(value=gap, low=max(-1.0, low), high=min(1.0, high), n=n, method="newcombe")


def _resampled(values: Sequence[float], seed: int, resamples: int, *, least: float, most: float) -> Estimate:
    """The percentile bootstrap; for values that are all alike, what unseen ones in [least, most] leave open."""
    if not values:
        raise ValueError("nothing to estimate from")
    n, first = len(values), values[0]
    if all(value == first for value in values):
        unseen = _wilson(0, n).high
        low, high = first - unseen * (first - least), first + unseen * (most - first)
        return Estimate(value=first, low=low, high=high, n=n, method="unseen")
    dice = random.Random(seed)
    means = sorted(sum(dice.choices(values, k=n)) / n for _ in range(resamples))
    edge = resamples // 40
    return Estimate(value=sum(values) / n, low=means[edge], high=means[-1 - edge], n=n, method="bootstrap")
