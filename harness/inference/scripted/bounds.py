"""Numbers and services in a request's words: price bounds, service names, voucher terms. Pure and total."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

_NUMBER = r"(?:php|₱|p)?\s?`?(\d[\d,]*(?:\.\d+)?)`?(?:\s?(?:php|pesos?|₱))?"
_BETWEEN = re.compile(
    r"(?:between|from|ranging from|in the range of|within|priced at|costing)?\s*"
    rf"{_NUMBER}\s*(?:and|to|-|–)\s*{_NUMBER}",
    re.I,
)
_ABOVE = re.compile(
    r"(?:above|over|more than|greater than|exceed(?:s|ing)?|at least|upwards? of|starting (?:at|from)|higher than|"
    rf"(?:a )?minimum(?: price)? of|beyond|not less than|from)\s*{_NUMBER}",
    re.I,
)
_BELOW = re.compile(
    r"(?:below|under|less than|cheaper than|at most|up to|no more than|lower than|not exceeding|"
    rf"(?:a )?maximum(?: price)? of)\s*{_NUMBER}",
    re.I,
)
_MONEY = re.compile(r"pric|cost|php|peso|₱|budget|\bp\d", re.I)
_CONTEXT_BEFORE, _CONTEXT_AFTER = 24, 10
_SERVICES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("official", re.compile(r"\b(?:laz\s?mall|official (?:store|shop|mall)s?|official)\b", re.I)),
    (
        "freeShipping",
        re.compile(r"\b(?:(?:free|complimentary|no-cost) (?:shipping|delivery)|ships? free|free of shipping)\b", re.I),
    ),
    ("COD", re.compile(r"\b(?:cash[- ]on[- ]delivery|cod|pay(?:ment)? (?:up)?on (?:delivery|arrival))\b", re.I)),
    ("flashsale", re.compile(r"\b(?:laz\s?flash|flash[- ]?(?:sale|deal)s?)\b", re.I)),
)


class VoucherTerms(msgspec.Struct, frozen=True, kw_only=True):
    """A voucher as the request words it. Amounts in PHP; `percent` is 42 for 42 %."""

    scope: Literal["platform", "shop"]
    budget_php: float
    threshold_php: float = 0.0
    face_value_php: float | None = None
    percent: float | None = None
    cap_php: float | None = None

    def after_php(self, total_php: float) -> float:
        """What is left to pay for a basket that the voucher's scope admits."""
        if total_php < self.threshold_php:
            return total_php
        if self.percent is None:
            return total_php - (self.face_value_php or 0.0)
        discounted_php = total_php * (1 - self.percent / 100)
        return discounted_php if self.cap_php is None else max(discounted_php, total_php - self.cap_php)


def read_price(text: str) -> tuple[float | None, float | None, str]:
    """Lower bound, upper bound (PHP), and the text without the price phrase. Only numbers near a money word count."""
    for pattern, sides in ((_BETWEEN, (1, 2)), (_ABOVE, (1, None)), (_BELOW, (None, 1))):
        for found in pattern.finditer(text):
            context = text[max(0, found.start() - _CONTEXT_BEFORE) : found.end() + _CONTEXT_AFTER]
            if not _MONEY.search(context):
                continue
            low, high = (_amount(found.group(side)) if side else None for side in sides)
            return low, high, text[: found.start()] + " " + text[found.end() :]
    return None, None, text


def read_services(text: str) -> tuple[list[str], str]:
    """Service names of the catalogue that `text` asks for, and the text without those words."""
    services: list[str] = []
    for name, pattern in _SERVICES:
        if pattern.search(text):
            services.append(name)
            text = pattern.sub(" ", text)
    return services, text


def read_voucher(text: str) -> VoucherTerms:
    """The terms in the sentences that follow "My budget is"."""

    def number_after(pattern: str) -> float | None:
        found = re.search(pattern + r"\D{0,12}?`?₱?\s?(\d[\d,]*(?:\.\d+)?)", text, re.I)
        return _amount(found.group(1)) if found else None

    percent = re.search(r"(\d+(?:\.\d+)?)\s?%", text)
    return VoucherTerms(
        scope="shop" if re.search(r"same shop|one shop|single shop", text, re.I) else "platform",
        budget_php=number_after(r"budget is(?: only)?") or 0.0,
        threshold_php=number_after(r"(?:exceeds|reaches|at least|over)") or 0.0,
        face_value_php=None if percent else number_after(r"fixed discount of"),
        percent=float(percent.group(1)) if percent else None,
        cap_php=number_after(r"cap of") if percent else None,
    )


def _amount(digits: str) -> float:
    return float(digits.replace(",", ""))
