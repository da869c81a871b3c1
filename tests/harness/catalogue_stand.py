"""Small catalogues and mixed queries for the tests of the catalogue and the tools."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue, SearchRequest
from problems.model import SERVICES, Product

SHARED = Path(__file__).parents[2].parent / "shared"
REAL_DOCUMENTS = SHARED / "data" / "shoppingbench" / "documents.jsonl"


def product(product_id: str, title: str = "Red Canvas Bag", **fields: object) -> Product:
    """A plain product; fields override."""
    given: dict[str, object] = {"shop_id": "77", "price": 100.0, **fields}
    return Product(product_id=product_id, title=title, **given)  # type: ignore[arg-type]


def write_products(products: Iterable[Product], folder: Path) -> Path:
    """Write the products as a documents file; returns its path."""
    documents = folder / "documents.jsonl"
    with documents.open("wb") as stream:
        write_documents(products, stream)
    return documents


def index_of(products: Iterable[Product], folder: Path) -> Path:
    """Write the products and build their index; returns the index folder."""
    build_index(write_products(products, folder), folder / "index")
    return folder / "index"


def catalogue_of(products: Iterable[Product], folder: Path, *, hit_cap: int = 10_000) -> Catalogue:
    """An open catalogue of the products."""
    return open_catalogue(index_of(products, folder), hit_cap=hit_cap)


def code_of(action: Callable[[], object]) -> str:
    """The code of the failure that the action ends with."""
    with pytest.raises(ArenaError) as caught:
        action()
    return caught.value.failure.code


def mixed_requests(products: list[Product], count: int, seed: int) -> list[SearchRequest]:
    """Queries made of the products' words, with filters, sorts, shops and pages in every mix."""
    rng = random.Random(seed)
    requests = []
    for _ in range(count):
        chosen = rng.choice(products)
        words = (chosen.title + " " + " ".join(rng.choice(products).title.split()[:2])).split() or ["bag"]
        q = " ".join(rng.sample(words, min(len(words), rng.randint(1, 6))))
        low = rng.randint(1, 900)
        price = rng.choice([None, None, f"{low}-", f"-{low}", f"{low}-{low * 3}", "0-100000", "nan-50", "104"])
        service = rng.choice([None, None, None, *SERVICES, "COD,freeShipping", "lazmall"])
        shop_id = rng.choice([None, None, None, None, chosen.shop_id, "no such shop"])
        sort = rng.choice([None, None, "order", "priceasc", "pricedesc", "default"])
        page = rng.choice(["1", "1", "1", "2", "3", "5"])
        requests.append(SearchRequest(q=q, page=page, shop_id=shop_id, price=price, sort=sort, service=service))
    return requests


def drawn_requests(catalogue: Catalogue, count: int, seed: int) -> list[SearchRequest]:
    """The same of products drawn from the catalogue, however large it is."""
    rng, ids = random.Random(seed), list(catalogue.product_ids())
    products = [catalogue.product(one) for one in rng.sample(ids, min(len(ids), 2 * count))]
    return mixed_requests([one for one in products if one is not None], count, seed)
