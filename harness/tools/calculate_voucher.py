"""calculate_voucher: what a basket costs under a voucher, computed by the scorer's own functions."""

from __future__ import annotations

import math
from typing import Literal

from harness.tools.call import RefusedCallError, ToolContext, quoted, result_text, split_list
from harness.tools.port import ToolOutcome
from problems.model import Voucher
from problems.scoring.voucher import settle_bill, total_price

PRICES_MAX = 100


def calculate_voucher(
    context: ToolContext,
    product_prices: str,
    voucher_type: Literal["fixed", "percentage"],
    discount_value: float,
    threshold: float,
    budget: float,
    cap: float = 0.0,
    shop_ids: str = "",
) -> ToolOutcome:
    """Compute the price of a basket after a voucher, exactly as the final check will.

    Returns prices, total_before, discount_amount, total_after, within_budget, voucher_applied and budget. A basket
    whose plain total meets the budget is within it without the voucher.

    Args:
        product_prices: Comma-separated prices in PHP in the order of the products, e.g. "100,50.5,75".
        voucher_type: "fixed" takes an amount off, "percentage" a share.
        discount_value: Amount in PHP for a fixed voucher; per cent for a percentage voucher, 42 meaning 42 %.
        threshold: Least total in PHP for which the voucher applies.
        budget: The user's budget in PHP.
        cap: Most that a percentage voucher takes off, in PHP; 0 means no cap.
        shop_ids: For a voucher that needs one shop: comma-separated shop ids of the products, in the same order. Empty
            for a voucher that applies everywhere.
    """
    prices = _read_prices(product_prices)
    shops = split_list(shop_ids)
    if shops and len(shops) != len(prices):
        raise RefusedCallError(f"`shop_ids` names {len(shops)} shops for {len(prices)} prices")
    is_percentage = voucher_type == "percentage"
    _check_amounts({"discount_value": discount_value, "threshold": threshold, "budget": budget, "cap": cap})
    if is_percentage and discount_value > 100:
        raise RefusedCallError("`discount_value` of a percentage voucher must be at most 100")
    voucher = Voucher(
        voucher_type="shop" if shops else "platform",
        discount_type=voucher_type,
        threshold=threshold,
        budget=budget,
        face_value=None if is_percentage else discount_value,
        discount=discount_value / 100 if is_percentage else None,
        cap=(cap or total_price(prices)) if is_percentage else None,
    )
    bill = settle_bill(prices, shops, voucher)
    answer = {
        "prices": prices,
        "total_before": bill.total_php,
        "discount_amount": bill.total_php - bill.after_php,
        "total_after": bill.after_php,
        "within_budget": bill.is_within_budget,
        "voucher_applied": bill.is_eligible,
        "budget": budget,
    }
    return ToolOutcome(result=result_text(answer))


def _read_prices(text: str) -> list[float]:
    """Prices in PHP. Raises RefusedCallError for anything but 1 to 100 finite numbers that are not negative."""
    parts = split_list(text)
    if not 0 < len(parts) <= PRICES_MAX:
        raise RefusedCallError(f"`product_prices` must hold 1 to {PRICES_MAX} numbers")
    prices = []
    for part in parts:
        try:
            price = float(part)
        except ValueError:
            price = math.nan
        if not (math.isfinite(price) and price >= 0):
            raise RefusedCallError(f"`product_prices` has {quoted(part)}, which is not a price")
        prices.append(price)
    return prices


def _check_amounts(amounts: dict[str, float]) -> None:
    for name, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            raise RefusedCallError(f"`{name}` must be a finite number that is not negative")
