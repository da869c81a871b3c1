"""Phrasing: a shopping wish in English words, from a reward and a voucher.

Every constraint of the reward is said, and said in words that can be read back: price bounds as whole pesos
next to PHP or pesos, services by names that `problems.synthesis.figures` knows, SKU and attribute values verbatim
beside their key, and the voucher in the exact sentences of the public benchmark. A wish begins with its name; its
constraints follow between commas, in a drawn order; the items of a list are introduced by `First,` `Second,` ... or by
`(1)` `(2)` .... Pure: register, template and order are drawn from the generator passed in. It writes no free prose;
that is for a model (`arena.bank.rephrasing`), under the same check (`problems.synthesis.wording`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from problems.model import Bucket, RewardItem, Voucher
from problems.scoring.axes import attribute_pairs_of, sku_pairs_of

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

_SERVICE_WORDS = {
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
    parts += [rng.choice(_SERVICE_WORDS[service]) for service in item.service]
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
