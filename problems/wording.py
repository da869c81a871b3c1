"""Wording: does a text say every constraint of a problem, item by item, and none of its own?

A wording that passes names every item by at least two words of its title, in order, each in a sentence of its
own; within an item's span it says every SKU and attribute value verbatim, beside its key where the value alone could
mean something else, every service by a known name, every price bound with its figures, and no other bound and no other
service; and a voucher's scope and figures, all of them and no others. What is missing is a `Flaw` with code P4016 that
names the constraint, what was added one with P4016. It is strict rather than clever: a good wording that it can't read
is refused and asked for again, while a constraint that went missing does not pass. It can't tell an attribute that was
added.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from problems.axes import Pair, attribute_pairs_of, sku_pairs_of
from problems.model import Problem, RewardItem, Voucher
from problems.titles import title_words

NAME_WORDS_MIN = 2  # words of its title by which an item is recognised
_WORD = re.compile(r"[a-z0-9]+")
_BOUNDARY = re.compile(r"(?<=[.;!?])\s+|\n+|(?<=\s)(?=\(\d\)\s)")
_VOUCHER_START = re.compile(r"\b(?:budget|voucher|spend|afford)\b", re.I)
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

    code: str  # P4016
    slot: int | None = None
    what: str  # the constraint, in words: `color family: red`, `price above 81 PHP`, `service COD`

    @property
    def detail(self) -> str:
        """The constraint with its place."""
        return self.what if self.slot is None else f"reward[{self.slot}]: {self.what}"


def check_wording(problem: Problem, query: str | None = None) -> tuple[Flaw, ...]:
    """What `query` (the problem's own without it) loses or adds. Empty: every constraint survived."""
    text = problem.query if query is None else query
    goods, terms = _parts(problem, text)
    spans = _spans(problem.rewards, goods)
    if spans is None:
        # the items whose name is nowhere, or all of them when only their order is wrong
        said = title_words(goods)
        lost = [slot for slot, item in enumerate(problem.rewards) if _names(item, said) < _name_least(item)]
        what = "name" if lost else "name in a sentence of its own, in order"
        return tuple(
            Flaw(code="P4016", slot=slot, what=f"{what}: {problem.rewards[slot].title[0]!r}")
            for slot in lost or range(len(problem.rewards))
        )
    flaws = []
    if len(spans) > 1:  # bounds and services in the stretch that belongs to no item
        before = goods[: spans[0][0]]
        money = read_money(before)
        added = [f"service {name}" for name in sorted(read_services(before))]
        added += [_price_words(bound) for bound in money.bounds]
        added += [f"amount {amount:.10g}" for amount in money.stray]
        flaws += [Flaw(code="P4016", what=what) for what in added]
    if problem.bucket == "shop" and not _A_SHOP.search(goods):
        flaws.append(Flaw(code="P4016", what="all from one shop"))
    for slot, (item, (start, end)) in enumerate(zip(problem.rewards, spans, strict=True)):
        flaws += _item_flaws(item, goods[start:end], slot)
    if problem.voucher is not None:
        flaws += _voucher_flaws(problem.voucher, terms)
    return tuple(flaws)


def check_rewording(problem: Problem, query: str) -> tuple[Flaw, ...]:
    """As `check_wording`; besides, every title word by which the problem's own query names an item must be kept."""
    flaws = check_wording(problem, query)
    if flaws:
        return flaws
    kept = said_names(problem, query)
    return tuple(
        Flaw(code="P4016", slot=slot, what=f"name word {word!r}")
        for slot, (own, new) in enumerate(zip(said_names(problem), kept, strict=True))
        for word in own
        if word not in new
    )


def said_names(problem: Problem, query: str | None = None) -> tuple[tuple[str, ...], ...]:
    """Per item, the words of its title that its span of the query says, in the title's order.

    Where the items can't be told apart, the words that the whole text about goods says.
    """
    goods, _ = _parts(problem, problem.query if query is None else query)
    spans = _spans(problem.rewards, goods) or [(0, len(goods))] * len(problem.rewards)
    names = []
    for item, (start, end) in zip(problem.rewards, spans, strict=True):
        said = title_words(goods[start:end])
        names.append(tuple(dict.fromkeys(word for word in _WORD.findall(item.title[0].lower()) if word in said)))
    return tuple(names)


def _parts(problem: Problem, text: str) -> tuple[str, str]:
    """The text about goods, and the text about budget and voucher: from the first sentence that names a voucher, or
    money to spend with its amount. A word of a title, as in "budget wallet", starts none."""
    if problem.voucher is None:
        return text, ""
    names = frozenset().union(*(title_words(item.title[0]) for item in problem.rewards))
    for start, end in _sentences(problem.rewards, text):
        found = _VOUCHER_START.search(text, start, end)
        is_terms = found and (found.group().lower() == "voucher" or any(map(str.isdigit, text[start:end])))
        if found and is_terms and (found.group().lower() not in names or "my budget" in text[start:end].lower()):
            return text[:start], text[start:]
    return text, ""


def _sentences(items: Sequence[RewardItem], text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence; a full stop inside a value that is asked for ends none."""
    masked = text
    for value in {value for item in items for _, value in _pairs(item) if not value.isalnum()}:
        masked = re.sub(re.escape(value), lambda found: "x" * len(found.group()), masked, flags=re.I)
    cuts = [0, *(found.end() for found in _BOUNDARY.finditer(masked)), len(text)]
    return [(start, end) for start, end in itertools.pairwise(cuts) if text[start:end].strip()]


def _spans(items: Sequence[RewardItem], goods: str) -> list[tuple[int, int]] | None:
    """Each item's stretch of the text: from the sentence that names it to the next item's. None: not told apart.

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
            yield Flaw(code="P4016", slot=slot, what=f"{key.replace('_', ' ')}: {value}")
    said = read_services(text)
    for name in item.service:
        if name not in said:
            yield Flaw(code="P4016", slot=slot, what=f"service {name}")
    for name in sorted(said.difference(item.service)):
        yield Flaw(code="P4016", slot=slot, what=f"service {name}")
    for value in sorted((value for _, value in _pairs(item)), key=len, reverse=True):
        if any(letter.isdigit() for letter in value):  # numbers of asked values are no prices
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "\0", text, count=1, flags=re.I)
    money = read_money(text)
    asked = Counter(  # each side only where the rule's mode looks at it
        Bounds(None if rule.mode == "less than" else rule.low, None if rule.mode == "greater than" else rule.high)
        for rule in item.price
    )
    for bound in (asked - Counter(money.bounds)).elements():
        yield Flaw(code="P4016", slot=slot, what=_price_words(bound))
    for bound in (Counter(money.bounds) - asked).elements():
        yield Flaw(code="P4016", slot=slot, what=_price_words(bound))
    for amount in money.stray:
        yield Flaw(code="P4016", slot=slot, what=f"amount {amount:.10g}")


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


def _voucher_flaws(voucher: Voucher, terms: str) -> Iterator[Flaw]:
    said = read_voucher(terms)
    is_shop = voucher.voucher_type == "shop"
    scope = "voucher for one shop" if is_shop else "voucher for all products"
    if said.says_one_shop == said.says_all_shops or said.says_one_shop != is_shop:
        yield Flaw(code="P4016", what=scope)
    amounts = [("budget", voucher.budget), ("threshold", voucher.threshold)]
    if voucher.discount_type == "fixed":
        amounts.append(("face_value", voucher.face_value or 0.0))
    else:
        amounts += [("percent", float(round(100 * (voucher.discount or 0)))), ("cap", voucher.cap or 0.0)]
    asked = Counter(amounts)
    found = Counter(said.amounts)
    for role, amount in (asked - found).elements():
        yield Flaw(code="P4016", what=f"voucher {role.replace('_', ' ')} {amount:.10g}")
    for role, amount in (found - asked).elements():
        yield Flaw(code="P4016", what=f"voucher {role.replace('_', ' ')} {amount:.10g}")


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

_ROLES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("budget", re.compile(r"\b(?:budget|spend|afford)", re.I)),
    ("threshold", re.compile(r"\b(?:exceed|at least|minimum|over|above|reach|more than|threshold|beyond)", re.I)),
    ("cap", re.compile(r"\b(?:capp?(?:ed)?\b|maximum|at most|up to|no more than)", re.I)),
    ("face_value", re.compile(r"\b(?:discount|off\b|reduc|takes?\b|taking|deduct|sav(?:e|ing)|worth)", re.I)),
)
_ENUMERATOR = re.compile(r"(?m)^\s*\(?\d[.)]\s+|\(\d\)\s")
_VOUCHER_NUMBER = re.compile(r"(?<![\w.])(?:PHP|₱)?\s?`?(\d[\d,]*(?:\.\d+)?)(%?)`?(?!\w)", re.I)
_VOUCHER_SENTENCE = re.compile(r"(?<=[.;!?])\s+|\n+")
_ONE_SHOP = re.compile(r"\b(?:same|one|single|a single) (?:shop|store|seller)\b", re.I)
_ALL_SHOPS = re.compile(
    r"\b(?:all (?:the )?(?:products|items|shops|stores|sellers)|any (?:product|item|shop|store|seller)|platform|"
    r"site-?wide|whole order)\b",
    re.I,
)


class Bounds(msgspec.Struct, frozen=True):
    """One price bound, PHP, inclusive; None is an open side."""

    low: float | None = None
    high: float | None = None


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """What a text says of prices: bounds in order, and amounts that belong to none."""

    bounds: tuple[Bounds, ...] = ()
    stray: tuple[float, ...] = ()


class VoucherWords(msgspec.Struct, frozen=True, kw_only=True):
    """What a text says of a voucher. `amounts` are (role, number) in order; `percent` is 42 for 42 %."""

    says_one_shop: bool
    says_all_shops: bool
    amounts: tuple[tuple[str, float], ...]


def read_money(text: str) -> Money:
    """Every price bound of `text`, and every stray amount."""
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
    stray = tuple(_amount(found.group(1) or found.group(2)) for found in _STRAY.finditer(text))
    return Money(bounds=tuple(bound for _, bound in sorted(bounds, key=lambda pair: pair[0])), stray=stray)


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


def read_voucher(text: str) -> VoucherWords:
    """The scope and every number of a voucher paragraph, each with the role its sentence gives it."""
    amounts = []
    for sentence in _VOUCHER_SENTENCE.split(_ENUMERATOR.sub("\n", text)):
        for found in _VOUCHER_NUMBER.finditer(sentence):
            role = "percent"
            if not found.group(2):  # the nearest word of a role before it, else the nearest after it
                places = [(word.start(), name) for name, pattern in _ROLES for word in pattern.finditer(sentence)]
                before = [place for place in places if place[0] < found.start()]
                after = [place for place in places if place[0] >= found.end()]
                role = max(before)[1] if before else min(after)[1] if after else "unknown"
            amounts.append((role, _amount(found.group(1))))
    return VoucherWords(
        says_one_shop=_ONE_SHOP.search(text) is not None,
        says_all_shops=_ALL_SHOPS.search(text) is not None,
        amounts=tuple(amounts),
    )


def _amount(digits: str) -> float:
    return float(digits.replace(",", ""))
