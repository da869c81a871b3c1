"""Constraints: what may be asked of a product, read off the product itself, in the public set's proportions.

Whatever is drawn here is met by the product it is drawn from, can be said in words and read back
(`problems.constraints`), and depends on the product and the generator passed in alone. Proportions:
docs/benchmark.md#statistics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from random import Random

import msgspec

from problems.axes import attribute_pairs_of, sku_pairs_of
from problems.model import Bucket, PriceRule, Product, RewardItem, Voucher
from problems.score import discounted_total

# Chance that a constraint is asked of a product that offers it, so that the shares over all items come out as in the
# public set (48 / 72 / 37 / 73 %): 20 % of products have no SKU, 9 % no attribute, 36 % no service.
_SKU_CHANCE, _ATTRIBUTE_CHANCE, _SERVICE_CHANCE, _PRICE_CHANCE = 0.60, 0.79, 0.58, 0.73
_ABOVE_CHANCE = 0.65
_SKU_PAIR_WEIGHTS = (573, 226, 14)
_ATTRIBUTE_WEIGHTS = (499, 319, 178, 101, 52, 28)


def draw_item(answer: Product, rng: Random, *, is_priced: bool) -> RewardItem:
    """An item of the answer, each kind of constraint with its own chance."""
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
    # the shipped suites follow from this stream, in which a further constraint is drawn, asked for or not
    next(further_items(item, answer, rng, is_priced=is_priced), None)
    return item


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


_SAYABLE = re.compile(r"[a-z0-9][a-z0-9 .:/%+#&'-]{0,39}")
_UNSAID = frozenset(
    {"unset", "none", "not specified", "not applicable", "see the description", "as shown", "as picture", "default"}
)

# A register is how somebody talks: (opening with {} for the wish, closing). Where an opening tells more than its list,
# the list says First, Second: simple readers take what stands before a number for an item of its own.
_WISH_REGISTERS: dict[str, tuple[tuple[str, str], ...]] = {
    "plain": (
        ("I'm looking for {}.", ""),
        ("Looking for {}.", ""),
        ("Show me {}.", ""),
        ("I want to buy {}.", ""),
        ("Find {}.", ""),
    ),
    "polite": (
        ("Can you help me find {}?", ""),
        ("I'm looking for {}.", " Please show me the options."),
        ("I want to buy {}.", " Can you show me what is available?"),
        ("Show me {}.", " Please show me all the options."),
    ),
    "terse": (("{}.", ""), ("{}", "")),
}
_LIST_REGISTERS: dict[str, tuple[tuple[str, str], ...]] = {
    "plain": (
        ("I'm looking for these items: {}", ""),
        ("Show me the following products: {}", ""),
        ("I want to buy these: {}", ""),
        ("Looking for all of these: {}", " Please show me the options."),
    ),
    "polite": (
        ("Hello! Could you find these products for me: {}", " Please show me all of them."),
        ("I would like some help with my list: {}", " Can you find all of these for me?"),
    ),
    "terse": (("Needed: {}", ""), ("{}", "")),
    "story": (
        ("We are moving next week and a few things are still missing: {}", " Please show me the options."),
        ("My sister asked me to order some things for her: {}", ""),
        ("It is payday and this is what I have been waiting to order: {}", ""),
    ),
}
_SHOP_REGISTERS: dict[str, tuple[tuple[str, str], ...]] = {
    "plain": (
        ("I'm looking for a shop that offers these items: {}", " Can you help me find a store that sells all of them?"),
        ("Find a shop offering these items: {}", ""),
        ("I want to buy everything from one shop. {}", " Please show me a store that sells all these products."),
    ),
    "polite": (
        ("Hello! I would like to order from a single store: {}", " Can you show me which store sells all of these?"),
        ("Could you point me to one seller for all of these: {}", " Please find one shop that sells everything."),
    ),
    "terse": (("One shop, all of these: {}", ""), ("Same store for everything. {}", "")),
    "story": (
        ("Delivery to our island takes long, so everything has to come from one shop: {}", ""),
        ("I had trouble with three parcels from three sellers, so this time one store for all: {}", ""),
    ),
}
_TELLING_REGISTERS = ("polite", "story")
_ORDINALS = ("First,", "Second,", "Third,", "Fourth,")

SERVICE_WORDS = {
    "official": ("sold on LazMall", "with LazMall service", "available on LazMall", "sold by LazMall"),
    "freeShipping": (
        "with free shipping",
        "with free delivery",
        "available with free delivery",
        "with complimentary shipping",
    ),
    "COD": (
        "with cash on delivery",
        "payable by cash on delivery",
        "available with cash on delivery",
        "with pay on delivery",
    ),
    "flashsale": ("with a LazFlash deal", "in a LazFlash deal", "available in a flash sale", "with a flash deal"),
}
_ABOVE_WORDS = (
    "priced above {} PHP",
    "priced over {} PHP",
    "priced at least {} PHP",
    "costing over {} pesos",
    "costing more than {} pesos",
    "costing at least {} pesos",
    "with a price above {} PHP",
    "with a price higher than {} pesos",
)
_BETWEEN_WORDS = (
    "priced between {} and {} PHP",
    "priced from {} to {} PHP",
    "costing between {} and {} pesos",
    "costing from {} to {} pesos",
    "with a price between {} and {} PHP",
)
_BELOW_WORDS = ("priced below {} PHP", "priced under {} PHP", "costing less than {} pesos", "costing at most {} pesos")


def is_sayable(text: str) -> bool:
    """Whether a key or value can be in a sentence and be read back: short, plain, without commas or quotes."""
    return _SAYABLE.fullmatch(text) is not None and text == text.strip() and text not in _UNSAID


def spoken(key: str) -> str:
    """A SKU or attribute key as it is said."""
    return key.replace("_", " ")


def say_problem(
    bucket: Bucket, names: Sequence[str], items: Sequence[RewardItem], voucher: Voucher | None, rng: Random
) -> str:
    """The query of a problem. `names` are the products' names as a shopper would say them, one per item."""
    wishes = [say_item(name, item, rng) for name, item in zip(names, items, strict=True)]
    registers = _SHOP_REGISTERS if bucket == "shop" else _LIST_REGISTERS if len(wishes) > 1 else _WISH_REGISTERS
    register = rng.choice(sorted(registers))
    opening, closing = rng.choice(registers[register])
    is_numbered = register not in _TELLING_REGISTERS and rng.random() < 0.6
    if registers is _WISH_REGISTERS:
        wish = wishes[0]
    elif is_numbered:
        wish = " ".join(f"({number}) {wish};" for number, wish in enumerate(wishes, start=1))[:-1] + "."
    else:
        last = "Lastly," if rng.random() < 0.7 else _ORDINALS[len(wishes) - 1]
        openers = [*_ORDINALS[: len(wishes) - 1], last]
        wish = " ".join(f"{opener} {wish}." for opener, wish in zip(openers, wishes, strict=True))
    return opening.format(wish) + closing + (say_voucher(voucher) if voucher else "")


def say_item(name: str, item: RewardItem, rng: Random) -> str:
    """One item: its name, then every constraint in a drawn order, between commas."""
    parts = [f"{rng.choice(('in', 'in', 'with'))} {spoken(key)} {value}" for key, value in sku_pairs_of(item)]
    for key, value in attribute_pairs_of(item):
        if key == "brand":
            parts.append(f"{rng.choice(('from the brand', 'by the brand'))} {value}")
        else:
            parts.append(f"{rng.choice(('with', 'with', 'in'))} {spoken(key)} {value}")
    parts += [rng.choice(SERVICE_WORDS[service]) for service in item.service]
    for rule in item.price:
        if rule.mode == "between":
            parts.append(rng.choice(_BETWEEN_WORDS).format(_pesos(rule.low), _pesos(rule.high)))
        elif rule.mode == "greater than":
            parts.append(rng.choice(_ABOVE_WORDS).format(_pesos(rule.low)))
        else:
            parts.append(rng.choice(_BELOW_WORDS).format(_pesos(rule.high)))
    return ", ".join([name, *rng.sample(parts, len(parts))])


def say_voucher(voucher: Voucher) -> str:
    """Budget and voucher rules in the public benchmark's own sentences."""
    scope = (
        "applies to all products"
        if voucher.voucher_type == "platform"
        else "only applies to the products from the same shop"
    )
    if voucher.discount_type == "fixed":
        gives = f"a fixed discount of `{_pesos(voucher.face_value)}`"
    else:
        gives = (
            f"a percentage discount of `{round(100 * (voucher.discount or 0))}%` with a cap of `{_pesos(voucher.cap)}`"
        )
    return (
        f"\n\nMy budget is only `{_pesos(voucher.budget)}`, but I have a voucher with the following rules:\n"
        f"1. The voucher {scope}.\n"
        f"2. It is valid only when the total price of the products exceeds `{_pesos(voucher.threshold)}`.\n"
        f"3. It provides {gives}."
    )


def _pesos(amount_php: float | None) -> str:
    """An amount without a needless fraction."""
    return f"{amount_php or 0:.10g}"
