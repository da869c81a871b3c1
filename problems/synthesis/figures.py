"""Figures: price bounds, services and voucher terms read out of free English text.

Total on any text, and cautious: a bound counts only beside a sign of money, a service only when it is not
denied ("without cash on delivery"), and what can be read as an amount but not as a bound is reported as `stray`
instead of being passed over. It reads wordings of our own problems (`problems.synthesis.wording`); it does not try to
understand everything people may write.
"""

from __future__ import annotations

import re

import msgspec

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
