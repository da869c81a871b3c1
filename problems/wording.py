"""Wording: does a text say every constraint of a problem, item by item, and none of its own?

A wording that passes names every item by at least two words of its title, in order, each in a sentence of its own;
within an item's span it says every SKU and attribute value verbatim, beside its key where the value alone could mean
something else, every service by a known name, every price bound with its figures, and no other bound and no other
service; and it ends with the paragraph on budget and voucher as the benchmark writes it. What is missing or was added
is a `Flaw` that names the constraint. It is strict rather than clever: a good wording that it can't read is refused and
asked for again, while a constraint that went missing does not pass. It can't tell an attribute that was added.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from problems.axes import Pair, attribute_pairs_of, sku_pairs_of
from problems.constraints import say_voucher
from problems.model import Problem, RewardItem
from problems.titles import title_words

NAME_WORDS_MIN = 2  # words of its title by which an item is recognised
_WORD = re.compile(r"[a-z0-9]+")
_BOUNDARY = re.compile(r"(?<=[.;!?])\s+|\n+|(?<=\s)(?=\(\d\)\s)")
_A_SHOP = re.compile(r"\b(?:shops?|stores?|sellers?|one place)\b", re.I)
_GAP = r"(?:\s*[:=]\s*|\s+(?:is |of |as |in |named |called )?)"
_PLAIN_LETTERS_MIN = 3  # a shorter value, or one without letters, needs its key beside it
_VAGUE_VALUES = frozenset({"yes", "not", "the", "and", "for", "all", "new", "one", "any", "set", "other", "standard"})

# Words that may stand next to a value without making it another value.
_NEUTRAL_TEXT = """
a an and also are as at be but buy by can cash come comes coming cost costing costs deal delivery find for
free from get has have having i in is it its ideally lazflash lazmall like look looking made make
must my need needs of on or ordered paid payable please preferably price priced pricing show so sold
some that the their them then these this to want wants which while with you available offered featuring
including one ones item items option
"""
_NEUTRAL = frozenset(_NEUTRAL_TEXT.split())


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong with a wording. `slot` is the item's place from 0, None for the voucher or the whole."""

    slot: int | None = None
    what: str  # the constraint, in words: `color family: red`, `price above 81 PHP`, `service COD`
    is_added: bool = False  # said, and not asked for

    @property
    def detail(self) -> str:
        """The constraint with its place."""
        return self.what if self.slot is None else f"reward[{self.slot}]: {self.what}"


def check_wording(problem: Problem, query: str | None = None) -> tuple[Flaw, ...]:
    """What `query` (the problem's own without it) loses or adds. Empty: every constraint survived."""
    text = problem.query if query is None else query
    goods, has_terms = _parts(problem, text)
    spans = _spans(problem.rewards, goods)
    if spans is None:
        # the items whose name is nowhere, or all of them when only their order is wrong
        said = title_words(goods)
        lost = [slot for slot, item in enumerate(problem.rewards) if _names(item, said) < _name_least(item)]
        what = "name" if lost else "name in a sentence of its own, in order"
        return tuple(
            Flaw(slot=slot, what=f"{what}: {problem.rewards[slot].title[0]!r}")
            for slot in lost or range(len(problem.rewards))
        )
    flaws = []
    if len(spans) > 1:  # bounds and services in the stretch that belongs to no item
        before = goods[: spans[0][0]]
        bounds, stray = read_money(before)
        added = [f"service {name}" for name in sorted(read_services(before))]
        added += [_price_words(bound) for bound in bounds]
        added += [f"amount {amount:.10g}" for amount in stray]
        flaws += [Flaw(what=what, is_added=True) for what in added]
    if problem.bucket == "shop" and not _A_SHOP.search(goods):
        flaws.append(Flaw(what="all from one shop"))
    for slot, (item, (start, end)) in enumerate(zip(problem.rewards, spans, strict=True)):
        flaws += _item_flaws(item, goods[start:end], slot)
    if not has_terms:
        flaws.append(Flaw(what="voucher and budget in the benchmark's own sentences"))
    return tuple(flaws)


def said_names(problem: Problem, query: str | None = None) -> tuple[tuple[str, ...], ...]:
    """Per item, the words of its title that its span of the query says, in the title's order.

    Where the items can't be distinguished, the words that the whole text about goods says.
    """
    goods, _ = _parts(problem, problem.query if query is None else query)
    spans = _spans(problem.rewards, goods) or [(0, len(goods))] * len(problem.rewards)
    names = []
    for item, (start, end) in zip(problem.rewards, spans, strict=True):
        said = title_words(goods[start:end])
        names.append(tuple(dict.fromkeys(word for word in _WORD.findall(item.title[0].lower()) if word in said)))
    return tuple(names)


def _parts(problem: Problem, text: str) -> tuple[str, bool]:
    """The text about goods, and whether budget and voucher stand behind it in the benchmark's own sentences."""
    terms = say_voucher(problem.voucher) if problem.voucher else ""
    return text.removesuffix(terms), text.endswith(terms)


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
    said = [title_words(goods[start:end]) for start, end in sentences]
    if len(items) == 1:
        everything = title_words(goods)
        return [(0, len(goods))] if _names(items[0], everything) >= _name_least(items[0]) else None
    # best[s]: (words held, anchors) for the items so far, the last one anchored in sentence s or earlier
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ())] * (len(said) + 1)
    for item in items:
        following: list[tuple[int, tuple[int, ...]] | None] = [None]
        for place, words in enumerate(said):
            held, before, choice = _names(item, words), best[place], following[-1]
            if before is not None and held >= _name_least(item) and (choice is None or before[0] + held > choice[0]):
                choice = (before[0] + held, (*before[1], place))
            following.append(choice)
        best = following
    if best[-1] is None:
        return None
    starts = [sentences[place][0] for place in best[-1][1]]
    return list(zip(starts, [*starts[1:], len(goods)], strict=True))


def _names(item: RewardItem, said: frozenset[str]) -> int:
    return len(title_words(item.title[0]) & said)


def _name_least(item: RewardItem) -> int:
    return min(NAME_WORDS_MIN, len(title_words(item.title[0])))


def _item_flaws(item: RewardItem, text: str, slot: int) -> Iterator[Flaw]:
    # Each pair takes its own place in the text: first those that stand beside their key, the longest values first, then
    # those that stand alone.
    ink = _Ink(text, title_words(item.title[0]))
    pairs = sorted(_pairs(item), key=lambda pair: (-len(pair[1]), pair))
    for key, value in [pair for pair in pairs if not ink.take_beside_key(*pair)]:
        # alone it could mean something else: short, a number, a common word, or words of the title
        needs_key = (
            sum(letter.isalpha() for letter in value) < _PLAIN_LETTERS_MIN
            or value in _VAGUE_VALUES
            or title_words(value) <= title_words(item.title[0])
        )
        if needs_key or not ink.take_alone(value):
            yield Flaw(slot=slot, what=f"{key.replace('_', ' ')}: {value}")
    said = read_services(text)
    for name in item.service:
        if name not in said:
            yield Flaw(slot=slot, what=f"service {name}")
    for name in sorted(said.difference(item.service)):
        yield Flaw(slot=slot, what=f"service {name}", is_added=True)
    for value in sorted((value for _, value in _pairs(item)), key=len, reverse=True):
        if any(letter.isdigit() for letter in value):  # numbers of asked values are no prices
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "\0", text, count=1, flags=re.I)
    bounds, stray = read_money(text)
    asked = Counter(  # each side only where the rule's mode looks at it
        Bounds(None if rule.mode == "less than" else rule.low, None if rule.mode == "greater than" else rule.high)
        for rule in item.price
    )
    for bound in (asked - Counter(bounds)).elements():
        yield Flaw(slot=slot, what=_price_words(bound))
    for bound in (Counter(bounds) - asked).elements():
        yield Flaw(slot=slot, what=_price_words(bound), is_added=True)
    for amount in stray:
        yield Flaw(slot=slot, what=f"amount {amount:.10g}", is_added=True)


class _Ink:
    """A text in which what was read is struck out, so that no place counts twice."""

    def __init__(self, text: str, name_words: Iterable[str]) -> None:
        self._text = text
        self._neutral = _NEUTRAL.union(name_words)

    def take_beside_key(self, key: str, value: str) -> bool:
        """Strike out `key value` or `value key`; False when neither is there whole and undenied."""
        spoken, said = re.escape(key.replace("_", " ")).replace(r"\ ", r"[\s_-]+"), re.escape(value)
        first = re.compile(rf"(?<!\w){spoken}{_GAP}[\"'“‘`]?(?P<value>{said})(?!\w)", re.I)
        last = re.compile(rf"(?<!\w)(?P<value>{said})[\"'”’`]?\s+{spoken}(?!\w)", re.I)
        return self._take(first, is_left_free=True) or self._take(last, is_left_free=False)

    def take_alone(self, value: str) -> bool:
        """Strike out a value that is there whole and undenied."""
        return self._take(re.compile(rf"(?<!\w)(?P<value>{re.escape(value)})(?!\w)", re.I), is_left_free=False)

    def _take(self, pattern: re.Pattern[str], *, is_left_free: bool) -> bool:
        for found in pattern.finditer(self._text):
            whole = self._is_free(self._text[found.end() :], _RIGHT) and (
                is_left_free or self._is_free(self._text[: found.start()], _LEFT)
            )
            if whole and not is_denied(self._text, found.start()):
                struck = "\0" * (found.end() - found.start())
                self._text = self._text[: found.start()] + struck + self._text[found.end() :]
                return True
        return False

    def _is_free(self, beside: str, side: re.Pattern[str]) -> bool:
        """Whether the neighbour leaves the value as it is: a mark, something struck out, or a neutral word."""
        neighbour = side.search(beside)
        return neighbour is None or neighbour.group(1).lower() in self._neutral


_RIGHT = re.compile(r"\A[\"'”’`]?[ \t-]+(\w+)|\A([-/+&.]\w+)")
_LEFT = re.compile(r"(\w+)[ \t-]+[\"'“‘`]?\Z")


def _pairs(item: RewardItem) -> list[Pair]:
    return [*sku_pairs_of(item), *attribute_pairs_of(item)]


def _price_words(bound: Bounds) -> str:
    if bound.low is not None and bound.high is not None:
        return f"price between {bound.low:.10g} and {bound.high:.10g} PHP"
    return f"price above {bound.low:.10g} PHP" if bound.low is not None else f"price below {bound.high or 0:.10g} PHP"


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
        if any(not is_denied(text, found.start()) for found in pattern.finditer(text))
    )


def is_denied(text: str, start: int) -> bool:
    """Whether the words shortly before `start`, in the same clause, deny what follows."""
    return _DENIAL.search(text, max(0, start - 40), start) is not None


def _amount(digits: str) -> float:
    return float(digits.replace(",", ""))
