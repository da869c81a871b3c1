"""The tools that verify before recommending, by the scorer's own functions: a product's attributes, a basket's bill."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import orjson

from harness.limits import MATCHED_VALUE, PRODUCT
from harness.tools.port import RefusedCallError, ToolContext, ToolOutcome, quoted, result_text, split_list
from problems.axes import Pair, count_pairs
from problems.model import Product, Voucher
from problems.score import settle_bill, total_price

REQUIREMENTS_MAX = 100
PRICES_MAX = 100


def check_product_match(context: ToolContext, product_id: str, requirements: str) -> ToolOutcome:
    """Check one product against required attributes and options before recommending it.

    Keys and values must be equal, letter for letter, to a pair of the product's attributes or of one SKU option; all
    requirements have to be met by the same option. Returns matched, matches, mismatches, the sku_option that meets
    most (null when the attributes alone do) and a product_summary.

    Args:
        product_id: The product to check.
        requirements: JSON object of required pairs, e.g. '{"color_family": "black", "material": "steel"}'; a list as
            value requires each of its values.
    """
    wanted = _read_requirements(requirements)
    context.work.spend(PRODUCT + MATCHED_VALUE * sum(map(len, wanted.values())))
    product = context.catalogue.product(product_id.strip())
    if product is None:
        absent = {"matched": False, "error": "Product not found", "matches": [], "mismatches": list(wanted)}
        return ToolOutcome(result=result_text(absent))
    # The attributes alone, or with the option that meets most pairs; the first of those that meet as many.
    every_pair = [pair for pairs in wanted.values() for pair in pairs]
    offers: list[tuple[str | None, Product]] = [(None, msgspec.structs.replace(product, sku_options={}))]
    for number, sku_option in product.sku_options.items():
        offers.append((number, msgspec.structs.replace(product, sku_options={number: sku_option})))
    option, offered = max(offers, key=lambda offer: _meets(offer[1], every_pair))
    matches = [key for key, pairs in wanted.items() if _meets(offered, pairs) == len(pairs)]
    answer = {
        "matched": len(matches) == len(wanted),
        "matches": matches,
        "mismatches": [key for key in wanted if key not in matches],
        "sku_option": option,
        "product_summary": {"product_id": product.product_id, "attributes": product.attributes},
    }
    return ToolOutcome(result=result_text(answer))


def _read_requirements(text: str) -> dict[str, list[Pair]]:
    """Pairs by key. Raises RefusedCallError for anything but an object of strings, numbers and lists of them."""
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RefusedCallError(f"`requirements` is not JSON: {quoted(text)}") from None
    if not isinstance(raw, dict) or not raw:
        raise RefusedCallError("`requirements` must be a JSON object with at least one key")
    wanted: dict[str, list[Pair]] = {}
    for key, value in raw.items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values):
            raise RefusedCallError(f"`requirements`: the value of {quoted(key)} is neither text nor a list of texts")
        wanted[key] = [(key, one if isinstance(one, str) else str(one)) for one in values]
    if sum(map(len, wanted.values())) > REQUIREMENTS_MAX:
        raise RefusedCallError(f"`requirements` holds more than {REQUIREMENTS_MAX} values")
    return wanted


def _meets(product: Product, pairs: list[Pair]) -> int:
    hits, _ = count_pairs(product, pairs, ())
    return hits


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
    amounts = {"discount_value": discount_value, "threshold": threshold, "budget": budget, "cap": cap}
    for name, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            raise RefusedCallError(f"`{name}` must be a finite number that is not negative")
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
        # shown as the reference shows them, to the cent; what is within the budget is decided before
        "total_before": round(bill.total_php, 2),
        "discount_amount": round(bill.total_php - bill.after_php, 2),
        "total_after": round(bill.after_php, 2),
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
