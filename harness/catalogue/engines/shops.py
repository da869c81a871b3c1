"""What a shop sells, summed up from the index's columns. Pure: the engine hands in columns and decodes the products.

A summary reads one column of shop numbers from end to end (about a millisecond for 2.7 million documents) and decodes
only the best sellers, so the index needs no table of shops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from harness.catalogue.port import Shop
from problems.product import SERVICES, Product

BEST_SELLERS = 5

Column = npt.NDArray[np.generic]


def sum_up_shop(
    shop_id: str,
    numbers: npt.NDArray[np.int64],
    *,
    prices: Column,
    sold_counts: Column,
    services: Column,
    product_at: Callable[[int], Product],
) -> Shop | None:
    """The shop whose documents are `numbers`, ascending; None when there are none.

    Columns are indexed by document number; bit i of a service is `SERVICES[i]`. Best sellers of equal sales are in the
    order of their ids.
    """
    if not len(numbers):
        return None
    bits = services[numbers].astype(np.uint8)
    sales = sold_counts[numbers].astype(np.int64)
    best = numbers[np.argsort(-sales, kind="stable")[:BEST_SELLERS]]
    own_prices = prices[numbers].astype(np.float64)
    return Shop(
        shop_id=shop_id,
        products=len(numbers),
        low_php=float(own_prices.min()),
        high_php=float(own_prices.max()),
        sold_count=int(sales.sum()),
        services={name: int(np.count_nonzero(bits >> bit & 1)) for bit, name in enumerate(SERVICES)},
        best_sellers=tuple(map(product_at, best.tolist())),
    )
