"""Phrasing: a shopping wish in English words, from a reward and a voucher.

Promise: every constraint of the reward is said, and said in words that can be read back: price bounds as whole pesos
next to PHP or pesos, services as LazMall, free shipping or delivery, cash on delivery and LazFlash, SKU and attribute
values verbatim beside their key, and the voucher in the exact sentences of the public benchmark. Within an item the
constraints stand between commas; the items of a list are introduced by `First,` `Second,` ... or by `(1)` `(2)` ....
Which template is used is drawn from the generator passed in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from problems.model import Bucket, PriceRule, RewardItem, Voucher

_SAYABLE = re.compile(r"[a-z0-9][a-z0-9 .:/%+#&'-]{0,39}")
_UNSAID = frozenset(
    {"unset", "none", "not specified", "not applicable", "see the description", "as shown", "as picture", "default"}
)

_OPENINGS = ("I'm looking for {}.", "Looking for {}.", "Show me {}.", "Can you help me find {}?", "I want to buy {}.")
_SHOP_OPENINGS = (
    ("I'm looking for a shop that offers these items: {}", " Can you help me find a store that sells all of them?"),
    ("Find a shop offering these items: {}", ""),
    ("I want to buy everything from one shop. {}", " Please show me a store that sells all these products."),
)
_LIST_OPENINGS = (("I'm looking for these items: {}", ""), ("Show me the following products: {}", ""))
_ORDINALS = ("First,", "Second,", "Third,", "Fourth,")

_SERVICE_WORDS = {
    "official": ("sold on LazMall", "with LazMall service", "available on LazMall"),
    "freeShipping": ("with free shipping", "with free delivery"),
    "COD": ("with cash on delivery", "payable by cash on delivery"),
    "flashsale": ("with a LazFlash deal", "in a LazFlash deal"),
}
_ABOVE_WORDS = (
    "priced above {} PHP",
    "costing over {} pesos",
    "with a price above {} PHP",
    "costing more than {} pesos",
)
_BETWEEN_WORDS = ("priced between {} and {} PHP", "costing between {} and {} pesos", "priced from {} to {} PHP")
_BELOW_WORDS = ("priced below {} PHP", "costing less than {} pesos")


def is_sayable(text: str) -> bool:
    """Whether a key or value can stand in a sentence and be read back: short, plain, without commas or quotes."""
    return _SAYABLE.fullmatch(text) is not None and text == text.strip() and text not in _UNSAID


def spoken(key: str) -> str:
    """A SKU or attribute key as it is said."""
    return key.replace("_", " ")


def say_problem(
    bucket: Bucket, names: Sequence[str], items: Sequence[RewardItem], voucher: Voucher | None, rng: Random
) -> str:
    """The query of a problem. `names` are the products' names as a shopper would say them, one per item."""
    wishes = [say_item(name, item, rng) for name, item in zip(names, items, strict=True)]
    if bucket == "shop":
        opening, closing = rng.choice(_SHOP_OPENINGS)
        text = opening.format(_listed(wishes, rng)) + closing
    elif len(wishes) == 1:
        text = rng.choice(_OPENINGS).format(wishes[0])
    else:
        opening, closing = rng.choice(_LIST_OPENINGS)
        text = opening.format(_listed(wishes, rng)) + closing
    return text + (say_voucher(voucher) if voucher else "")


def say_item(name: str, item: RewardItem, rng: Random) -> str:
    """One item: its name, then every constraint, SKU first and price last, between commas."""
    parts = [name]
    for option in item.sku_options:
        parts += [f"in {spoken(key)} {value}" for key, value in option.items()]
    for rule in item.attributes:
        parts += [_say_attribute(key, value, rng) for key, values in rule.items() for value in values]
    parts += [rng.choice(_SERVICE_WORDS[name]) for name in item.service]
    parts += [_say_price(rule, rng) for rule in item.price]
    return ", ".join(parts)


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


def _listed(wishes: Sequence[str], rng: Random) -> str:
    if rng.random() < 0.5:
        openers = [*_ORDINALS[: len(wishes) - 1], "Lastly,"]
        return " ".join(f"{opener} {wish}." for opener, wish in zip(openers, wishes, strict=True))
    return " ".join(f"({number}) {wish};" for number, wish in enumerate(wishes, start=1))[:-1] + "."


def _say_attribute(key: str, value: str, rng: Random) -> str:
    if key == "brand":
        return f"{rng.choice(('from the brand', 'by the brand'))} {value}"
    return f"with {spoken(key)} {value}"


def _say_price(rule: PriceRule, rng: Random) -> str:
    if rule.mode == "between":
        return rng.choice(_BETWEEN_WORDS).format(_pesos(rule.low), _pesos(rule.high))
    if rule.mode == "greater than":
        return rng.choice(_ABOVE_WORDS).format(_pesos(rule.low))
    return rng.choice(_BELOW_WORDS).format(_pesos(rule.high))


def _pesos(amount_php: float | None) -> str:
    """An amount without a needless fraction."""
    return f"{amount_php or 0:.10g}"
