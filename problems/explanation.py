"""What a problem asked and what was found, constraint by constraint, with both values: an outcome in words.

As many constraints of a slot are met as its score counts hits; the score decides, this explains it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from problems.axes import Pair, attribute_pairs_of, best_offer, meets_price, sku_pairs_of
from problems.model import OutcomeScore, PriceRule, Problem, Product, RewardItem, SlotScore, Voucher
from problems.score import ProductOf, settle_bill
from problems.titles import TitleMatcher

ConstraintAxis = Literal["title", "price", "service", "sku", "attribute", "shop", "budget"]


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was asked. `slot` counts requested products from 1; 0: of all of them together."""

    slot: int
    axis: ConstraintAxis
    asked: str
    found: str
    is_met: bool


def explain_outcome(
    problem: Problem, outcome: OutcomeScore, product_of: ProductOf, titles: TitleMatcher
) -> tuple[Constraint, ...]:
    """Every constraint of a problem, in order of slots, with what the recommended product has there.

    An id that is the answer's meets its slot whatever its fields say, as the score has it.
    """
    found: list[Constraint] = []
    basket: list[Product] = []
    for number, (item, slot) in enumerate(zip(problem.rewards, outcome.slots, strict=True), 1):
        product = product_of(slot.recommended_id) if slot.is_found and slot.recommended_id else None
        if product is not None and slot.rule_hits:
            basket.append(product)
        for axis, asked, has, is_met in _compared(item, product, titles):
            one = Constraint(slot=number, axis=axis, asked=asked, found=has, is_met=is_met or slot.is_answer)
            if product is None:
                one = msgspec.structs.replace(one, found=_why_missing(slot), is_met=False)
            found.append(one)
    empty = ", ".join(str(number) for number, slot in enumerate(outcome.slots, 1) if not slot.rule_hits)
    lacking = f"; nothing that counts for product {empty}" if empty else ""
    shops = (", ".join(f"{one.product_id} in shop {one.shop_id}" for one in basket) or "no product") + lacking
    if outcome.is_one_shop is not None:
        asked = "every product from one shop"
        found.append(Constraint(slot=0, axis="shop", asked=asked, found=shops, is_met=outcome.is_one_shop))
    if problem.voucher is not None and outcome.is_within_budget is not None:
        voucher = problem.voucher
        paid = bill_text(basket, voucher) + lacking
        found.append(
            Constraint(slot=0, axis="budget", asked=voucher_text(voucher), found=paid, is_met=outcome.is_within_budget)
        )
    return tuple(found)


def price_text(rule: PriceRule) -> str:
    """A price rule as people say it."""
    if rule.mode == "between":
        return f"{rule.low:g} to {rule.high:g} PHP"
    return f"at most {rule.high:g} PHP" if rule.mode == "less than" else f"at least {rule.low:g} PHP"


def voucher_text(voucher: Voucher) -> str:
    """A voucher and its budget as people say it."""
    off = (
        f"{voucher.face_value:g} PHP"
        if voucher.discount_type == "fixed" and voucher.face_value is not None
        else f"{(voucher.discount or 0) * 100:g} % (at most {voucher.cap or 0:g} PHP)"
    )
    return f"at most {voucher.budget:g} PHP; {voucher.voucher_type} voucher {off} off from {voucher.threshold:g} PHP"


def bill_text(basket: Sequence[Product], voucher: Voucher) -> str:
    """What a basket costs, before and after the voucher."""
    if not basket:
        return "no product"
    bill = settle_bill([one.price for one in basket], [one.shop_id for one in basket], voucher)
    applied = f"{bill.after_php:g} PHP after the voucher" if bill.is_eligible else "the voucher does not apply"
    return f"{bill.total_php:g} PHP, {applied}"


def _compared(
    item: RewardItem, product: Product | None, titles: TitleMatcher
) -> Iterator[tuple[ConstraintAxis, str, str, bool]]:
    """(axis, asked, what the product has, whether that meets it) of each rule; nothing is met without a product."""
    skus, attributes = sku_pairs_of(item), attribute_pairs_of(item)
    offered = best_offer(product, skus, attributes) if product else frozenset()
    price, services = (f"{product.price:g} PHP", product.service) if product else ("", ())
    for title in item.title:
        is_met = product is not None and (product.product_id == item.product_id or titles.matches(product, title))
        yield "title", title, product.title if product else "", is_met
    for rule in item.price:
        yield "price", price_text(rule), price, product is not None and meets_price(product.price, rule)
    for name in item.service:
        yield "service", name, ", ".join(services) or "no service", name in services
    pairs: list[tuple[ConstraintAxis, Pair]] = [("sku", pair) for pair in skus]
    pairs += [("attribute", pair) for pair in attributes]
    for axis, (key, value) in pairs:
        values = ", ".join(sorted(has for name, has in offered if name == key))
        yield axis, f"{key}: {value}", f"{key}: {values}" if values else f"no {key}", (key, value) in offered


def _why_missing(slot: SlotScore) -> str:
    if slot.recommended_id is None:
        return "nothing recommended"
    if slot.is_unsurfaced:
        return f"{slot.recommended_id}: no search of this run brought it"
    return f"{slot.recommended_id}: not in the catalogue"
