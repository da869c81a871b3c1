"""Tests over several seeds: a sign-flip permutation test on problems, and a bootstrap of seeds and problems.

Pure and seeded. A problem's value is its mean over seeds and samples, so neither is ever taken for an
independent problem. The test asks whether the differences by problem are as likely in either direction (Fisher 1935);
its p value counts the data among the draws, so it is never 0. The bootstrap draws seeds, and problems within what was
drawn, so its interval holds what another seed would have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

FLIPS, RESAMPLES = 100_000, 10_000
_CHUNK = 1_000  # rows of random signs held at a time


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
