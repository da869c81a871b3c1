"""Axes: one product against one reward item, counted in integers, axis by axis.

The counts of the reference (docs/benchmark.md#scoring): strings compare exactly, bounds are inclusive, and all
SKU pairs must be met by one and the same SKU option or by the attributes. Nothing here knows of slots, shops or
vouchers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from problems.model import Axis, PriceRule, Product, RewardItem
from problems.titles import TitleMatcher

Pair = tuple[str, str]


class Axes(NamedTuple):
    """Hits and totals of one reward item on the five axes."""

    title: Axis
    price: Axis
    service: Axis
    sku: Axis
    attribute: Axis

    @property
    def hits(self) -> int:
        """Rules met, over all axes."""
        return sum(axis.hits for axis in self)

    @property
    def total(self) -> int:
        """Rules asked, over all axes."""
        return sum(axis.total for axis in self)


def meets_price(price_php: float, rule: PriceRule) -> bool:
    """Whether a price satisfies an inclusive bound; a bound that the mode does not look at is ignored."""
    above = rule.mode == "less than" or (rule.low is not None and price_php >= rule.low)
    below = rule.mode == "greater than" or (rule.high is not None and price_php <= rule.high)
    return above and below


def best_offer(product: Product, sku_pairs: Collection[Pair], attribute_pairs: Collection[Pair]) -> frozenset[Pair]:
    """What the product's best SKU option offers: its own pairs and the product's attribute pairs.

    A product without options offers the attributes alone. Best: the most pairs together, then the most SKU pairs, so
    the order of options decides no count.
    """
    attributes = frozenset((key, value) for key, values in product.attributes.items() for value in values)
    offers = [attributes, *(attributes.union(option.items()) for option in product.sku_options.values())]

    def rank(offered: frozenset[Pair]) -> tuple[int, int]:
        sku = sum(pair in offered for pair in sku_pairs)
        return sku + sum(pair in offered for pair in attribute_pairs), sku

    return max(offers, key=rank)


def count_pairs(product: Product, sku_pairs: Collection[Pair], attribute_pairs: Collection[Pair]) -> tuple[int, int]:
    """SKU and attribute pairs that the product's best SKU option meets."""
    offered = best_offer(product, sku_pairs, attribute_pairs)
    return sum(pair in offered for pair in sku_pairs), sum(pair in offered for pair in attribute_pairs)


def ask(item: RewardItem) -> Axes:
    """What the item asks, with nothing met yet: the axes of a missing slot."""
    return Axes(
        title=Axis(0, len(item.title)),
        price=Axis(0, len(item.price)),
        service=Axis(0, len(item.service)),
        sku=Axis(0, len(sku_pairs_of(item))),
        attribute=Axis(0, len(attribute_pairs_of(item))),
    )


def match(item: RewardItem, product: Product, titles: TitleMatcher) -> Axes:
    """What the product meets of what the item asks. The answer itself always has the right title.

    Raises ArenaError V2040 when the title matcher does not know one of the item's titles.
    """
    asked = ask(item)
    is_answer = product.product_id == item.product_id
    sku_hits, attribute_hits = count_pairs(product, sku_pairs_of(item), attribute_pairs_of(item))
    return Axes(
        title=Axis(sum(is_answer or titles.matches(product, title) for title in item.title), asked.title.total),
        price=Axis(sum(meets_price(product.price, rule) for rule in item.price), asked.price.total),
        service=Axis(sum(name in product.service for name in item.service), asked.service.total),
        sku=Axis(sku_hits, asked.sku.total),
        attribute=Axis(attribute_hits, asked.attribute.total),
    )


def sku_pairs_of(item: RewardItem) -> list[Pair]:
    """The (key, value) pairs the item asks of one SKU option."""
    return [pair for option in item.sku_options for pair in option.items()]


def attribute_pairs_of(item: RewardItem) -> list[Pair]:
    """The (key, value) pairs the item asks of the attributes."""
    return [(key, value) for rule in item.attributes for key, values in rule.items() for value in values]
