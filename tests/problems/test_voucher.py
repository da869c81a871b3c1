"""Vouchers: the reference's floats, in the reference's order."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from problems.model import Voucher
from problems.score import discounted_total, settle_bill, total_price
from tests.problems.stand import VOUCHER

replace = msgspec.structs.replace
PERCENT = Voucher(
    voucher_type="platform", discount_type="percentage", threshold=100, budget=2680, discount=0.33, cap=5000
)


def test_float_rounding_in_favour_of_the_shopper_stands():
    assert settle_bill([4000.0], ["s"], PERCENT).after_php == 2679.9999999999995
    assert settle_bill([4000.0], ["s"], PERCENT).is_within_budget


def test_the_scorer_multiplies_where_the_public_tool_subtracts():
    voucher = replace(PERCENT, discount=0.18, budget=123)
    assert 150 - 150 * 18 / 100 <= 123  # the public tool: affordable
    assert settle_bill([150.0], ["s"], voucher).after_php == 123.00000000000001
    assert not settle_bill([150.0], ["s"], voucher).is_within_budget


def test_the_sum_is_not_compensated():
    prices = [0.1] * 10
    assert total_price(prices) == 0.9999999999999999


def test_a_shop_voucher_asks_for_one_shop_and_a_platform_voucher_for_none():
    assert not settle_bill([300.0, 300.0], ["s", "t"], VOUCHER).is_eligible
    assert settle_bill([300.0, 300.0], ["s", "t"], replace(VOUCHER, voucher_type="platform")).is_eligible


def test_a_discount_without_its_amounts_is_a_problem_fault():
    with pytest.raises(ArenaError, match="P4003"):
        discounted_total(500.0, replace(PERCENT, cap=None))


@given(prices=st.lists(st.floats(0.01, 1e6), min_size=1, max_size=4), budget=st.floats(0, 1e6))
def test_a_voucher_never_makes_a_basket_dearer(prices, budget):
    bill = settle_bill(prices, ["s"] * len(prices), replace(PERCENT, budget=budget))
    assert bill.after_php <= bill.total_php
    assert bill.is_within_budget == (bill.after_php <= budget)
