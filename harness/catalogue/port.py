"""The catalogue port: search pages and products, the same from every engine.

Pages are part of the measurement (docs/architecture.md#problems-and-pools): an adapter returns the reference's exact
pages or it is not an adapter. `SearchRequest` carries the raw parameters as strings, as a URL would. What they mean
follows the reference server (docs/benchmark.md#search), never with an exception: unreadable filters are ignored, an
unreadable page is an empty page; `ignored_parameters` names what was ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Protocol

import msgspec

from harness.catalogue.analysis import terms_of
from harness.limits import WorkMeter
from problems.model import SERVICES, Product


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Raw search parameters; None means absent. The reference's quirks apply (docs/benchmark.md#search)."""

    q: str | None = None
    page: str | None = "1"
    shop_id: str | None = None
    price: str | None = None
    sort: str | None = None
    service: str | None = None


ShopPages = Callable[[str], tuple[Product, ...]]  # shop id -> the page of one search with that `shop_id`


class Catalogue(Protocol):
    """A product catalogue with ranked search. Thread-safe.

    A search counts its distinct words, their postings and its hits on the meter it is given, the same from every
    engine, and before it does the work; WorkExceededError then passes through.
    """

    @property
    def content_sha256(self) -> str:
        """Identity of documents and index together; is in every record."""
        ...

    def __len__(self) -> int: ...

    def search(self, request: SearchRequest, work: WorkMeter | None = None) -> tuple[Product, ...]:
        """One page (at most 10 products) in the reference's order."""
        ...

    def search_in_shops(self, request: SearchRequest, work: WorkMeter | None = None) -> ShopPages:
        """The same search in one shop after another; its text is read and scored once, at the first page asked for."""
        ...

    def product(self, product_id: str) -> Product | None:
        """The product, or None when it is proven absent. Raises ArenaError U3010 when the lookup itself failed."""
        ...

    def products(self) -> Iterator[Product]:
        """Every product, in the order of product ids as strings. For making problems; no agent ever sees it."""
        ...

    def product_ids(self) -> Iterator[str]:
        """Every product id, without reading the products."""
        ...


HIT_CAP = 10_000  # hits looked at before filters
PAGE_SIZE = 10
PAGE_MAX = 5
KEPT_MAX = PAGE_SIZE * PAGE_MAX  # hits kept after filters; sorting happens among these
QUERY_TERMS_MAX = 1_024  # Lucene's clause limit: a longer query is an error there and an empty page here

Sort = Literal["relevance", "order", "priceasc", "pricedesc"]
_SORTS: dict[str, Sort] = {"order": "order", "priceasc": "priceasc", "pricedesc": "pricedesc"}
_BLANKED = str.maketrans(dict.fromkeys('+-&|!(){}[]^"~*?:\\/', " "))


class SearchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A readable search: what to look for, which hits may stay, how to order them, which page to show."""

    text: str
    page: int
    shop_id: str | None = None
    low_php: float | None = None
    high_php: float | None = None
    service: tuple[str, ...] = ()  # the known names that were asked for, each once; a product must offer all
    sort: Sort = "relevance"

    @property
    def is_filtered(self) -> bool:
        """True when hits may be turned away, so that the cap decides the page."""
        return bool(self.shop_id or self.service) or self.low_php is not None or self.high_php is not None


def read_request(request: SearchRequest) -> SearchPlan | None:
    """The plan of a request, or None where the reference answers with an empty page."""
    page, text = read_page(request.page), read_query(request.q)
    if page is None or not text:
        return None
    low, high = read_price(request.price)
    return SearchPlan(
        text=text,
        page=page,
        shop_id=request.shop_id or None,
        low_php=low,
        high_php=high,
        service=tuple(name for name in dict.fromkeys((request.service or "").split(",")) if name in SERVICES),
        sort=_SORTS.get(request.sort or "", "relevance"),
    )


def read_query(q: str | None) -> str:
    """Query-syntax characters blanked and ends stripped; empty means an empty page."""
    return q.translate(_BLANKED).strip() if q else ""


def count_terms(text: str) -> dict[str, int]:
    """The distinct terms of a search text in their order, with how often each occurs; none of a text that has more than
    QUERY_TERMS_MAX."""
    counts: dict[str, int] = {}
    for term in terms_of(text):
        counts[term] = counts.get(term, 0) + 1
    return counts if len(counts) <= QUERY_TERMS_MAX else {}


def read_page(page: str | None) -> int | None:
    """1..5, else None. A superscript digit, which the reference fails on, is None too."""
    if not page or not page.isdigit():
        return None
    try:
        number = int(page)
    except ValueError:
        return None
    return number if 1 <= number <= PAGE_MAX else None


def read_price(price: str | None) -> tuple[float | None, float | None]:
    """Inclusive bounds in PHP, None where open. Anything without exactly one `-` is no filter."""
    if not price or price.count("-") != 1:
        return None, None
    low, _, high = price.partition("-")
    return _number(low), _number(high)


def ignored_parameters(request: SearchRequest) -> tuple[str, ...]:
    """Parameters, in a fixed order, that were given and were wholly or partly ignored.

    The empty string and `default` are ways of saying "no filter", so they are not named.
    """
    ignored = []
    price = request.price
    if price and (price.count("-") != 1 or any(side.strip() and _number(side) is None for side in price.split("-"))):
        ignored.append("price")
    if request.sort and request.sort != "default" and request.sort not in _SORTS:
        ignored.append("sort")
    if any(name not in SERVICES and name not in ("", "default") for name in (request.service or "").split(",")):
        ignored.append("service")
    return tuple(ignored)


def _number(text: str) -> float | None:
    """Python's float(), as the reference reads a side; `nan` compares false with everything, which is an open end."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if value != value else value
