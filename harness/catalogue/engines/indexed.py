"""What every engine over an index folder does alike: requests to pages, products by id and in order, what a shop sells.

An engine says which hits a text has, which of them make a page, and how one product is read. A shop is summed up from
the index's columns (about a millisecond for 2.7 million documents) and only its best sellers are read, so the index
needs no table of shops.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import msgspec
import numpy as np

from harness.catalogue.index.columns import Columns
from harness.catalogue.port import SearchRequest, Shop, ShopPages
from harness.catalogue.requests import SearchPlan, read_request
from harness.work import WorkMeter
from problems.product import SERVICES, Product

BEST_SELLERS = 5
_PRODUCTS_CACHED = 4_096

Hits = TypeVar("Hits")  # an engine's own form of a text's best hits


class IndexedCatalogue(abc.ABC, Generic[Hits]):
    """A `Catalogue` and `ShopDirectory` over the columns of an index folder."""

    def __init__(self, columns: Columns, content_sha256: str, *, hit_cap: int, unfiltered_cap: int) -> None:
        """Filters see the best `hit_cap` hits; the best `unfiltered_cap` make a page that nothing is filtered from."""
        self._columns, self._content_sha256 = columns, content_sha256
        self._hit_cap, self._unfiltered_cap = hit_cap, unfiltered_cap
        self._product_at = functools.lru_cache(maxsize=_PRODUCTS_CACHED)(self._read_product)

    @abc.abstractmethod
    def _hits(self, text: str, cap: int, work: WorkMeter) -> Hits:
        """The best `cap` hits. Words and postings are counted on the meter before they are read."""

    @abc.abstractmethod
    def _page(self, plan: SearchPlan, hits: Hits, work: WorkMeter) -> tuple[Product, ...]:
        """The page cut from the hits, which are counted on the meter first."""

    @abc.abstractmethod
    def _read_product(self, number: int) -> Product:
        """The product of a document. Raises ArenaError U3010."""

    @property
    def content_sha256(self) -> str:
        """Identity of documents and index together."""
        return self._content_sha256

    def __len__(self) -> int:
        return len(self._columns.ids)

    def search(self, request: SearchRequest, work: WorkMeter | None = None) -> tuple[Product, ...]:
        """One page in the reference's order. Raises ArenaError U3010 when a product of the page cannot be read."""
        plan, meter = read_request(request), work or WorkMeter()
        if plan is None:
            return ()
        cap = self._hit_cap if plan.is_filtered else self._unfiltered_cap
        return self._page(plan, self._hits(plan.text, cap, meter), meter)

    def search_in_shops(self, request: SearchRequest, work: WorkMeter | None = None) -> ShopPages:
        """Pages of one search by shop, its hits found once. They raise ArenaError U3010 like `search`."""
        plan, meter = read_request(request), work or WorkMeter()
        if plan is None:
            return lambda shop_id: ()
        hits = functools.cache(lambda: self._hits(plan.text, self._hit_cap, meter))
        return lambda shop_id: self._page(msgspec.structs.replace(plan, shop_id=shop_id or None), hits(), meter)

    def product(self, product_id: str) -> Product | None:
        """The product, or None when the index holds no such id. Raises ArenaError U3010 when it cannot be read."""
        number = self._columns.number_of(product_id)
        return None if number is None else self._product_at(number)

    def document(self, product_id: str) -> Mapping[str, object] | None:
        """The product as JSON values, with every field the engine has kept. None and errors as `product`."""
        product = self.product(product_id)
        return None if product is None else msgspec.to_builtins(product)

    def products(self) -> Iterator[Product]:
        """Every product, in the order of product ids as strings. Raises ArenaError U3010 like `product`."""
        return map(self._read_product, range(len(self)))

    def product_ids(self) -> Iterator[str]:
        """Every product id, in order."""
        return self._columns.product_ids()

    def shop(self, shop_id: str, work: WorkMeter | None = None) -> Shop | None:
        """What the shop sells, or None when no product is of that shop. Raises ArenaError U3010 like `product`.

        Best sellers of equal sales are in the order of their ids.
        """
        columns = self._columns
        numbers = columns.numbers_of_shop(shop_id, work)
        if not len(numbers):
            return None
        bits = columns.services[numbers].astype(np.uint8)
        sales = columns.sold_counts[numbers].astype(np.int64)
        prices = columns.prices[numbers].astype(np.float64)
        best = numbers[np.argsort(-sales, kind="stable")[:BEST_SELLERS]]
        return Shop(
            shop_id=shop_id,
            products=len(numbers),
            low_php=float(prices.min()),
            high_php=float(prices.max()),
            sold_count=int(sales.sum()),
            services={name: int(np.count_nonzero(bits >> bit & 1)) for bit, name in enumerate(SERVICES)},
            best_sellers=tuple(map(self._product_at, best.tolist())),
        )
