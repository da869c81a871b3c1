"""find_product: one page of search results, the reference's exact page."""

from __future__ import annotations

from harness.catalogue.port import SearchRequest
from harness.catalogue.requests import ignored_parameters
from harness.tools.call import ToolContext, listed, result_text
from harness.tools.port import ToolOutcome


def find_product(
    context: ToolContext,
    q: str,
    page: int = 1,
    shop_id: str = "",
    price: str = "",
    sort: str = "",
    service: str = "",
) -> ToolOutcome:
    """Search the product catalogue; returns up to ten products as a list, best match first.

    Each has product_id, shop_id, title, price, service and sold_count. Every filter holds for every product: an empty
    list means that nothing matches all of them, and no filter is ever widened.

    Args:
        q: Words to search for in titles, option values and attribute values, e.g. "blue canvas backpack".
        page: Page of results, 1 to 5.
        shop_id: Only products of this shop.
        price: Price range in PHP, both ends included: "100-500", "100-" or "-500".
        sort: "order" (most sold first), "priceasc" or "pricedesc"; sorts the 50 best matches. Empty: by relevance.
        service: Comma-separated services that a product must all offer: official (LazMall), freeShipping, COD (cash on
            delivery), flashsale (LazFlash).
    """
    request = search_request(q, page=page, shop_id=shop_id, price=price, sort=sort, service=service)
    products = context.catalogue.search(request)
    return ToolOutcome(
        result=result_text([listed(product) for product in products]),
        ignored_parameters=ignored_parameters(request),
        found_ids=tuple(product.product_id for product in products),
    )


def search_request(
    q: str, *, page: int = 1, shop_id: str = "", price: str = "", sort: str = "", service: str = ""
) -> SearchRequest:
    """The request of a tool call; an empty argument is an absent parameter."""
    return SearchRequest(
        q=q,
        page=str(page),
        shop_id=shop_id or None,
        price=price or None,
        sort=sort or None,
        service=service or None,
    )
