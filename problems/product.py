"""A product document as the catalogue holds it, typed at the border.

A `Product` that exists is well formed (strings are strings, price is a finite number, service is a list), so
nothing downstream needs to guard. A malformed document raises P4005 at build time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from foundation.errors import ArenaError

SERVICES = ("official", "freeShipping", "COD", "flashsale")


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """One product of the catalogue. `price` is in PHP (a float, as in the public documents)."""

    product_id: str
    shop_id: str
    title: str
    price: float
    service: tuple[str, ...] = ()
    sold_count: int = 1
    sku_options: dict[str, dict[str, str]] = {}
    attributes: dict[str, tuple[str, ...]] = {}
    brand: str = ""
    category: str = ""
    short_description: str = ""
    description: str = ""
    specification: str = ""


def read_product(raw: object) -> Product:
    """A `Product` from a decoded `product` object of the index line format; a `Product` is checked once more.

    Raises ArenaError P4005 naming the field when the document is malformed. `service` must be there, if empty.
    """
    name = raw.get("product_id", "?") if isinstance(raw, Mapping) else getattr(raw, "product_id", "?")
    try:
        document = msgspec.to_builtins(raw) if isinstance(raw, Product) else raw
        if not isinstance(document, Mapping):
            raise ArenaError("P4005", "document is not an object")
        if "service" not in document:
            raise ArenaError("P4005", f"{name}: service is missing")
        product = msgspec.convert(document, Product, strict=True)
    except (TypeError, msgspec.ValidationError) as error:
        raise ArenaError("P4005", f"{name}: {error}") from error
    if not product.product_id:
        raise ArenaError("P4005", "product_id is empty")
    if not math.isfinite(product.price):
        raise ArenaError("P4005", f"{name}: price is not finite")
    return product
