"""The arithmetic of an evaluation, against simulation, enumeration and values worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.statistics import compare_paired, mean_estimate, pass_at_k


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_all_draws_with_a_success(samples: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    draws = list(itertools.combinations(range(samples), k))
    wanted = sum(any(place < correct for place in draw) for draw in draws) / len(draws)
    assert pass_at_k(samples, correct, k) == pytest.approx(wanted)


@pytest.mark.parametrize(("samples", "correct", "k"), [(2, 1, 3), (2, 3, 1), (2, -1, 1), (2, 1, 0)])
def test_pass_at_k_refuses_what_it_can_not_estimate(samples: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(samples, correct, k)


def test_an_interval_holds_its_mean_and_narrows_with_more_problems() -> None:
    few, many = mean_estimate([0.0, 1.0] * 10, 0), mean_estimate([0.0, 1.0] * 1_000, 0)
    for one in (few, many):
        assert one.low < one.value == 0.5 < one.high
    assert many.high - many.low < (few.high - few.low) / 5
    normal = 1.96 * 0.5 / math.sqrt(20)
    assert few.high - few.value == pytest.approx(normal, rel=0.15)


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    import random

    dice = random.Random(1)
    hits = 0
    for trial in range(200):
        found = mean_estimate([float(dice.random() < 0.4) for _ in range(75)], trial, resamples=400)
        hits += found.low <= 0.4 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_an_interval_is_the_same_for_the_same_seed_and_needs_values() -> None:
    values = [0.0, 0.25, 1.0]
    assert mean_estimate(values, 3) == mean_estimate(values, 3)
    with pytest.raises(ValueError, match="nothing"):
        mean_estimate([], 0)


@pytest.mark.parametrize(
    ("first_only", "second_only", "p_value"),
    [(0, 0, 1.0), (5, 5, 1.0), (0, 5, 2 / 32), (1, 9, 2 * 11 / 1024), (10, 0, 2 / 1024)],
)
def test_the_paired_test_is_exact(first_only: int, second_only: int, p_value: float) -> None:
    first = [True] * first_only + [False] * second_only + [True, False] * 7
    second = [False] * first_only + [True] * second_only + [True, False] * 7
    found = compare_paired(first, second)
    assert (found.first_only, found.second_only, found.n) == (first_only, second_only, len(first))
    assert found.p_value == pytest.approx(p_value)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_the_paired_test_does_not_mind_the_order_of_the_two(pairs: list[tuple[bool, bool]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = compare_paired(first, second), compare_paired(second, first)
    assert one.p_value == other.p_value and one.first_only == other.second_only
    assert 0 <= one.p_value <= 1
