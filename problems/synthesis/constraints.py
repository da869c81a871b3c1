"""Constraints: what may be asked of a product, read off the product itself, in the public set's proportions.

Whatever is drawn here is met by the product it is drawn from, can be said in words and read back
(`problems.synthesis.phrasing`), and depends on the product and the generator passed in alone. Proportions:
docs/benchmark.md#statistics. How much is asked can be moved with `Appetite`; the public set's is the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

import msgspec

from problems.model import PriceRule, RewardItem, Voucher
from problems.product import Product
from problems.scoring.axes import attribute_pairs_of, sku_pairs_of
from problems.scoring.voucher import discounted_total
from problems.synthesis.phrasing import is_sayable, spoken

# Chance that a constraint is asked of a product that offers it, so that the shares over all items come out as in the
# public set (48 / 72 / 37 / 73 %): 20 % of products have no SKU, 9 % no attribute, 36 % no service.
_SKU_CHANCE, _ATTRIBUTE_CHANCE, _SERVICE_CHANCE, _PRICE_CHANCE = 0.60, 0.79, 0.58, 0.73
_ABOVE_CHANCE = 0.65
_SKU_PAIR_WEIGHTS = (573, 226, 14)
_ATTRIBUTE_WEIGHTS = (499, 319, 178, 101, 52, 28)


class Appetite(msgspec.Struct, frozen=True, kw_only=True):
    """How many constraints (SKU pairs, attributes, services, price bounds) are asked of an item, inclusive."""

    least: int = 0
    most: int = 99


def count_constraints(item: RewardItem) -> int:
    """Rules that an item asks besides its title."""
    return len(sku_pairs_of(item)) + len(attribute_pairs_of(item)) + len(item.service) + len(item.price)


def draw_item(answer: Product, rng: Random, *, is_priced: bool, appetite: Appetite) -> RewardItem:
    """An item of the answer, each kind of constraint with its own chance.

    The appetite's `least` is met where the answer offers as much, by asking for more, `most` by asking for less.
    """
    sku_options = _sku_rule(answer, rng) if rng.random() < _SKU_CHANCE else ()
    attributes: list[dict[str, tuple[str, ...]]] = []
    if rng.random() < _ATTRIBUTE_CHANCE:  # one to six, one value each; of keys that sound the same, one
        attributes = _askable_attributes(answer, rng)
        attributes = attributes[: rng.choices(range(1, len(_ATTRIBUTE_WEIGHTS) + 1), _ATTRIBUTE_WEIGHTS)[0]]
    service: list[str] = []
    if rng.random() < _SERVICE_CHANCE:  # one, seldom two
        service = rng.sample(answer.service, min(len(answer.service), 1 if rng.random() < 0.8 else 2))
    item = RewardItem(
        product_id=answer.product_id,
        title=(answer.title,),
        sku_options=sku_options,
        attributes=tuple(attributes),
        service=tuple(name for name in answer.service if name in service),
        price=(_price_rule(answer.price, rng),) if is_priced and rng.random() < _PRICE_CHANCE else (),
    )
    for more in further_items(item, answer, rng, is_priced=is_priced):
        if count_constraints(item) >= appetite.least:
            break
        item = more
    while count_constraints(item) > appetite.most:
        # an option with several SKU pairs goes whole
        kind = rng.choice([name for name in ("sku_options", "attributes", "service", "price") if getattr(item, name)])
        item = msgspec.structs.replace(item, **{kind: getattr(item, kind)[:-1]})
    return item


def tighten_item(
    item: RewardItem, answer: Product, rng: Random, is_enough: Callable[[RewardItem], bool], *, is_priced: bool
) -> RewardItem | None:
    """The item, or one that asks the answer for more until `is_enough`; None when the answer offers too little."""
    if is_enough(item):
        return item
    return next((more for more in further_items(item, answer, rng, is_priced=is_priced) if is_enough(more)), None)


def further_items(item: RewardItem, answer: Product, rng: Random, *, is_priced: bool) -> Iterator[RewardItem]:
    """The item with one constraint more each time, read off the answer in a drawn order, until it offers no more."""
    spoken_keys = {spoken(key) for key, _ in attribute_pairs_of(item)}
    rules = [rule for rule in _askable_attributes(answer, rng) if spoken(next(iter(rule))) not in spoken_keys]
    further: list[tuple[str, tuple[object, ...]]] = [("attributes", (rule,)) for rule in rules]
    further += [("service", (name,)) for name in answer.service if name not in item.service]
    if not item.sku_options and (option := _sku_rule(answer, rng)):
        further.append(("sku_options", option))
    if is_priced and not item.price:
        further.append(("price", (_price_rule(answer.price, rng),)))
    rng.shuffle(further)
    for kind, more in further:
        asked = (*getattr(item, kind), *more)
        if kind == "service":  # in the document's order
            asked = tuple(name for name in answer.service if name in asked)
        item = msgspec.structs.replace(item, **{kind: asked})
        yield item


def draw_voucher(total_php: float, is_one_shop: bool, rng: Random) -> Voucher:
    """A voucher that applies to the total, and a budget 0 to 10 % above the rest (docs/benchmark.md#voucher)."""
    threshold = math.floor(total_php * rng.uniform(0.1, 0.9))
    face_value = discount = cap = None
    if rng.random() < 0.5:
        face_value = float(max(1, math.floor(threshold * rng.uniform(0.1, 0.5))))
    else:
        discount = rng.randint(10, 50) / 100
        cap = float(rng.randint(math.floor(threshold * discount) + 1, threshold))
    draft = Voucher(
        voucher_type="shop" if is_one_shop else "platform",
        discount_type="fixed" if discount is None else "percentage",
        threshold=float(threshold),
        budget=total_php,
        face_value=face_value,
        discount=discount,
        cap=cap,
    )
    after_php = discounted_total(total_php, draft)
    budget = math.ceil(after_php) + math.floor(math.ceil(after_php) * rng.uniform(0.0, 0.1))
    return msgspec.structs.replace(draft, budget=float(budget), price_after_voucher=after_php)


def _sku_rule(answer: Product, rng: Random) -> tuple[dict[str, str], ...]:
    """One to three pairs of one SKU option."""
    options = [
        sorted((key, value) for key, value in option.items() if is_sayable(spoken(key)) and is_sayable(value))
        for _, option in sorted(answer.sku_options.items())
    ]
    options = [pairs for pairs in options if pairs]
    if not options:
        return ()
    pairs = rng.choice(options)
    count = rng.choices((1, 2, 3), _SKU_PAIR_WEIGHTS)[0]
    return (dict(rng.sample(pairs, min(count, len(pairs)))),)


def _askable_attributes(answer: Product, rng: Random) -> list[dict[str, tuple[str, ...]]]:
    """Every attribute that can be said, one value each, in a drawn order."""
    sayable = {
        key: [value for value in values if is_sayable(value)]
        for key, values in sorted(answer.attributes.items())
        if is_sayable(spoken(key))
    }
    keys = list({spoken(key): key for key, values in sayable.items() if values}.values())
    return [{key: (rng.choice(sayable[key]),)} for key in rng.sample(keys, len(keys))]


def _price_rule(price_php: float, rng: Random) -> PriceRule:
    """A bound in whole pesos that the price meets."""
    low = float(max(1, math.floor(price_php * rng.uniform(0.1, 0.95))))
    if rng.random() < _ABOVE_CHANCE:
        return PriceRule(mode="greater than", low=low)
    return PriceRule(mode="between", low=low, high=float(math.ceil(price_php * rng.uniform(1.05, 3.0))))
