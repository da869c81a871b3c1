"""The arithmetic of an evaluation, against simulation, enumeration and values worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.statistics import compare_paired, difference_estimate, mean_estimate, pass_at_k


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


@pytest.mark.parametrize("truth", [0.02, 0.1, 0.4, 0.9, 0.98])
def test_an_interval_of_a_proportion_covers_the_truth_about_as_often_as_it_says(truth: float) -> None:
    """Exactly, over all outcomes of 75 problems; Wilson's coverage swings about 95 % and stays near it."""
    n = 75
    covered = 0.0
    for hits in range(n + 1):
        found = mean_estimate([1.0] * hits + [0.0] * (n - hits), 0)
        assert found.method == "wilson"
        if found.low <= truth <= found.high:
            covered += math.comb(n, hits) * truth**hits * (1 - truth) ** (n - hits)
    assert 0.90 <= covered <= 0.995


def test_an_interval_of_shares_covers_the_truth_about_as_often_as_it_says() -> None:
    import random

    dice = random.Random(1)
    hits = 0
    for trial in range(200):
        shares = [sum(dice.random() < 0.4 for _ in range(4)) / 4 for _ in range(75)]
        found = mean_estimate(shares, trial, resamples=400)
        assert found.method == "bootstrap"
        hits += found.low <= 0.4 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_nothing_solved_and_all_solved_are_not_certain() -> None:
    none, every = mean_estimate([0.0] * 75, 0), mean_estimate([1.0] * 75, 0)
    assert (none.value, none.low, every.value, every.high) == (0.0, 0.0, 1.0, 1.0)
    assert none.high == pytest.approx(0.0487, abs=1e-4)  # z^2 / (n + z^2)
    assert every.low == pytest.approx(1 - none.high)
    assert (1 - none.high) ** 75 < 0.05  # a success rate above it would have shown itself


def test_values_that_are_all_alike_leave_room_for_those_not_seen() -> None:
    half, same = mean_estimate([0.5] * 75, 0), difference_estimate([0.5] * 75, [0.5] * 75, 0)
    assert half.method == same.method == "unseen"
    assert half.low < half.value == 0.5 < half.high and half.high - half.low == pytest.approx(0.0487, abs=1e-4)
    assert -same.low == same.high == pytest.approx(0.0487, abs=1e-4)
    assert difference_estimate([0.0, 0.5] * 5, [0.5, 0.5] * 5, 0).method == "bootstrap"


def solved(both: int, first_only: int, second_only: int, neither: int) -> tuple[list[float], list[float]]:
    """Two results on the same problems, from the four counts."""
    first = [1.0] * both + [1.0] * first_only + [0.0] * second_only + [0.0] * neither
    second = [1.0] * both + [0.0] * first_only + [1.0] * second_only + [0.0] * neither
    return first, second


@pytest.mark.parametrize(
    ("counts", "value", "low", "high"),
    [  # Fagerland, Lydersen and Laake 2017, chapter 8, which print first minus second
        ((1, 1, 7, 12), 6 / 21, 0.0256, 0.5069),  # Bentur et al. 2009
        ((59, 6, 16, 80), 10 / 161, 0.0046, 0.1186),  # Cavo et al. 2012
    ],
)
def test_the_interval_of_a_paired_difference_is_newcombes(
    counts: tuple[int, int, int, int], value: float, low: float, high: float
) -> None:
    found = difference_estimate(*solved(*counts), 0)
    assert found.method == "newcombe" and found.n == sum(counts)
    assert (found.value, found.low, found.high) == pytest.approx((value, low, high), abs=6e-5)


@given(st.tuples(*[st.integers(0, 40)] * 4).filter(any))
def test_the_interval_of_a_paired_difference_has_width_holds_it_and_turns_with_the_order(
    counts: tuple[int, int, int, int],
) -> None:
    first, second = solved(*counts)
    found, turned = difference_estimate(first, second, 0), difference_estimate(second, first, 0)
    assert -1.0 <= found.low <= found.value <= found.high <= 1.0 and found.low < found.high
    assert (turned.value, turned.low, turned.high) == pytest.approx((-found.value, -found.high, -found.low))


def test_an_interval_that_holds_0_never_stands_beside_a_small_p() -> None:
    """Of 75 problems: the other way round the two may disagree, and no p is then above .08."""
    worst = 0.0
    for both, fewer, more in itertools.product((0, 3, 10, 30), range(12), range(20)):
        if more <= fewer:
            continue
        first, second = solved(both, fewer, more, 75 - both - fewer - more)
        found = difference_estimate(first, second, 0)
        p_value = compare_paired([one > 0 for one in first], [one > 0 for one in second]).p_value
        assert found.low > 0.0 or p_value >= 0.05
        worst = max(worst, p_value) if found.low > 0.0 else worst
    assert 0.05 < worst < 0.08


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=12), st.integers(0, 3))
def test_an_interval_has_width_holds_its_mean_and_stays_in_range(values: list[float], seed: int) -> None:
    found = mean_estimate(values, seed, resamples=80)
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0 and found.low < found.high


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
