"""Tests over seeds and problems, against enumeration, simulation and what they must not confuse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from training.evaluation.resampling import seed_interval, seed_spread, sign_flip_p, student_quantile


def test_the_p_value_is_the_share_of_all_signs_that_are_as_extreme() -> None:
    values = [0.5, 0.25, -0.125, 0.5, 0.375, 0.0, 0.25]
    seen = abs(sum(values))
    signs = list(itertools.product((-1, 1), repeat=len(values)))
    exact = sum(abs(sum(s * v for s, v in zip(one, values, strict=True))) >= seen - 1e-9 for one in signs) / len(signs)
    assert sign_flip_p(values, 1, flips=40_000) == pytest.approx(exact, abs=0.01)
    assert sign_flip_p([-value for value in values], 1, flips=40_000) == sign_flip_p(values, 1, flips=40_000)


def test_no_difference_is_never_significant_and_a_p_value_is_never_zero() -> None:
    assert sign_flip_p([0.0] * 50, 0, flips=1_000) == 1.0
    assert sign_flip_p([1.0] * 200, 0, flips=1_000) == pytest.approx(1 / 1_001)
    with pytest.raises(ValueError, match="difference"):
        sign_flip_p([], 0)


def test_of_differences_in_either_direction_alike_one_in_twenty_is_below_five_per_cent() -> None:
    dice = np.random.default_rng(5)
    found = [sign_flip_p(dice.normal(size=40).tolist(), number, flips=500) for number in range(300)]
    assert 0.02 < sum(p < 0.05 for p in found) / len(found) < 0.09


def test_the_interval_is_wider_where_seeds_differ() -> None:
    """Three seeds that differ among themselves: an interval over problems alone would leave them out."""
    alike = [[0.3 + 0.1 * (place % 2) for place in range(200)]] * 3
    apart = [[value + shift for value in alike[0]] for shift in (-0.2, 0.0, 0.2)]
    for values in (alike, apart):
        mean, low, high = seed_interval(values, 0, resamples=500)
        assert mean == pytest.approx(0.35) and low < mean < high
    widths = [high - low for _, low, high in (seed_interval(values, 0, resamples=500) for values in (alike, apart))]
    assert widths[1] > 5 * widths[0]


@pytest.mark.parametrize(
    ("freedom", "printed"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042), (120, 1.980)],
)
def test_students_quantiles_are_those_of_printed_tables(freedom: int, printed: float) -> None:
    assert student_quantile(freedom) == pytest.approx(printed, abs=6e-4)


def test_of_three_seeds_students_interval_holds_the_truth_and_the_bootstrap_too_seldom() -> None:
    """Seeds of a normal distribution, problems all alike, so that seeds alone decide."""
    dice, held = np.random.default_rng(7), {"t": 0, "bootstrap": 0}
    for number in range(300):
        seeds = dice.normal(0.3, 0.1, size=3).tolist()
        spread = seed_spread(seeds)
        assert spread is not None
        held["t"] += spread.low <= 0.3 <= spread.high
        _, low, high = seed_interval([[value] * 4 for value in seeds], number, resamples=200)
        held["bootstrap"] += low <= 0.3 <= high
    assert held["t"] > 0.92 * 300 and held["bootstrap"] < 0.85 * 300


def test_one_seed_says_nothing_of_another() -> None:
    assert seed_spread([0.4]) is None and seed_spread([]) is None
    alike = seed_spread([0.25, 0.25])
    assert alike is not None and (alike.sd, alike.low, alike.high, alike.has_zero) == (0.0, 0.25, 0.25, False)
    apart = seed_spread([0.2, 0.4, 0.6])
    assert apart is not None and apart.sd == pytest.approx(0.2) and apart.has_zero
    assert (apart.high - apart.low) / 2 == pytest.approx(4.303 * 0.2 / 3**0.5, abs=1e-3)
    with pytest.raises(ValueError, match="freedom"):
        student_quantile(0)
