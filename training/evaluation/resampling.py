"""Tests over several seeds: a sign-flip permutation test on problems, a bootstrap of seeds and problems, Student's t.

Pure and seeded. A problem's value is its mean over seeds and samples, so neither is ever taken for an
independent problem. The test asks whether the differences by problem are as likely in either direction (Fisher 1935);
its p value counts the data among the draws, so it is never 0, and it is conditional on the seeds that were run. The
bootstrap draws seeds, and problems within what was drawn. Of few seeds it is too narrow: three that are drawn with
replacement spread by two thirds of the variance that an unbiased estimate gives. Student's interval over the seeds'
own means (seeds - 1 degrees of freedom) is the cautious one; one seed says nothing of others. Neither holds what a
thing that all seeds share (a base, a corpus) would have changed, had it been drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import msgspec
import numpy as np

FLIPS, RESAMPLES = 100_000, 10_000
_CHUNK = 1_000  # rows of random signs held at a time


class SeedSpread(msgspec.Struct, frozen=True, kw_only=True):
    """How far seeds lie apart: the standard deviation of their means (n - 1), and Student's 95 % interval."""

    sd: float
    low: float
    high: float

    @property
    def has_zero(self) -> bool:
        """Whether the interval includes no difference at all."""
        return self.low <= 0 <= self.high


def sign_flip_p(differences: Sequence[float], seed: int, flips: int = FLIPS) -> float:
    """Two-sided p value of the mean of `differences`, one a problem. Raises ValueError for none."""
    values = np.asarray(differences, dtype=np.float64)
    if not values.size:
        raise ValueError("no difference to test")
    dice, seen, extreme = np.random.default_rng(seed), abs(values.sum()), 0
    for first in range(0, flips, _CHUNK):
        signs = dice.integers(0, 2, size=(min(_CHUNK, flips - first), values.size), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ values) >= seen - 1e-9).sum())
    return (1 + extreme) / (1 + flips)


def seed_interval(
    differences: Sequence[Sequence[float]], seed: int, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """Mean of (seeds, problems) differences with its 95 % percentile interval, seeds and problems both drawn anew.

    Raises ValueError for none.
    """
    values = np.asarray(differences, dtype=np.float64)
    if not values.size:
        raise ValueError("nothing to estimate from")
    seeds, problems = values.shape
    dice = np.random.default_rng(seed)
    means: Any = np.empty(resamples)
    for number in range(resamples):
        drawn = values[dice.integers(0, seeds, seeds)].mean(axis=0)
        means[number] = drawn[dice.integers(0, problems, problems)].mean()
    low, high = np.quantile(means, (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


def seed_spread(by_seed: Sequence[float]) -> SeedSpread | None:
    """The spread of seeds' means; None for fewer than two, which say nothing of another seed."""
    seeds = len(by_seed)
    if seeds < 2:
        return None
    middle, sd = mean(by_seed), stdev(by_seed)
    half = student_quantile(seeds - 1) * sd / math.sqrt(seeds)
    return SeedSpread(sd=sd, low=middle - half, high=middle + half)


def student_quantile(freedom: int) -> float:
    """What Student's t of `freedom` degrees exceeds in either direction in 5 % of cases.

    Found by bisection of the angle whose tangent is t / sqrt(freedom): the chance is a finite sum of its sine and
    cosine (Abramowitz and Stegun 26.7.3 and 26.7.4). Raises ValueError for no degree of freedom.
    """
    if freedom < 1:
        raise ValueError("no degree of freedom")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, freedom) < 0.95 else (low, angle)
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """Chance that Student's t lies within sqrt(freedom) times the tangent of `angle` of 0."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term = cosine if is_odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + is_odd, freedom - 1, 2):
        term *= cosine * cosine * (power - 1) / power
        total += term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
