"""What the user asked for, read out of the request's words: wishes, bounds, services, voucher.

Total on any text. It reads back every phrasing of `problems.constraints`, and most of the public
ShoppingBench test set's (docs/benchmark.md#problems); a phrase it does not know stays among the search words, where it
does little harm.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

_WORD = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*")
_STOP_TEXT = """
a an and any are as at be been both but by can could do does each find for from get give has have help i i'd
i'll i'm im in into is it it's its itself kindly let like list looking made make me my need needs next of
offer offering offers on one ones options or other please preferably product products purchase recommend
request requests same search searching see sell selling sells shop shops should show shows so some something
store stores such suitable that the their them then there these they this those to together us want wanted
wants was we what which while who will with would you your also additionally first second third fourth lastly
finally item items price priced prices cost costs costing php peso pesos budget range available availability
comes come coming category service services guaranteed authenticity returns easy perks deal deals feature
features featuring must using buy shopping where another following all
"""
_STOP = frozenset(_STOP_TEXT.split())
_VOUCHER_START = re.compile(r"\bmy budget is\b", re.I)

# The two list forms of `problems.constraints`, then whatever people write.
_NUMBERED = re.compile(r"(?:^|\s)\([1-9]\)\s+")
_ORDINAL = re.compile(r"(?:^|[.:]\s+)(?:First|Second|Third|Fourth|Fifth|Lastly),\s+")
_LOOSE = re.compile(
    r"(?:^|\s)\(?[1-9][.)]\s+|;|\n+|(?:(?<=[.!?])\s+|^|,\s+)(?:and\s+)?(?:first|second|third|fourth|next|then|also|"
    r"additionally|lastly|finally|for the \w+ (?:one|item))\b[,:]?|(?<=[a-z)\d])[.!?]\s+(?=[A-Z0-9])",
    re.I,
)
_LIST_COMMA = re.compile(r",?\s+and\s+(?=(?:an?|some|the)\s)|,\s+(?=(?:an?|some|the)\s)|,\s+and\s+", re.I)
_OPENING = re.compile(
    r"^\s*(?:i'm looking for|looking for|show me|can you help me find|i want to buy|find)\s+(?:(?:an?|the)\s+)?", re.I
)
_CLOSING = re.compile(r"[.;]\s+(?:Can you|Please)\b.*$", re.S)
_CONSTRAINT = re.compile(r"(?:in|with|from|by|priced|costing|payable|sold|available)\s")
_LEADING = re.compile(r"^(?:(?:from|by) the (?=brand )|in |with )")
_SERVICE_FRAME = frozenset(["sold", "available", "payable", "with", "on", "by", "in", "a", "service", "deal"])
_NAME = re.compile(r"[a-z0-9]+(?: [a-z0-9]+){0,9}")
_PROSE_WORD = re.compile(r"\b(?:that|with|available|in|and)\b")
_WORDS_PER_WISH_MIN = 2

# Numbers and services: price bounds, service names, voucher terms.
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
_SERVICES = {
    "official": re.compile(r"\b(?:laz\s?mall|official (?:store|shop|mall)s?|official)\b", re.I),
    "freeShipping": re.compile(
        r"\b(?:(?:free|complimentary|no-cost) (?:shipping|delivery)|ships? free|free of shipping)\b", re.I
    ),
    "COD": re.compile(r"\b(?:cash[- ]on[- ]delivery|cod|pay(?:ment)? (?:up)?on (?:delivery|arrival))\b", re.I),
    "flashsale": re.compile(r"\b(?:laz\s?flash|flash[- ]?(?:sale|deal)s?)\b", re.I),
}


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


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One requested product. Prices in PHP, inclusive; None is an open side.

    `name` holds the words that describe the product itself. `phrases` are constraints as `key value`; they are empty
    when the text is free prose, and then every word of it is in `name`.
    """

    text: str
    name: tuple[str, ...]
    phrases: tuple[str, ...] = ()
    price_low_php: float | None = None
    price_high_php: float | None = None
    services: tuple[str, ...] = ()

    @property
    def price_filter(self) -> str:
        """The bounds as find_product's `price` argument; empty when both sides are open."""
        low, high = ("" if side is None else f"{side:g}" for side in (self.price_low_php, self.price_high_php))
        return f"{low}-{high}" if low or high else ""


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """The whole request."""

    bucket: Literal["product", "shop", "voucher"]
    wishes: tuple[Wish, ...]
    voucher: VoucherTerms | None = None

    @property
    def is_one_shop(self) -> bool:
        """True when every product must come from the same shop."""
        if self.voucher is not None:
            return self.voucher.scope == "shop" and len(self.wishes) > 1
        return self.bucket == "shop"


@functools.lru_cache(maxsize=256)
def read_brief(text: str) -> Brief:
    """The request in `text`; always at least one wish. Kept, since a model without state reads it at each turn."""
    found = _VOUCHER_START.search(text)
    goods = (text[: found.start()] if found else text).strip()
    asks_for_shop = re.search(r"\b(?:shops?|stores?|sellers?|one place)\b", goods, re.I) is not None
    parts = _split(goods, is_list=found is not None or asks_for_shop)
    if found is not None:
        return Brief(
            bucket="voucher", wishes=tuple(map(_read_wish, parts)), voucher=_read_voucher(text[found.start() :])
        )
    if asks_for_shop and len(parts) > 1:
        return Brief(bucket="shop", wishes=tuple(map(_read_wish, parts)))
    return Brief(bucket="product", wishes=(_read_wish(goods),))


def content_words(text: str) -> tuple[str, ...]:
    """The words worth searching for, lower case, each once, in order."""
    words = (word.lower() for word in _WORD.findall(text))
    return tuple(dict.fromkeys(word for word in words if word not in _STOP))


def _split(text: str, *, is_list: bool) -> list[str]:
    for marker in (_NUMBERED, _ORDINAL):
        parts = marker.split(text)[1:]
        if len(parts) > 1:
            return [part.strip() for part in parts]
    parts = [part.strip(" ,.:") for part in _LOOSE.split(text)]
    parts = [part for part in parts if len(content_words(part)) >= _WORDS_PER_WISH_MIN]
    if len(parts) == 1 and is_list and _templated(text) is None:
        parts = [part.strip(" ,.:") for part in _LIST_COMMA.split(parts[0])]
    return parts if parts and is_list else [text]


def _read_wish(text: str) -> Wish:
    """A wish in the form of `problems.constraints`, or in free prose."""
    if (templated := _templated(text)) is not None:
        return templated
    low, high, rest = _read_price(text)
    services, rest = _read_services(rest)
    name = content_words(rest) or content_words(text)
    return Wish(text=text.strip(), name=name, price_low_php=low, price_high_php=high, services=tuple(services))


def _templated(text: str) -> Wish | None:
    """A name, then constraints between commas; None for free prose."""
    body = _OPENING.sub("", _CLOSING.sub("", text.strip()))
    name, *constraints = re.sub(r"[.;?]$", "", body).split(", ")
    if not _NAME.fullmatch(name) or _is_priced(name) or (_read_services(name)[0] and _PROSE_WORD.search(name)):
        return None
    if not all(_CONSTRAINT.match(part) for part in constraints):
        return None
    low = high = None
    services: list[str] = []
    phrases: list[str] = []
    for part in constraints:
        if part.startswith(("priced ", "costing ", "with a price ")):
            low, high, _ = _read_price(part)
            continue
        if _is_priced(part):
            return None
        named, rest = _read_services(part)
        if named and _SERVICE_FRAME.issuperset(rest.split()):
            services += named
        else:
            phrases.append(_LEADING.sub("", part))
    return Wish(
        text=body.rstrip(".;?"),
        name=tuple(name.split()),
        phrases=tuple(phrases),
        price_low_php=low,
        price_high_php=high,
        services=tuple(services),
    )


def _is_priced(text: str) -> bool:
    return _read_price(text)[:2] != (None, None)


def _read_price(text: str) -> tuple[float | None, float | None, str]:
    """Lower bound, upper bound (PHP), and the text without the price phrase. Only numbers near a money word count."""
    for pattern, sides in ((_BETWEEN, (1, 2)), (_ABOVE, (1, None)), (_BELOW, (None, 1))):
        for found in pattern.finditer(text):
            context = text[max(0, found.start() - _CONTEXT_BEFORE) : found.end() + _CONTEXT_AFTER]
            if _MONEY.search(context):
                low, high = (_amount(found.group(side)) if side else None for side in sides)
                return low, high, text[: found.start()] + " " + text[found.end() :]
    return None, None, text


def _read_services(text: str) -> tuple[list[str], str]:
    """Service names of the catalogue that `text` asks for, and the text without those words."""
    services = [name for name, pattern in _SERVICES.items() if pattern.search(text)]
    for name in services:
        text = _SERVICES[name].sub(" ", text)
    return services, text


def _read_voucher(text: str) -> VoucherTerms:
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
