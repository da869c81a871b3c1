"""A product document as the catalogue holds it, typed at the border.

Promise: a `Product` that exists is well formed (strings are strings, price is a finite number, service is a list),
so nothing downstream needs to guard. A malformed document raises P4005 at build time (shoppingbench notes, section 7, row 24).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from problems.errors import ArenaError

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
    """A `Product` from a decoded `product` object of the index line format.

    Raises ArenaError P4005 naming the field when the document is malformed.
    """
    if not isinstance(raw, Mapping):
        raise ArenaError("P4005", "document is not an object")
    try:
        product = msgspec.convert(raw, Product, strict=True)
    except msgspec.ValidationError as error:
        raise ArenaError("P4005", f"{raw.get('product_id', '?')}: {error}") from error
    if not math.isfinite(product.price):
        raise ArenaError("P4005", f"{product.product_id}: price is not finite")
    return product
