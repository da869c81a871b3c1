"""Wording: can every constraint of a problem be read back from its query, item by item, and no other?

It reads what `problems.constraints` says: a name, then constraints between commas. Every item is named by at least two
words of its title, in order, each in a sentence of its own; within an item's span each SKU and attribute value stands
beside its key, every service has a known name, every price bound its figures, and there is no other bound, amount or
service: words of a name or of a value may sound like one.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from problems.axes import Pair, attribute_pairs_of, sku_pairs_of
from problems.constraints import say_voucher, spoken
from problems.model import Problem, RewardItem
from problems.titles import title_words

NAME_WORDS_MIN = 2  # words of its title by which an item is recognised
_WORD = re.compile(r"[a-z0-9]+")
_BOUNDARY = re.compile(r"(?<=[.;!?])\s+|\n+|(?<=\s)(?=\(\d\)\s)")


def reads_back(problem: Problem) -> bool:
    """Whether the problem's query says each constraint of each item once, and nothing else."""
    goods = _goods(problem)
    spans = _spans(problem.rewards, goods)
    if spans is None:
        return False
    return all(_says(goods[start:end], item) for item, (start, end) in zip(problem.rewards, spans, strict=True))


def said_names(problem: Problem) -> tuple[tuple[str, ...], ...]:
    """Per item, the words of its title that its span of the query says, in the title's order.

    Where the items can't be distinguished, the words that the whole text about goods says.
    """
    goods = _goods(problem)
    spans = _spans(problem.rewards, goods) or [(0, len(goods))] * len(problem.rewards)
    names = []
    for item, (start, end) in zip(problem.rewards, spans, strict=True):
        said = title_words(goods[start:end])
        names.append(tuple(dict.fromkeys(word for word in _WORD.findall(item.title[0].lower()) if word in said)))
    return tuple(names)


def _goods(problem: Problem) -> str:
    """The query without the paragraph on budget and voucher."""
    return problem.query.removesuffix(say_voucher(problem.voucher)) if problem.voucher else problem.query


def _sentences(items: Sequence[RewardItem], text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence; a full stop inside a value that is asked for ends none."""
    masked = text
    for value in {value for item in items for _, value in _pairs(item) if not value.isalnum()}:
        masked = re.sub(re.escape(value), lambda found: "x" * len(found.group()), masked, flags=re.I)
    cuts = [0, *(found.end() for found in _BOUNDARY.finditer(masked)), len(text)]
    return [(start, end) for start, end in itertools.pairwise(cuts) if text[start:end].strip()]


def _spans(items: Sequence[RewardItem], goods: str) -> list[tuple[int, int]] | None:
    """Each item's stretch of the text: from the sentence that names it to the next item's. None: not distinguished.

    The sentences are those that together hold the most title words, in item order; of equals, the earliest.
    """
    sentences = _sentences(items, goods)
    if len(items) == 1:
        sentences = [(0, len(goods))]
    said = [title_words(goods[start:end]) for start, end in sentences]
    # best[s]: (words held, anchors) for the items so far, the last one anchored in sentence s or earlier
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ())] * (len(said) + 1)
    for item in items:
        named = title_words(item.title[0])
        following: list[tuple[int, tuple[int, ...]] | None] = [None]
        for place, words in enumerate(said):
            held, before, choice = len(named & words), best[place], following[-1]
            is_named = held >= min(NAME_WORDS_MIN, len(named))
            if before is not None and is_named and (choice is None or before[0] + held > choice[0]):
                choice = (before[0] + held, (*before[1], place))
            following.append(choice)
        best = following
    if best[-1] is None:
        return None
    starts = [sentences[place][0] for place in best[-1][1]]
    return list(zip(starts, [*starts[1:], len(goods)], strict=True))


def _says(text: str, item: RewardItem) -> bool:
    """Whether an item's span says what the item asks. Each pair takes its own place, the longest values first."""
    left = text
    for key, value in sorted(_pairs(item), key=lambda pair: (-len(pair[1]), pair)):
        left, count = re.subn(rf"(?<!\w){re.escape(f'{spoken(key)} {value}')}(?!\w)", "\0", left, count=1, flags=re.I)
        if not count:
            return False
    for value in sorted((value for _, value in _pairs(item)), key=len, reverse=True):
        if any(letter.isdigit() for letter in value):  # numbers of asked values are no prices
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "\0", text, count=1, flags=re.I)
    bounds, stray = read_money(text)
    asked = Counter(  # each side only where the rule's mode looks at it
        Bounds(None if rule.mode == "less than" else rule.low, None if rule.mode == "greater than" else rule.high)
        for rule in item.price
    )
    return Counter(bounds) == asked and not stray and read_services(text) == {*item.service}


def _pairs(item: RewardItem) -> list[Pair]:
    return [*sku_pairs_of(item), *attribute_pairs_of(item)]


_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_SIGN = r"(?:PHP|₱|P(?=\s?\d)|pesos?)"
_AMOUNT = rf"(?P<before{{0}}>{_SIGN})?\s?`?{_NUMBER}`?(?P<after{{0}}>\s?{_SIGN})?(?![\w%])"
_ONE, _TWO = _AMOUNT.replace("{0}", "_1"), _AMOUNT.replace("{0}", "_2")

_BETWEEN = re.compile(
    rf"(?:between|ranging from|in the range of|range of|anywhere from|from)\s*{_ONE}\s*(?:and|to|up to|-|–|—)\s*{_TWO}",
    re.I,
)
_DASHED = re.compile(rf"(?<![\w.]){_ONE}\s*(?:-|–|—)\s*{_TWO}", re.I)
_BELOW = re.compile(
    r"\b(?:below|under|less than|cheaper than|at most|up to|(?:no|not) (?:more|higher|greater) than|lower than|"
    r"not (?:over|above|exceeding|beyond)|(?:a )?maximum(?: price)? of|(?:a )?ceiling of)\s*" + _ONE,
    re.I,
)
_ABOVE = re.compile(
    r"\b(?:above|over|more than|greater than|exceed(?:s|ing)?|at least|upwards? of|starting (?:at|from)|higher than|"
    r"(?:a )?minimum(?: price)? of|beyond|(?:no|not) (?:less|lower|cheaper) than|not (?:under|below)|north of)\s*"
    + _ONE,
    re.I,
)
_STRAY = re.compile(rf"{_SIGN}\s?`?{_NUMBER}|(?<![\w.,]){_NUMBER}`?\s?{_SIGN}\b", re.I)
_MONEY = re.compile(r"pric|cost|spend|pay(?!able)", re.I)
_MONEY_REACH = 24  # characters before a bound in which a word about money may stand

_SERVICES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("official", re.compile(r"\b(?:laz\s?mall|official (?:store|shop|mall)s?)\b", re.I)),
    (
        "freeShipping",
        re.compile(
            r"\b(?:(?:free|complimentary|no-cost) (?:shipping|delivery)|ships? (?:for )?free|"
            r"(?:shipping|delivery) (?:is|should be|must be|has to be) free|"
            r"(?:no|without(?: a| any)?) (?:shipping|delivery) (?:fee|cost|charge)s?)\b",
            re.I,
        ),
    ),
    (
        "COD",
        re.compile(r"\b(?:(?i:cash[- ]on[- ]delivery|pay(?:ment|able|ing)? (?:up)?on (?:delivery|arrival))|COD)\b"),
    ),
    ("flashsale", re.compile(r"\b(?:laz\s?flash|flash[- ](?:sale|deal)s?)\b", re.I)),
)
_DENIAL = re.compile(
    r"\b(?:no|not|non|never|without|except|avoid|rather than|instead of|\w+n['’]t)\b[^,.;:!?\n]{0,24}$", re.I
)


class Bounds(msgspec.Struct, frozen=True):
    """One price bound, PHP, inclusive; None is an open side."""

    low: float | None = None
    high: float | None = None


def read_money(text: str) -> tuple[list[Bounds], list[float]]:
    """Every price bound of `text` in order, and the amounts that belong to none."""
    bounds: list[tuple[int, Bounds]] = []
    for pattern in (_BETWEEN, _DASHED, _BELOW, _ABOVE):
        for found in list(pattern.finditer(text)):
            # a sign of money beside it, or a word about money just before it
            if not any(group for name, group in found.groupdict().items() if name.startswith(("before", "after"))):
                clause = re.split(r"[,.;:!?\n]", text[max(0, found.start() - _MONEY_REACH) : found.end()])
                if not _MONEY.search(clause[-1]):
                    continue
            numbers = [_amount(number) for number in found.groups() if number and number[0].isdigit()]
            if len(numbers) == 2:
                bound = Bounds(*numbers)
            else:
                bound = Bounds(None, numbers[0]) if pattern is _BELOW else Bounds(numbers[0])
            bounds.append((found.start(), bound))
            text = text[: found.start()] + "\0" * (found.end() - found.start()) + text[found.end() :]
    stray = [_amount(found.group(1) or found.group(2)) for found in _STRAY.finditer(text)]
    return [bound for _, bound in sorted(bounds, key=lambda pair: pair[0])], stray


def read_services(text: str) -> frozenset[str]:
    """Catalogue names of the services that `text` asks for and does not deny."""
    return frozenset(
        name
        for name, pattern in _SERVICES
        if any(not _DENIAL.search(text, max(0, at.start() - 40), at.start()) for at in pattern.finditer(text))
    )


def _amount(digits: str) -> float:
    return float(digits.replace(",", ""))
