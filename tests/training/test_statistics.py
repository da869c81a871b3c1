"""The arithmetic of an evaluation, against simulation, enumeration and values worked out by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.report import compare_paired, difference_estimate, mean_estimate, pass_at_k


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_all_draws_with_a_success(samples: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    draws = list(itertools.combinations(range(samples), k))
    wanted = sum(any(place < correct for place in draw) for draw in draws) / len(draws)
    assert pass_at_k(samples, correct, k) == pytest.approx(wanted)


def test_values_that_are_all_alike_leave_room_for_those_not_seen() -> None:
    half, same = mean_estimate([0.5] * 75, 0), difference_estimate([0.5] * 75, [0.5] * 75, 0)
    assert half.method == same.method == "unseen"
    assert half.low < half.value == 0.5 < half.high and half.high - half.low == pytest.approx(0.0487, abs=1e-4)
    assert -same.low == same.high == pytest.approx(0.0487, abs=1e-4)
    assert difference_estimate([0.0, 0.5] * 5, [0.5, 0.5] * 5, 0).method == "bootstrap"


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
