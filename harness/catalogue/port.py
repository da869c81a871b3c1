"""The catalogue port: search pages and products, the same from every engine.

Pages are part of the measurement (docs/architecture.md#problems-and-pools): an adapter returns the reference's exact
pages or it is not an adapter. `SearchRequest` carries the raw parameters as strings, as a URL would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from harness.limits import WorkMeter
from problems.model import Product


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
