"""Vouchers: when one applies, what is left to pay, and whether that meets the budget.

The same plain floats in the same order as the reference, with no tolerance and no decimals, so `0.1 + 0.2`
misses a budget of 0.3 and `4000 * (1 - .33)` meets 2680 (docs/benchmark.md#edge-cases, 28). Amounts are in PHP. It will
not judge whether the products are the right ones: that is `problems.scoring.score`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from foundation.errors import ArenaError
from problems.model import Voucher


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """What a basket costs under one voucher. `after_php` equals `total_php` when the voucher does not apply."""

    total_php: float
    after_php: float
    is_eligible: bool
    is_within_budget: bool


def total_price(prices_php: Iterable[float]) -> float:
    """Plain float sum, left to right from 0.0.

    A loop on purpose: from Python 3.12 on, `sum` compensates rounding errors and would leave the reference's numbers.
    """
    total_php = 0.0
    for price_php in prices_php:
        total_php += price_php
    return total_php


def is_eligible(total_php: float, shop_ids: Iterable[str], voucher: Voucher) -> bool:
    """Whether the voucher applies: the threshold is met (inclusive) and a shop voucher sees exactly one shop."""
    if total_php < voucher.threshold:
        return False
    return voucher.voucher_type == "platform" or len(set(shop_ids)) == 1


def discounted_total(total_php: float, voucher: Voucher) -> float:
    """The total after the discount, for an eligible basket. A face value above the total gives a negative price.

    Raises ArenaError P4004 when the voucher lacks the amounts its discount type needs.
    """
    if voucher.discount_type == "fixed" and voucher.face_value is not None:
        return total_php - voucher.face_value
    if voucher.discount_type == "percentage" and voucher.discount is not None and voucher.cap is not None:
        return max(total_php * (1 - voucher.discount), total_php - voucher.cap)
    raise ArenaError("P4004", f"a {voucher.discount_type} discount lacks its amounts")


def settle_bill(prices_php: Sequence[float], shop_ids: Sequence[str], voucher: Voucher) -> Bill:
    """The bill for a basket in slot order.

    The budget is met by the plain total as well: no voucher is needed then, even a shop voucher across shops
    (docs/benchmark.md#voucher). Raises ArenaError P4004 like `discounted_total`.
    """
    total_php = total_price(prices_php)
    applies = is_eligible(total_php, shop_ids, voucher)
    after_php = discounted_total(total_php, voucher) if applies else total_php
    return Bill(
        total_php=total_php,
        after_php=after_php,
        is_eligible=applies,
        is_within_budget=total_php <= voucher.budget or after_php <= voucher.budget,
    )
