"""Disguises: one problem made to look like another, to test what keeps the pools apart.

Three ways in which a problem comes back under another surface (paper A.4), each sound, each with answers of the
same product class, all drawn from the generator passed in. `reorder` permutes items, constraints and words; `retailer`
asks for the same things as another shop lists them; `unit` spells and converts measures. Words of the query alone part
nothing, since only answers count. The code that keeps pools apart shares no table with this file, so
that it cannot pass by knowing the tricks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

import msgspec

from problems.constraints import say_problem
from problems.model import PriceRule, Problem

DisguiseKind = Literal["reorder", "retailer", "unit"]
DISGUISE_KINDS: tuple[DisguiseKind, ...] = ("reorder", "retailer", "unit")

_WORD = re.compile(r"[^\W_]+(?:[-'.][^\W_]+)*")
_MEASURE = re.compile(
    r"(?<![\w.])(?<!\d[/*x×-])(\d+(?:\.\d+)?) ?"
    r"(milliliters?|ml|liters?|l|centimeters?|cm|millimeters?|mm|grams?|g|kg|pieces|pcs)\b",
    re.I,
)
# unit: (other spellings with their factors)
_RESPELLED: dict[str, tuple[tuple[str, float], ...]] = {
    "ml": ((" ML", 1), (" milliliters", 1), ("L", 0.001)),
    "l": ((" liter", 1), (" L", 1), ("ml", 1000)),
    "cm": ((" CM", 1), (" centimeters", 1), ("mm", 10)),
    "mm": ((" MM", 1), (" millimeters", 1), ("cm", 0.1)),
    "g": ((" grams", 1), (" G", 1), ("kg", 0.001)),
    "kg": ((" kilo", 1), ("KG", 1), ("g", 1000)),
    "pcs": ((" pieces", 1), ("PCS", 1), (" pc", 1)),
}
_LONG_UNITS = {"milliliter": "ml", "liter": "l", "centimeter": "cm", "millimeter": "mm", "gram": "g", "piece": "pcs"}

_RETAIL_PREFIXES = (
    "[COD]",
    "【Ready Stock】",
    "(100% Authentic)",
    "Lazada Official Store -",
    "HOT SALE!",
    "*Brand New*",
)
_RETAIL_SUFFIXES = (
    "| Free Shipping",
    "- Cash on Delivery",
    "50% OFF",
    "Best Seller",
    "(Original)",
    "High Quality",
    "on hand, Manila",
    "w/ guarantee!!",
)


def disguises(problem: Problem, rng: Random) -> dict[DisguiseKind, Problem]:
    """The problem in each disguise, under new ids."""
    makers: dict[DisguiseKind, Callable[[Problem, Random], Problem]] = {
        "reorder": _reordered,
        "retailer": _at_another_retailer,
        "unit": _in_other_units,
    }
    return {
        kind: msgspec.structs.replace(make(problem, rng), problem_id=f"p_{rng.getrandbits(64):016x}")
        for kind, make in makers.items()
    }


def relisted(title: str, rng: Random) -> str:
    """The title as another retailer would write it: other order, case, punctuation, measures and selling words."""
    words = respelled(title, rng).split(" ")
    cut = rng.randrange(len(words))
    # a number stays with its unit and its neighbours
    is_bound = any(re.search(r"\d|^of$|^set$", word, re.I) for word in (words[cut - 1], words[cut]))
    halves = (words,) if is_bound else (words[cut:], words[:cut])
    text = rng.choice((" ", ", ", " / ", " - ")).join(" ".join(half) for half in halves if half)
    text = rng.choice((str.upper, str.lower, str.title, str))(text)
    if rng.random() < 0.7:
        text = f"{rng.choice(_RETAIL_PREFIXES)} {text}"
    return f"{text} {rng.choice(_RETAIL_SUFFIXES)}" if rng.random() < 0.7 else text


def respelled(text: str, rng: Random) -> str:
    """The text with every measure spelled otherwise or converted; equal to it when it has none."""

    def another(found: re.Match[str]) -> str:
        unit = found[2].lower()
        unit = _LONG_UNITS.get(unit.removesuffix("s"), unit)
        spelling, factor = rng.choice(_RESPELLED[unit])
        return f"{float(found[1]) * factor:.10g}{spelling}"

    return _MEASURE.sub(another, text)


def _names(problem: Problem) -> list[str]:
    """What the query calls each item: the words of the title that the query holds, in the title's order."""
    said = {word.lower() for word in _WORD.findall(problem.query)}
    names = []
    for item in problem.rewards:
        words = _WORD.findall(item.title[0]) or [item.title[0]]
        kept = list(dict.fromkeys(word for word in words if word.lower() in said))
        names.append(" ".join(kept if len(kept) > 1 else words[:4]))
    return names


def _said(problem: Problem, names: Sequence[str], rng: Random) -> Problem:
    query = say_problem(problem.bucket, names, problem.rewards, problem.voucher, rng)
    return msgspec.structs.replace(problem, query=query)


def _reordered(problem: Problem, rng: Random) -> Problem:
    items = list(zip(_names(problem), problem.rewards, strict=True))
    rng.shuffle(items)
    turned = [
        msgspec.structs.replace(
            item,
            attributes=tuple(rng.sample(item.attributes, len(item.attributes))),
            sku_options=tuple(dict(reversed(option.items())) for option in item.sku_options),
        )
        for _, item in items
    ]
    names = [" ".join(rng.sample(words, len(words))) for words in (name.split(" ") for name, _ in items)]
    return _said(msgspec.structs.replace(problem, rewards=tuple(turned)), names, rng)


def _at_another_retailer(problem: Problem, rng: Random) -> Problem:
    names = _names(problem)
    items = tuple(
        msgspec.structs.replace(
            item,
            product_id=str(rng.randrange(6_000_000_000, 7_000_000_000)),
            title=tuple(relisted(title, rng) for title in item.title),
            service=(),
            price=tuple(  # a little wider, as another shop's price would need it
                PriceRule(
                    mode=rule.mode,
                    low=None if rule.low is None else float(math.floor(rule.low * rng.uniform(0.85, 1))),
                    high=None if rule.high is None else float(math.ceil(rule.high * rng.uniform(1, 1.15))),
                )
                for rule in item.price
            ),
        )
        for item in problem.rewards
    )
    return _said(msgspec.structs.replace(problem, rewards=items), names, rng)


def _in_other_units(problem: Problem, rng: Random) -> Problem:
    names = [respelled(name, rng) for name in _names(problem)]
    items = tuple(
        msgspec.structs.replace(
            item,
            title=tuple(respelled(title, rng) for title in item.title),
            sku_options=tuple(
                {key: respelled(value, rng) for key, value in option.items()} for option in item.sku_options
            ),
            attributes=tuple(
                {key: tuple(respelled(value, rng) for value in values) for key, values in rule.items()}
                for rule in item.attributes
            ),
        )
        for item in problem.rewards
    )
    respoken = _said(msgspec.structs.replace(problem, rewards=items), names, rng)
    query = re.sub(r"\b(\d[\d.]*) (?:PHP|pesos)\b", r"₱\1", respoken.query)
    return msgspec.structs.replace(respoken, query=query)
