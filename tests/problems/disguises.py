"""Disguises: one problem made to look like another, to test what keeps the pools apart.

Six ways in which a problem comes back under another surface (paper A.4), each sound, each with answers of the
same product class, all drawn from the generator passed in. `paraphrase` says other words of the titles in other
sentences; `reorder` permutes items, constraints and words; `synonym` swaps words for others of the same meaning;
`retailer` asks for the same things as another shop lists them; `unit` spells and converts measures; `voucher` gives a
new voucher, or gives one to a problem that had none. The code that keeps pools apart shares no table with this file, so
that it cannot pass by knowing the tricks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Literal

import msgspec

from problems.constraints import say_problem
from problems.model import PriceRule, Problem, Voucher
from problems.score import discounted_total, total_price

DisguiseKind = Literal["paraphrase", "reorder", "synonym", "retailer", "unit", "voucher"]
DISGUISE_KINDS: tuple[DisguiseKind, ...] = ("paraphrase", "reorder", "synonym", "retailer", "unit", "voucher")

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
_SYNONYMS = {
    "bag": "pouch",
    "backpack": "rucksack",
    "bottle": "flask",
    "box": "container",
    "cable": "cord",
    "case": "casing",
    "charger": "adapter",
    "children": "kids",
    "coat": "jacket",
    "cover": "sleeve",
    "cup": "mug",
    "earphones": "earbuds",
    "flashlight": "torch",
    "holder": "stand",
    "kids": "children",
    "lamp": "light",
    "light": "lamp",
    "mat": "rug",
    "men": "gentlemen",
    "mobile": "cellphone",
    "pants": "trousers",
    "phone": "mobile",
    "portable": "handy",
    "shirt": "tee",
    "shoes": "footwear",
    "snack": "treat",
    "toy": "plaything",
    "vacuum": "hoover",
    "women": "ladies",
    "wireless": "cordless",
}
_ASKING = (
    ("I'm looking for", "I am searching for"),
    ("Looking for", "In search of"),
    ("Show me", "Let me see"),
    ("Can you help me find", "Could you locate"),
    ("I want to buy", "I wish to purchase"),
    ("priced above", "that costs over"),
    ("pesos", "PHP"),
    ("with free shipping", "shipped for free"),
)


def disguises(
    problem: Problem, rng: Random, prices_php: Mapping[str, float] | None = None
) -> dict[DisguiseKind, Problem]:
    """The problem in each disguise, under new ids. `prices_php`: what the answers cost, by product id.

    A problem without a voucher gets one only when its prices are known; the kind is missing otherwise.
    """
    makers: dict[DisguiseKind, Callable[[Problem, Random], Problem]] = {
        "paraphrase": _paraphrased,
        "reorder": _reordered,
        "synonym": _with_synonyms,
        "retailer": _at_another_retailer,
        "unit": _in_other_units,
    }
    made = {kind: make(problem, rng) for kind, make in makers.items()}
    total_php = _total_at_most(problem, prices_php or {})
    if total_php is not None:
        made["voucher"] = _with_other_voucher(problem, total_php, rng)
    return {
        kind: msgspec.structs.replace(one, problem_id=f"p_{rng.getrandbits(64):016x}") for kind, one in made.items()
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


def _paraphrased(problem: Problem, rng: Random) -> Problem:
    names = []
    for item in problem.rewards:
        words = list(dict.fromkeys(_WORD.findall(item.title[0]))) or [item.title[0]]
        chosen = set(rng.sample(words, min(len(words), rng.randint(3, 6))))
        names.append(" ".join(word for word in words if word in chosen))
    return _said(problem, names, rng)


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


def _with_synonyms(problem: Problem, rng: Random) -> Problem:
    names = [" ".join(_SYNONYMS.get(word.lower(), word) for word in name.split(" ")) for name in _names(problem)]
    reworded = _said(problem, names, rng)
    query = reworded.query
    for phrase, other in _ASKING:
        query = query.replace(phrase, other)
    return msgspec.structs.replace(reworded, query=query)


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


def _total_at_most(problem: Problem, prices_php: Mapping[str, float]) -> float | None:
    """What the answers cost together in PHP; when prices are unknown, the most that the voucher's own terms allow."""
    if all(item.product_id in prices_php for item in problem.rewards):
        return total_price(prices_php[item.product_id] for item in problem.rewards)
    terms = problem.voucher
    if terms is None:
        return None
    if terms.discount_type == "fixed":
        return terms.budget + (terms.face_value or 0)
    discount, cap = terms.discount or 0, terms.cap or 0
    return max(terms.budget + cap, terms.budget / (1 - discount)) if discount < 1 else terms.budget + cap


def _with_other_voucher(problem: Problem, total_php: float, rng: Random) -> Problem:
    """Another voucher that the answers meet: its threshold is no higher than before, its budget holds what is left."""
    ceiling = problem.voucher.threshold if problem.voucher else total_php
    threshold = float(max(1, math.floor(ceiling * rng.uniform(0.3, 0.95))))
    is_fixed = rng.random() < 0.5
    draft = Voucher(
        voucher_type="shop" if problem.bucket == "shop" else "platform",
        discount_type="fixed" if is_fixed else "percentage",
        threshold=threshold,
        budget=total_php,
        face_value=float(max(1, math.floor(threshold * rng.uniform(0.1, 0.5)))) if is_fixed else None,
        discount=None if is_fixed else rng.randint(10, 50) / 100,
        cap=None if is_fixed else threshold,
    )
    voucher = msgspec.structs.replace(draft, budget=float(math.ceil(max(1.0, discounted_total(total_php, draft)))))
    items = tuple(msgspec.structs.replace(item, price=()) for item in problem.rewards)
    return _said(
        msgspec.structs.replace(problem, bucket="voucher", rewards=items, voucher=voucher), _names(problem), rng
    )
