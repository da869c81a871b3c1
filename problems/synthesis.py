"""Synthesis: new problems over a catalogue, after the rules of the public generator.

Promise: deterministic in (products, seed, counts, exclude), whatever order the products come in; every problem is
solvable by construction, since each constraint is read off its answer; at most `RIVALS_MAX` other products satisfy an
item; a product class (`problems.clusters`) answers once in a set, so no two problems of it share a leak cluster.
Proportions: shoppingbench notes, sections 3 and 9. Public ids are derived from the seed, and so is everything else: for
a sealed batch the seed must be 128 random bits or more, or the answers can be recomputed. It will not write natural
prose: see `problems.phrasing`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from random import Random

import msgspec

from problems.clusters import product_class
from problems.errors import ArenaError
from problems.model import BUCKETS, Bucket, PriceRule, Problem, RewardItem, Voucher
from problems.phrasing import is_sayable, say_problem, spoken
from problems.product import Product
from problems.shelf import Shelf
from problems.voucher import discounted_total, total_price

RIVALS_MAX = 2
_NAMESAKES_MAX = 3
_TRIES_PER_PROBLEM = 200
_PRICE_MIN_PHP = 2.0
_VOUCHER_TOTAL_MIN_PHP = 100.0
_TITLE_WORDS_MIN = 4

# Chance that a constraint is asked of a product that offers it, so that the shares over all items come out as in the
# public set (48 / 72 / 37 / 73 %): 20 % of products have no SKU, 9 % no attribute, 36 % no service.
_SKU_CHANCE, _ATTRIBUTE_CHANCE, _SERVICE_CHANCE, _PRICE_CHANCE = 0.60, 0.79, 0.58, 0.73
_ABOVE_CHANCE = 0.65
_SKU_PAIR_WEIGHTS = (573, 226, 14)
_ATTRIBUTE_WEIGHTS = (499, 319, 178, 101, 52, 28)
_NAME_WORD = re.compile(r"[a-z0-9]{2,}")
_FILLERS = frozenset(
    {"and", "by", "for", "from", "in", "is", "it", "of", "on", "or", "the", "this", "to", "with", "you"}
)


def synthesize(
    products: Sequence[Product], *, seed: int, counts: Mapping[Bucket, int], exclude: Collection[str] = ()
) -> tuple[Problem, ...]:
    """`counts[bucket]` problems of each bucket, in bucket order.

    `exclude` holds the product ids that answer in other sets: neither they nor near-identical listings of them answer
    here. Raises ArenaError P4011 when the catalogue yields too few; ValueError for a negative count.
    """
    if any(count < 0 for count in counts.values()):
        raise ValueError("counts must not be negative")
    maker = _Maker(Shelf(products), Random(seed), exclude)
    problems: list[Problem] = []
    for bucket in BUCKETS:
        for _ in range(counts.get(bucket, 0)):
            problems.append(maker.make(bucket, _public_id(seed, len(problems))))
    return tuple(problems)


def _public_id(seed: int, index: int) -> str:
    return "p_" + hashlib.sha256(f"problem id\n{seed}\n{index}".encode()).hexdigest()[:16]


class _Maker:
    """Draws answers from the shelf and remembers which are taken."""

    def __init__(self, shelf: Shelf, rng: Random, exclude: Collection[str]) -> None:
        self._shelf = shelf
        self._rng = rng
        self._class_of = {product.product_id: product_class(product.title) for product in shelf.products}
        self._taken = {self._class_of[product_id] for product_id in exclude if product_id in self._class_of}
        self._free = [product for product in shelf.products if _is_askable(product)]
        by_shop: dict[str, list[Product]] = defaultdict(list)
        for product in self._free:
            by_shop[product.shop_id].append(product)
        self._free_by_shop = list(by_shop.values())
        self._take(())

    def _take(self, answers: Sequence[Product]) -> None:
        """Mark the answers' classes as used: what is left are the other products, and the shops with two of them."""
        self._taken.update(self._class_of[answer.product_id] for answer in answers)
        self._free = self._untaken(self._free)
        self._free_by_shop = [left for shop in self._free_by_shop if len(left := self._untaken(shop)) >= 2]

    def _untaken(self, products: Sequence[Product]) -> list[Product]:
        return [product for product in products if self._class_of[product.product_id] not in self._taken]

    def make(self, bucket: Bucket, problem_id: str) -> Problem:
        """One problem, or ArenaError P4011 after a bounded number of draws."""
        for _ in range(_TRIES_PER_PROBLEM):
            is_one_shop = bucket == "shop" or (bucket == "voucher" and self._rng.random() < 0.5)
            answers = self._draw(bucket, is_one_shop)
            if len({self._class_of[answer.product_id] for answer in answers}) < max(1, len(answers)):
                continue
            items = [_item(answer, self._rng, is_priced=bucket != "voucher") for answer in answers]
            if any(self._shelf.count_rivals(item, RIVALS_MAX) > RIVALS_MAX for item in items):
                continue
            voucher = None
            if bucket == "voucher":
                total_php = total_price(answer.price for answer in answers)
                if total_php < _VOUCHER_TOTAL_MIN_PHP:
                    continue
                voucher = _voucher(total_php, is_one_shop, self._rng)
            names = [self._name(answer) for answer in answers]
            self._take(answers)
            return Problem(
                problem_id=problem_id,
                bucket=bucket,
                query=say_problem(bucket, names, items, voucher, self._rng),
                rewards=tuple(items),
                voucher=voucher,
            )
        raise ArenaError("P4011", f"no {bucket} problem in {_TRIES_PER_PROBLEM} draws")

    def _draw(self, bucket: Bucket, is_one_shop: bool) -> list[Product]:
        """Untaken answers: one, or 2-4 of one shop, or 1-4 of any shops; none when the draw fails."""
        if bucket == "product":
            return self._sample(self._free, 1)
        if not is_one_shop:
            return self._sample(self._free, self._rng.randint(1, 4))
        if not self._free_by_shop:
            return []
        return self._sample(self._rng.choice(self._free_by_shop), self._rng.randint(2, 4))

    def _sample(self, products: Sequence[Product], count: int) -> list[Product]:
        return self._rng.sample(products, count) if len(products) >= count else []

    def _name(self, answer: Product) -> str:
        """Words of the title, in its order: the rarest ones until few titles hold them all, then some more."""
        words = _telling_words(answer.title)
        ranked = sorted(words, key=lambda word: (self._shelf.rarity(word), word))
        count = 2
        while count < min(6, len(ranked)) and self._shelf.count_holding(ranked[:count]) > _NAMESAKES_MAX:
            count += 1
        chosen = {*ranked[:count], *self._rng.sample(words, min(len(words), self._rng.randint(1, 3)))}
        return " ".join(word for word in words if word in chosen)


def _telling_words(title: str) -> list[str]:
    """The title's words in order, each once, without fillers."""
    return list(dict.fromkeys(word for word in _NAME_WORD.findall(title.lower()) if word not in _FILLERS))


def _is_askable(product: Product) -> bool:
    """Whether a product can be an answer: enough title words to be told apart, and a price worth a bound."""
    return len(_telling_words(product.title)) >= _TITLE_WORDS_MIN and product.price >= _PRICE_MIN_PHP


def _item(answer: Product, rng: Random, *, is_priced: bool) -> RewardItem:
    """Constraints read off the answer, each kind with its own chance."""
    return RewardItem(
        product_id=answer.product_id,
        title=(answer.title,),
        sku_options=_sku_rule(answer, rng) if rng.random() < _SKU_CHANCE else (),
        attributes=_attribute_rules(answer, rng) if rng.random() < _ATTRIBUTE_CHANCE else (),
        service=_service_rule(answer, rng) if rng.random() < _SERVICE_CHANCE else (),
        price=(_price_rule(answer.price, rng),) if is_priced and rng.random() < _PRICE_CHANCE else (),
    )


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


def _attribute_rules(answer: Product, rng: Random) -> tuple[dict[str, tuple[str, ...]], ...]:
    """One to six attributes, one value each; of keys that sound the same, one."""
    sayable = {
        key: [value for value in values if is_sayable(value)]
        for key, values in sorted(answer.attributes.items())
        if is_sayable(spoken(key))
    }
    keys = list({spoken(key): key for key, values in sayable.items() if values}.values())
    count = rng.choices(range(1, len(_ATTRIBUTE_WEIGHTS) + 1), _ATTRIBUTE_WEIGHTS)[0]
    chosen = rng.sample(keys, min(count, len(keys)))
    return tuple({key: (rng.choice(sayable[key]),)} for key in chosen)


def _service_rule(answer: Product, rng: Random) -> tuple[str, ...]:
    """One service, seldom two, in the document's order."""
    count = min(len(answer.service), 1 if rng.random() < 0.8 else 2)
    chosen = rng.sample(answer.service, count)
    return tuple(service for service in answer.service if service in chosen)


def _price_rule(price_php: float, rng: Random) -> PriceRule:
    """A bound in whole pesos that the price meets."""
    low = float(max(1, math.floor(price_php * rng.uniform(0.1, 0.95))))
    if rng.random() < _ABOVE_CHANCE:
        return PriceRule(mode="greater than", low=low)
    return PriceRule(mode="between", low=low, high=float(math.ceil(price_php * rng.uniform(1.05, 3.0))))


def _voucher(total_php: float, is_one_shop: bool, rng: Random) -> Voucher:
    """A voucher that applies to the total, and a budget 0 to 10 % above what is left to pay (notes, section 3)."""
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
