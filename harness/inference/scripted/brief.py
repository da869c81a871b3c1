"""What the user asked for, read out of the request's words: wishes, bounds, services, voucher.

Total on any text. It reads back every phrasing of `problems.constraints`; of free prose it knows prices and services,
and every other word is searched for.
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

# The two list forms of `problems.constraints`, and the frame around a wish.
_NUMBERED = re.compile(r"(?:^|\s)\([1-9]\)\s+")
_ORDINAL = re.compile(r"(?:^|[.:]\s+)(?:First|Second|Third|Fourth|Fifth|Lastly),\s+")
_ONE_SHOP = re.compile(r"\b(?:shops?|stores?|sellers?)\b", re.I)
_OPENING = re.compile(
    r"^\s*(?:i'm looking for|looking for|show me|can you help me find|i want to buy|find)\s+(?:(?:an?|the)\s+)?", re.I
)
_CLOSING = re.compile(r"[.;]\s+(?:Can you|Please)\b.*$", re.S)
_CONSTRAINT = re.compile(r"(?:in|with|from|by|priced|costing|payable|sold|available)\s")
_LEADING = re.compile(r"^(?:(?:from|by) the (?=brand )|in |with )")
_SERVICE_FRAME = frozenset(["sold", "available", "payable", "with", "on", "by", "in", "a", "service", "deal"])
_NAME = re.compile(r"[a-z0-9]+(?: [a-z0-9]+){0,9}")
_PROSE_WORD = re.compile(r"\b(?:that|with|available|in|and)\b")

_NUMBER, _PESOS = r"(\d[\d,]*(?:\.\d+)?)", r"\s?(?:php|pesos?)\b"
_PRICES: tuple[tuple[re.Pattern[str], tuple[int, int]], ...] = (  # groups of the lower and upper bound; 0: open
    (re.compile(rf"(?:between|from) {_NUMBER} (?:and|to) {_NUMBER}{_PESOS}", re.I), (1, 2)),
    (re.compile(rf"(?:above|over|more than|at least|higher than) {_NUMBER}{_PESOS}", re.I), (1, 0)),
    (re.compile(rf"(?:below|under|less than|at most|up to) {_NUMBER}{_PESOS}", re.I), (0, 1)),
)
_SERVICES = {
    "official": re.compile(r"\b(?:lazmall|official (?:store|shop)|official)\b", re.I),
    "freeShipping": re.compile(r"\b(?:free|complimentary) (?:shipping|delivery)\b", re.I),
    "COD": re.compile(r"\b(?:cash on delivery|cod|pay on delivery)\b", re.I),
    "flashsale": re.compile(r"\b(?:lazflash|flash (?:sale|deal))\b", re.I),
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
    wishes = tuple(map(_read_wish, _split(goods)))
    if found is not None:
        return Brief(bucket="voucher", wishes=wishes, voucher=_read_voucher(text[found.start() :]))
    is_shop = len(wishes) > 1 and _ONE_SHOP.search(goods) is not None
    return Brief(bucket="shop" if is_shop else "product", wishes=wishes)


def content_words(text: str) -> tuple[str, ...]:
    """The words worth searching for, lower case, each once, in order."""
    words = (word.lower() for word in _WORD.findall(text))
    return tuple(dict.fromkeys(word for word in words if word not in _STOP))


def _split(text: str) -> list[str]:
    for marker in (_NUMBERED, _ORDINAL):
        if len(parts := marker.split(text)[1:]) > 1:
            return [part.strip() for part in parts]
    return [text]


def _read_wish(text: str) -> Wish:
    """A name, then constraints between commas; or free prose."""
    body = _OPENING.sub("", _CLOSING.sub("", text.strip()))
    name, *parts = re.sub(r"[.;?]$", "", body).split(", ")
    is_said = _read_price(name)[:2] != (None, None) or (_read_services(name)[0] and _PROSE_WORD.search(name))
    if is_said or not _NAME.fullmatch(name) or not all(map(_CONSTRAINT.match, parts)):
        low, high, rest = _read_price(text)
        services, rest = _read_services(rest)
        words = content_words(rest) or content_words(text)
        return Wish(text=text.strip(), name=words, price_low_php=low, price_high_php=high, services=tuple(services))
    low = high = None
    services, phrases = [], []
    for part in parts:
        if part.startswith(("priced ", "costing ", "with a price ")):
            low, high, _ = _read_price(part)
            continue
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


def _read_price(text: str) -> tuple[float | None, float | None, str]:
    """Lower bound, upper bound (PHP), and the text without the price phrase."""
    for pattern, sides in _PRICES:
        if found := pattern.search(text):
            low, high = (_amount(found[side]) if side else None for side in sides)
            return low, high, f"{text[: found.start()]} {text[found.end() :]}"
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
        found = re.search(rf"{pattern}\D{{0,12}}?{_NUMBER}", text, re.I)
        return _amount(found[1]) if found else None

    percent = re.search(r"(\d+(?:\.\d+)?)\s?%", text)
    return VoucherTerms(
        scope="shop" if "same shop" in text else "platform",
        budget_php=number_after(r"budget is(?: only)?") or 0.0,
        threshold_php=number_after("exceeds") or 0.0,
        face_value_php=None if percent else number_after("fixed discount of"),
        percent=float(percent[1]) if percent else None,
        cap_php=number_after("cap of") if percent else None,
    )


def _amount(digits: str) -> float:
    return float(digits.replace(",", ""))
