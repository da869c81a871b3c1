"""What the user asked for, read out of the request's words: wishes, bounds, services, voucher.

Total on any text. It reads back every phrasing of `problems.constraints`; of free prose it knows prices and services,
and every other word is searched for.
"""

from __future__ import annotations

import functools
import re

import msgspec

from problems.clusters import content_words
from problems.constraints import SERVICE_WORDS
from problems.model import Bucket, Voucher
from problems.wording import Bounds, read_money, read_services

_VOUCHER_START = re.compile(r"\bmy budget is\b", re.I)
_VOUCHER_TERM = re.compile(
    r"(my budget is(?: only)?|exceeds|fixed discount of|percentage discount of|cap of)\W+(\d[\d,]*(?:\.\d+)?)", re.I
)
# The two list forms of `problems.constraints`, and the frame around a wish.
_NUMBERED = re.compile(r"(?:^|\s)\([1-9]\)\s+")
_ORDINAL = re.compile(r"(?:^|[.:]\s+)(?:First|Second|Third|Fourth|Fifth|Lastly),\s+")
_ONE_SHOP = re.compile(r"\b(?:shops?|stores?|sellers?)\b", re.I)
_OPENING = re.compile(
    r"^\s*(?:i'm looking for|looking for|show me|can you help me find|i want to buy|find)\s+(?:(?:an?|the)\s+)?", re.I
)
_CLOSING = re.compile(r"[.;]\s+(?:Can you|Please)\b.*$", re.S)
_CONSTRAINT = re.compile(r"(?:in|with|from|by|priced|costing|payable|sold|available)\s")
_NO_CAP_PHP = 1e9
_PRICE = ("priced ", "costing ", "with a price ")
_LEADING = re.compile(r"^(?:(?:from|by) the (?=brand )|in |with )")
_NAME = re.compile(r"[a-z0-9]+(?: [a-z0-9]+){0,9}")
_SERVICE_OF = {words: name for name, spellings in SERVICE_WORDS.items() for words in spellings}


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One requested product. `name` holds the words that describe the product itself.

    `phrases` are constraints as `key value`; they are empty when the text is free prose, and then every word of it is
    in `name`.
    """

    text: str
    name: tuple[str, ...]
    phrases: tuple[str, ...] = ()
    price: Bounds = Bounds()
    services: tuple[str, ...] = ()

    @property
    def price_filter(self) -> str:
        """The bounds as find_product's `price` argument; empty when both sides are open."""
        low, high = ("" if side is None else f"{side:g}" for side in (self.price.low, self.price.high))
        return f"{low}-{high}" if low or high else ""


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """The whole request."""

    bucket: Bucket
    wishes: tuple[Wish, ...]
    voucher: Voucher | None = None

    @property
    def is_one_shop(self) -> bool:
        """True when every product must come from the same shop."""
        if self.voucher is not None:
            return self.voucher.voucher_type == "shop" and len(self.wishes) > 1
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


def _split(text: str) -> list[str]:
    for marker in (_NUMBERED, _ORDINAL):
        if len(parts := marker.split(text)[1:]) > 1:
            return [part.strip() for part in parts]
    return [text]


def _read_wish(text: str) -> Wish:
    """A name, then constraints between commas; or free prose."""
    body = _OPENING.sub("", _CLOSING.sub("", text.strip()))
    name, *parts = re.sub(r"[.;?]$", "", body).split(", ")
    is_plain = _NAME.fullmatch(name) and not read_services(name) and not read_money(name)[0]
    if not is_plain or not all(map(_CONSTRAINT.match, parts)):
        words, services = sorted(content_words(text)), sorted(read_services(text))
        return Wish(text=text.strip(), name=tuple(words), price=_read_price(text), services=tuple(services))
    prices = [part for part in parts if part.startswith(_PRICE)]
    phrases = [part for part in parts if part not in prices and part not in _SERVICE_OF]
    return Wish(
        text=body.rstrip(".;?"),
        name=tuple(name.split()),
        phrases=tuple(_LEADING.sub("", phrase) for phrase in phrases),
        price=_read_price(" ".join(prices)),
        services=tuple(_SERVICE_OF[part] for part in parts if part in _SERVICE_OF),
    )


def _read_price(text: str) -> Bounds:
    return next(iter(read_money(text)[0]), Bounds())


def _read_voucher(text: str) -> Voucher:
    """The terms in the sentences that follow "My budget is"; one that is not there costs and gives nothing."""
    terms = {words.lower(): float(amount.replace(",", "")) for words, amount in _VOUCHER_TERM.findall(text)}
    percent = terms.get("percentage discount of")
    return Voucher(
        voucher_type="shop" if "same shop" in text else "platform",
        discount_type="fixed" if percent is None else "percentage",
        threshold=terms.get("exceeds", 0.0),
        budget=next((amount for words, amount in terms.items() if words.startswith("my budget")), 0.0),
        face_value=terms.get("fixed discount of", 0.0) if percent is None else None,
        discount=None if percent is None else percent / 100,
        cap=None if percent is None else terms.get("cap of", _NO_CAP_PHP),
    )
