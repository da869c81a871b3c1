"""The catalogue port: search pages and products, the same from every engine.

Pages are part of the measurement (search notes, section 2): an adapter returns the reference's exact pages or it is
not an adapter. `SearchRequest` carries the raw parameters as strings, as a URL would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import msgspec

from problems.product import Product


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Raw search parameters; None means absent. The reference's quirks apply (search notes, section 2.5)."""

    q: str | None = None
    page: str | None = "1"
    shop_id: str | None = None
    price: str | None = None
    sort: str | None = None
    service: str | None = None


class Shop(msgspec.Struct, frozen=True, kw_only=True):
    """What one shop sells."""

    shop_id: str
    products: int
    low_php: float
    high_php: float
    sold_count: int  # over all its products
    services: dict[str, int]  # how many of its products offer each service, in the order of `SERVICES`
    best_sellers: tuple[Product, ...]  # at most five, most sold first


class Catalogue(Protocol):
    """A product catalogue with ranked search. Thread-safe."""

    @property
    def content_sha256(self) -> str:
        """Identity of documents and index together; stands in every record."""
        ...

    def __len__(self) -> int: ...

    def search(self, request: SearchRequest) -> tuple[Product, ...]:
        """One page (at most 10 products) in the reference's order."""
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


@runtime_checkable
class ShopDirectory(Protocol):
    """A catalogue that can also sum up a shop. Thread-safe."""

    def shop(self, shop_id: str) -> Shop | None:
        """The shop, or None when it sells nothing. Raises ArenaError U3010 when a product cannot be decoded."""
        ...
