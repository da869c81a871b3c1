"""The arithmetic of an evaluation: pass@k, intervals and paired tests. Pure, seeded, in plain numbers.

Sources: pass@k is the unbiased estimator 1 - C(n-c, k) / C(n, k) of Chen et al. 2021; the interval is a percentile
bootstrap over problems, so that samples of one problem are never taken for independent; two checkpoints on the same
problems are compared by the exact McNemar test.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval, over `n` problems."""

    value: float
    low: float
    high: float
    n: int


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
    """Mean over problems with its percentile bootstrap interval. Raises ValueError for no values."""
    if not values:
        raise ValueError("nothing to estimate from")
    dice, n = random.Random(seed), len(values)
    means = sorted(sum(dice.choices(values, k=n)) / n for _ in range(resamples))
    edge = resamples // 40
    return Estimate(value=sum(values) / n, low=means[edge], high=means[-1 - edge], n=n)


def compare_paired(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """The exact two-sided McNemar test on results of the same problems in the same order."""
    pairs = list(zip(first, second, strict=True))
    first_only = sum(a and not b for a, b in pairs)
    second_only = sum(b and not a for a, b in pairs)
    return Paired(
        first_only=first_only,
        second_only=second_only,
        n=len(pairs),
        p_value=_binomial_two_sided(min(first_only, second_only), first_only + second_only),
    )


def _binomial_two_sided(fewer: int, total: int) -> float:
    """Two-sided p of a fair coin that showed its rarer side `fewer` times in `total`."""
    if total == 0:
        return 1.0
    tail = sum(math.comb(total, hits) for hits in range(fewer + 1)) / (1 << total)
    return min(1.0, 2 * tail)
