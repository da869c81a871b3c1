"""Problems asked again under other titles: do they fall into their source's cluster, and do unrelated ones stay out?

Only answers count, so a disguise changes titles: `retailer` lists a product as another shop would, `unit` spells and
converts its measures. The code that keeps pools apart shares no table with this file, so that it cannot pass by knowing
the tricks. Two problems are *unrelated* when no answer title of one resembles one of the other (`lexical/1`).
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

import msgspec

from problems.clusters import NO_CATALOGUE, ProductClasses, answer_marks
from problems.model import Problem
from problems.titles import resemble

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
_PREFIXES = ("[COD]", "【Ready Stock】", "(100% Authentic)", "Lazada Official Store -", "HOT SALE!", "*Brand New*")
_SUFFIXES = ("| Free Shipping", "- Cash on Delivery", "50% OFF", "Best Seller", "(Original)", "on hand, Manila")


def relisted(title: str, rng: Random) -> str:
    """The title as another retailer would write it: other order, case, punctuation, measures and selling words."""
    words = respelled(title, rng).split(" ")
    cut = rng.randrange(len(words))
    # a number stays with its unit and its neighbours
    is_bound = any(re.search(r"\d|^of$|^set$", word, re.I) for word in (words[cut - 1], words[cut]))
    halves = (words,) if is_bound else (words[cut:], words[:cut])
    text = rng.choice((" ", ", ", " / ", " - ")).join(" ".join(half) for half in halves if half)
    text = rng.choice((str.upper, str.lower, str.title, str))(text)
    return f"{rng.choice(_PREFIXES)} {text} {rng.choice(_SUFFIXES)}"


def respelled(text: str, rng: Random) -> str:
    """The text with every measure spelled otherwise or converted; equal to it when it has none."""

    def another(found: re.Match[str]) -> str:
        unit = found[2].lower()
        spelling, factor = rng.choice(_RESPELLED[_LONG_UNITS.get(unit.removesuffix("s"), unit)])
        return f"{float(found[1]) * factor:.10g}{spelling}"

    return _MEASURE.sub(another, text)


DISGUISES: Mapping[str, Callable[[str, Random], str]] = {"retailer": relisted, "unit": respelled}


def count_in_cluster(
    problems: Sequence[Problem], *, seed: int, classes: ProductClasses = NO_CATALOGUE
) -> dict[str, int]:
    """How many problems, by kind of disguise, the classes put beside their source."""
    rng, counts = Random(f"leak guard {seed}"), dict.fromkeys(DISGUISES, 0)
    for source, (kind, disguise) in itertools.product(problems, DISGUISES.items()):
        items = (
            msgspec.structs.replace(item, title=tuple(disguise(title, rng) for title in item.title))
            for item in source.rewards
        )
        one = msgspec.structs.replace(source, rewards=tuple(items))
        counts[kind] += not title_marks(source, classes).isdisjoint(title_marks(one, classes))
    return counts


def title_marks(problem: Problem, classes: ProductClasses = NO_CATALOGUE) -> frozenset[str]:
    """The marks of the problem's answers without their product ids."""
    nameless = tuple(msgspec.structs.replace(item, product_id="") for item in problem.rewards)
    return answer_marks(msgspec.structs.replace(problem, rewards=nameless), classes) - {"id "}


def falsely_merged(problems: Iterable[Problem], classes: ProductClasses = NO_CATALOGUE) -> frozenset[str]:
    """The ids of the problems that share an answer class with an unrelated one."""
    by_mark: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        for mark in title_marks(problem, classes):
            by_mark[mark].append(problem)
    false: set[str] = set()
    for sharing in by_mark.values():
        for left, right in itertools.combinations(sharing, 2):
            titles = ([title for item in problem.rewards for title in item.title] for problem in (left, right))
            if not any(resemble(mine, theirs) for mine, theirs in itertools.product(*titles)):
                false |= {left.problem_id, right.problem_id}
    return frozenset(false)
