"""Scoring: what one recommendation is worth, by rule.

A pure function of problem, ids, documents and title matcher. It equals the reference on every well-formed
input and never raises for what a problem, a document or an agent contains: what the agent got wrong is scored and
flagged, what is wrong with the problem or the catalogue gives an `UnscoredOutcome` and charges nobody
(docs/benchmark.md#scoring, docs/architecture.md#scores). Hits and totals are integers; shares are exact fractions,
rounded down once. It will not look at the dialogue: which ids count, and whether they were surfaced, is decided before.
`explain_outcome` tells what was asked and found, constraint by constraint: as many are met as the score counts hits.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

import msgspec

from foundation.errors import ArenaError
from problems import model
from problems.axes import Pair, ask, attribute_pairs_of, best_offer, match, meets_price, sku_pairs_of
from problems.titles import TitleMatcher

FINDINGS: dict[str, str] = {
    "A-ids-format": "product_ids is not one text of product ids separated by commas",
    "A-ids-missing": "fewer products are recommended than the problem asks for",
    "A-ids-extra": "more products are recommended than the problem asks for; the rest is ignored",
    "A-ids-duplicate": "a product id is repeated; the repetition is dropped and later ids move left",
    "A-ids-unknown": "a recommended id is not in the catalogue",
    "A-ids-unsurfaced": "a recommended id never came out of a search of the agent's own",
}
_PLAIN_ID = re.compile(r"[0-9A-Za-z_-]+")

ProductOf = Callable[[str], model.Product | None]


def score(
    problem: model.Problem,
    recommended: Sequence[str],
    product_of: ProductOf,
    titles: TitleMatcher,
    *,
    unsurfaced: Collection[str] = (),
) -> model.OutcomeScore | model.UnscoredOutcome:
    """Score the recommended ids, the i-th id against the i-th reward.

    `recommended` is what `parse_recommendation` returned: stripped, without repetitions, in order. `product_of` gives
    the document, or None when it is proven absent; an ArenaError it raises becomes an `UnscoredOutcome`. Ids in
    `unsurfaced` make their slot a missing one.
    """
    try:
        model.check_problem(problem)
        ids: list[str | None] = [*recommended[: len(problem.rewards)]]
        ids += [None] * (len(problem.rewards) - len(ids))
        products = [
            _product_in_slot(item, chosen, product_of, unsurfaced)
            for item, chosen in zip(problem.rewards, ids, strict=True)
        ]
        slots = []
        for item, chosen, product in zip(problem.rewards, ids, products, strict=True):
            is_answer = product is not None and product.product_id == item.product_id
            axes = ask(item) if product is None else match(item, product, titles)
            slot = model.SlotScore(
                recommended_id=chosen,
                is_found=product is not None,
                is_answer=is_answer,
                is_unsurfaced=chosen is not None and chosen in unsurfaced,
                **axes._asdict(),
                rule_hits=1 if is_answer else axes.hits,
                rule_total=1 if is_answer else axes.total,
            )
            slots.append(slot)
        return _sum_up(problem, tuple(slots), products, titles.name, recommended)
    except ArenaError as error:
        return model.UnscoredOutcome(failure=error.failure)


def parse_recommendation(text: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids and finding codes of a `product_ids` argument: split at commas, strip, drop blanks and repetitions.

    Anything but a string recommends nothing (docs/benchmark.md#edge-cases, 1 and 3).
    """
    if not isinstance(text, str):
        return (), ("A-ids-missing" if text is None else "A-ids-format",)
    parts = [part.strip() for part in text.split(",")]
    named = [part for part in parts if part]
    ids = tuple(dict.fromkeys(named))
    findings = []
    if not ids:
        findings.append("A-ids-missing")
    if len(ids) < len(named):
        findings.append("A-ids-duplicate")
    if not _are_plain(ids):
        findings.append("A-ids-format")
    return ids, tuple(findings)


def reference_fields(problem: model.Problem, outcome: model.OutcomeScore) -> dict[str, float | bool]:
    """The outcome under the reference's own keys: means over slots as floats, for parity checks and reports.

    `sku & attrs` is the reference's joint field. `shop` and `budget` stand only in their own bucket. Each field is
    hits / total, 0 where nothing is asked; `rule` counts an exact id as 1.
    """
    slots = outcome.slots
    fields: dict[str, float | bool] = {
        "gt": _mean(slot.is_answer for slot in slots),
        "rule": _mean(_rule(slot) for slot in slots),
        "product": _mean(slot.is_found for slot in slots),
        "title": _mean(_share(slot.title) for slot in slots),
        "price": _mean(_share(slot.price) for slot in slots),
        "service": _mean(_share(slot.service) for slot in slots),
        "sku & attrs": _mean(_share(slot.sku, slot.attribute) for slot in slots),
    }
    if problem.bucket == "shop":
        fields["shop"] = float(bool(outcome.is_one_shop))
    if problem.bucket == "voucher":
        fields["budget"] = float(bool(outcome.is_within_budget))
    fields["success"] = outcome.is_success
    return fields


def _product_in_slot(
    item: model.RewardItem, chosen: str | None, product_of: ProductOf, unsurfaced: Collection[str]
) -> model.Product | None:
    """The document in a slot, or None when the slot is missing. Raises ArenaError P4005 or P4006."""
    if chosen is None or chosen in unsurfaced:
        return None
    product = product_of(chosen)
    if product is None:
        if chosen == item.product_id:
            raise ArenaError("P4006", chosen)  # the right answer must never count as a miss
        return None
    return model.read_product(product)


def _sum_up(
    problem: model.Problem,
    slots: tuple[model.SlotScore, ...],
    products: Sequence[model.Product | None],
    matcher: str,
    recommended: Sequence[str],
) -> model.OutcomeScore:
    """The outcome over slots. Shop and budget count only when every slot has rule > 0.

    A failure earns its rule share, in shop and voucher halved with the joint rule.
    """
    basket = [product for product, slot in zip(products, slots, strict=True) if product and slot.rule_hits > 0]
    is_full = len(basket) == len(slots)
    shop_ids = [product.shop_id for product in basket]
    is_one_shop = is_within_budget = None
    if problem.bucket == "shop":
        is_one_shop = is_full and len(set(shop_ids)) == 1
    if problem.voucher is not None:
        bill = settle_bill([product.price for product in basket], shop_ids, problem.voucher)
        is_within_budget = is_full and bill.is_within_budget
    rule = sum((_rule(slot) for slot in slots), Fraction(0)) / len(slots)
    found = {
        "A-ids-format": not _are_plain(recommended),
        "A-ids-missing": len(recommended) < len(slots),
        "A-ids-extra": len(recommended) > len(slots),
        "A-ids-unsurfaced": any(slot.is_unsurfaced for slot in slots),
        "A-ids-unknown": any(
            slot.recommended_id is not None and not slot.is_found and not slot.is_unsurfaced for slot in slots
        ),
    }
    joint = {"product": None, "shop": is_one_shop, "voucher": is_within_budget}[problem.bucket]
    failed = rule if problem.bucket == "product" else (rule + int(bool(joint))) / 2
    is_success = all(slot.is_satisfied for slot in slots) and joint is not False
    return model.OutcomeScore(
        titles=matcher,
        bucket=problem.bucket,
        slots=slots,
        is_one_shop=is_one_shop,
        is_within_budget=is_within_budget,
        is_success=is_success,
        is_gt_exact=all(slot.is_answer for slot in slots),
        rule_e4=_e4(rule),
        reward_e4=10_000 if is_success else _e4(failed),
        findings=tuple(sorted(code for code, applies in found.items() if applies)),
    )


def _are_plain(ids: Iterable[str]) -> bool:
    return all(_PLAIN_ID.fullmatch(product_id) for product_id in ids)


def _rule(slot: model.SlotScore) -> Fraction:
    return Fraction(slot.rule_hits, slot.rule_total)


def _share(*axes: model.Axis) -> Fraction:
    total = sum(axis.total for axis in axes)
    return Fraction(sum(axis.hits for axis in axes), total) if total else Fraction(0)


def _mean(values: Iterable[Fraction | bool]) -> float:
    shares = [Fraction(value) for value in values]
    return float(sum(shares, Fraction(0)) / len(shares))


def _e4(share: Fraction) -> int:
    """Ten-thousandths, rounded down."""
    return share.numerator * 10_000 // share.denominator


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """What a basket costs under one voucher. `after_php` equals `total_php` when the voucher does not apply."""

    total_php: float
    after_php: float
    is_eligible: bool
    is_within_budget: bool


def total_price(prices_php: Iterable[float]) -> float:
    """Plain float sum, left to right from 0.0.

    Not by `sum`: from Python 3.12 on it compensates rounding errors and would leave the reference's numbers.
    """
    return functools.reduce(operator.add, prices_php, 0.0)


def discounted_total(total_php: float, voucher: model.Voucher) -> float:
    """The total after the discount, for an eligible basket. A face value above the total gives a negative price.

    Raises ArenaError P4003 when the voucher lacks the amounts its discount type needs.
    """
    if voucher.discount_type == "fixed" and voucher.face_value is not None:
        return total_php - voucher.face_value
    if voucher.discount_type == "percentage" and voucher.discount is not None and voucher.cap is not None:
        return max(total_php * (1 - voucher.discount), total_php - voucher.cap)
    raise ArenaError("P4003", f"a {voucher.discount_type} discount lacks its amounts")


def settle_bill(prices_php: Sequence[float], shop_ids: Sequence[str], voucher: model.Voucher) -> Bill:
    """The bill for a basket in slot order.

    The voucher applies where its threshold is met (inclusive), a shop's only to a basket of one shop. The budget is met
    by the plain total as well: no voucher is needed then (docs/benchmark.md#voucher). Raises as `discounted_total`.
    """
    total_php = total_price(prices_php)
    applies = total_php >= voucher.threshold and (voucher.voucher_type == "platform" or len(set(shop_ids)) == 1)
    after_php = discounted_total(total_php, voucher) if applies else total_php
    return Bill(
        total_php=total_php,
        after_php=after_php,
        is_eligible=applies,
        is_within_budget=total_php <= voucher.budget or after_php <= voucher.budget,
    )


ConstraintAxis = Literal["title", "price", "service", "sku", "attribute", "shop", "budget"]


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was asked. `slot` counts requested products from 1; 0: of all of them together."""

    slot: int
    axis: ConstraintAxis
    asked: str
    found: str
    is_met: bool


def explain_outcome(
    problem: model.Problem, outcome: model.OutcomeScore, product_of: ProductOf, titles: TitleMatcher
) -> tuple[Constraint, ...]:
    """Every constraint of a problem, in order of slots, with what the recommended product has there.

    An id that is the answer's meets its slot whatever its fields say, as the score has it.
    """
    found: list[Constraint] = []
    basket: list[model.Product] = []
    for number, (item, slot) in enumerate(zip(problem.rewards, outcome.slots, strict=True), 1):
        product = product_of(slot.recommended_id) if slot.is_found and slot.recommended_id else None
        if product is not None and slot.rule_hits:
            basket.append(product)
        missing = _why_missing(slot) if product is None else ""
        for axis, asked, has, is_met in _compared(item, product, titles):
            is_met = not missing and (is_met or slot.is_answer)
            found.append(Constraint(slot=number, axis=axis, asked=asked, found=missing or has, is_met=is_met))
    empty = ", ".join(str(number) for number, slot in enumerate(outcome.slots, 1) if not slot.rule_hits)
    lacking = f"; nothing that counts for product {empty}" if empty else ""
    shops = (", ".join(f"{one.product_id} in shop {one.shop_id}" for one in basket) or "no product") + lacking
    if outcome.is_one_shop is not None:
        asked = "every product from one shop"
        found.append(Constraint(slot=0, axis="shop", asked=asked, found=shops, is_met=outcome.is_one_shop))
    if problem.voucher is not None and outcome.is_within_budget is not None:
        voucher, paid = problem.voucher, "no product"
        off = f"{voucher.face_value or 0:g} PHP"
        if voucher.discount_type == "percentage":
            off = f"{(voucher.discount or 0) * 100:g} % (at most {voucher.cap or 0:g} PHP)"
        terms = f"{voucher.voucher_type} voucher {off} off from {voucher.threshold:g} PHP"
        asked = f"at most {voucher.budget:g} PHP; {terms}"
        if basket:
            bill = settle_bill([one.price for one in basket], [one.shop_id for one in basket], voucher)
            after = f"{bill.after_php:g} PHP after the voucher" if bill.is_eligible else "the voucher does not apply"
            paid = f"{bill.total_php:g} PHP, {after}"
        is_met = outcome.is_within_budget
        found.append(Constraint(slot=0, axis="budget", asked=asked, found=paid + lacking, is_met=is_met))
    return tuple(found)


def _compared(
    item: model.RewardItem, product: model.Product | None, titles: TitleMatcher
) -> Iterator[tuple[ConstraintAxis, str, str, bool]]:
    """(axis, asked, what the product has, whether that meets it) of each rule; nothing is met without a product."""
    skus, attributes = sku_pairs_of(item), attribute_pairs_of(item)
    offered = best_offer(product, skus, attributes) if product else frozenset()
    price, services = (f"{product.price:g} PHP", product.service) if product else ("", ())
    for title in item.title:
        is_met = product is not None and (product.product_id == item.product_id or titles.matches(product, title))
        yield "title", title, product.title if product else "", is_met
    for rule in item.price:
        asked = f"at most {rule.high:g} PHP" if rule.mode == "less than" else f"at least {rule.low:g} PHP"
        if rule.mode == "between":
            asked = f"{rule.low:g} to {rule.high:g} PHP"
        yield "price", asked, price, product is not None and meets_price(product.price, rule)
    for name in item.service:
        yield "service", name, ", ".join(services) or "no service", name in services
    pairs: list[tuple[ConstraintAxis, Pair]] = [("sku", pair) for pair in skus]
    pairs += [("attribute", pair) for pair in attributes]
    for axis, (key, value) in pairs:
        values = ", ".join(sorted(has for name, has in offered if name == key))
        yield axis, f"{key}: {value}", f"{key}: {values}" if values else f"no {key}", (key, value) in offered


def _why_missing(slot: model.SlotScore) -> str:
    if slot.recommended_id is None:
        return "nothing recommended"
    if slot.is_unsurfaced:
        return f"{slot.recommended_id}: no search of this run brought it"
    return f"{slot.recommended_id}: not in the catalogue"
