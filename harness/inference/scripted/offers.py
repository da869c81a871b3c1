"""What the tools answered, and how well a product fits a wish.

Total on any tool result; a result of another shape counts as nothing found. Fits are compared in integers, so
the same results rank the same everywhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson

from harness.inference.scripted.brief import Wish, content_words

_WORD = re.compile(r"[a-z0-9]+")
_MISSED_WORD, _MISSED_CONSTRAINT = 2, 3  # what a missed name word or constraint weighs
FAR = 1_000  # heavier than any fit


Pair = tuple[str, str]  # key and value as the catalogue writes them


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What view_product_information shows: pairs by the phrase `key value` in which a request would say them."""

    options: tuple[dict[str, Pair], ...] = ()
    attributes: dict[str, Pair] = {}

    def offered(self, asked: Iterable[str]) -> dict[str, Pair]:
        """The attributes together with the one option that meets most of the `asked` phrases."""
        wanted = frozenset(asked)
        none: dict[str, Pair] = {}
        best = max((none, *self.options), key=lambda option: len(wanted & (option.keys() | self.attributes.keys())))
        return {**self.attributes, **best}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One search hit. `rank` counts hits of its search from 1; `price` is its JSON text, to be quoted verbatim."""

    product_id: str
    shop_id: str
    title: str
    price: str
    price_php: float
    services: tuple[str, ...]
    rank: int
    details: Details | None = None


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How an offer fits a wish. Lower `miss` is better; 0 means that nothing asked for is known to be missing."""

    offer: Offer
    miss: int
    met: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def order(self) -> tuple[int, int, str]:
        """Sort key: best fit first, then the search's own order."""
        return self.miss, self.offer.rank, self.offer.product_id


def read_offers(result: object, first_rank: int = 1) -> tuple[Offer, ...]:
    """Search hits in order. Rows that lack an id are passed over."""
    offers: list[Offer] = []
    for rank, row in enumerate(result if isinstance(result, list) else (), first_rank):
        if not isinstance(row, dict) or not row.get("product_id"):
            continue
        price, services = row.get("price"), row.get("service")
        offers.append(
            Offer(
                product_id=str(row["product_id"]),
                shop_id=str(row.get("shop_id", "")),
                title=str(row.get("title", "")),
                price=orjson.dumps(price).decode(),
                price_php=float(price) if isinstance(price, int | float) else 0.0,
                services=tuple(str(name) for name in services) if isinstance(services, list) else (),
                rank=rank,
            )
        )
    return tuple(offers)


def read_details(result: object) -> dict[str, Details]:
    """Details by product id."""
    rows = result if isinstance(result, list) else []
    return {str(row["product_id"]): _details(row) for row in rows if isinstance(row, dict) and row.get("product_id")}


def weigh(wish: Wish, offer: Offer) -> Fit:
    """How `offer` fits `wish`, as far as it is known: without details, option and attribute phrases count as missed."""
    met: list[str] = []
    missed: list[str] = []
    miss = 0
    for words, is_met in _name_words(wish, offer):
        (met if is_met else missed).append(words)
        miss += 0 if is_met else _MISSED_WORD
    terms = [(service, service in offer.services) for service in wish.services]
    if wish.price_filter:
        low = wish.price_low_php if wish.price_low_php is not None else 0.0
        high = wish.price_high_php if wish.price_high_php is not None else float("inf")
        terms.append((f"price {wish.price_filter}", low <= offer.price_php <= high))
    known = offer.details.offered(wish.phrases) if offer.details is not None else {}
    terms += [(phrase, phrase in known) for phrase in wish.phrases]
    for phrase, is_met in terms:
        (met if is_met else missed).append(phrase)
        miss += 0 if is_met else _MISSED_CONSTRAINT
    return Fit(offer=offer, miss=miss, met=tuple(met), missed=tuple(missed))


def rank_offers(wish: Wish, offers: Iterable[Offer]) -> tuple[Fit, ...]:
    """Fits of all offers, best first; of an offer found by several searches the first counts."""
    first: dict[str, Offer] = {}
    for offer in offers:
        first.setdefault(offer.product_id, offer)
    return tuple(sorted((weigh(wish, offer) for offer in first.values()), key=lambda fit: fit.order))


def pairs_to_check(wish: Wish, offer: Offer) -> dict[str, str]:
    """The pairs of the offer that the wish asks for, by key: requirements worth checking with the tool."""
    if offer.details is None:
        return {}
    offered = offer.details.offered(wish.phrases)
    if wish.phrases:
        return dict(offered[phrase] for phrase in wish.phrases if phrase in offered)
    said = f" {' '.join(wish.name)} "
    return dict(pair for pair in offered.values() if f" {pair[1]} " in said)


def with_details(offers: Iterable[Offer], details: Mapping[str, Details]) -> list[Offer]:
    """The offers, each with what is known of it."""
    return [msgspec.structs.replace(offer, details=details.get(offer.product_id, offer.details)) for offer in offers]


def _name_words(wish: Wish, offer: Offer) -> list[tuple[str, bool]]:
    """Each name word and whether the title has it; for free prose, options and attributes count as well."""
    said = _title_words(offer.title)
    if wish.phrases:
        return [(word, word in said) for word in wish.name]
    known = set(said)
    if offer.details is not None:
        for phrases in (offer.details.attributes, *offer.details.options):
            known.update(word for phrase in phrases for word in content_words(phrase))
    known |= {_singular(word) for word in known}
    return [(word, _singular(word) in known) for word in wish.name]


@functools.lru_cache(maxsize=4_096)
def _title_words(title: str) -> frozenset[str]:
    return frozenset(_WORD.findall(title.lower()))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def _details(row: Mapping[str, Any]) -> Details:
    options = row.get("sku_options")
    attributes = row.get("attributes")
    return Details(
        options=tuple(
            dict(_phrase(key, value) for key, value in option.items())
            for option in (options.values() if isinstance(options, dict) else ())
            if isinstance(option, dict)
        ),
        attributes=dict(
            _phrase(key, value)
            for key, values in (attributes.items() if isinstance(attributes, dict) else ())
            for value in (values if isinstance(values, list) else [values])
        ),
    )


def _phrase(key: str, value: object) -> tuple[str, Pair]:
    return f"{key.replace('_', ' ')} {value}", (key, str(value))
