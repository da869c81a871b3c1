"""find_product: one page of search results, the reference's exact page."""

from __future__ import annotations

from harness.catalogue.port import SearchRequest
from harness.catalogue.requests import PAGE_MAX, ignored_parameters, read_page
from harness.tools.call import RefusedCallError, ToolContext, listed, quoted, result_text
from harness.tools.port import ToolOutcome
from harness.work import PRODUCT
from problems.product import SERVICES

QUERY_CHARS_MAX = 16_384  # of one search text
ACCEPTED = {
    "page": f"1 to {PAGE_MAX}",
    "price": 'a range in PHP such as "100-500", "100-" or "-500"',
    "sort": '"order", "priceasc", "pricedesc" or "" for relevance',
    "service": f"a comma-separated list, without spaces, of {', '.join(SERVICES)}",
}


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
    refuse_long(q, "q")
    request = search_request(q, page=page, shop_id=shop_id, price=price, sort=sort, service=service)
    if context.is_strict:
        refuse_unread(request)
    products = context.catalogue.search(request, context.work)
    context.work.spend(len(products) * PRODUCT)
    return ToolOutcome(
        result=result_text([listed(product) for product in products]),
        ignored_parameters=ignored_parameters(request),
        found_ids=tuple(product.product_id for product in products),
    )


def refuse_long(q: str, where: str) -> None:
    """Raises RefusedCallError for a search text of more than QUERY_CHARS_MAX characters."""
    if len(q) > QUERY_CHARS_MAX:
        raise RefusedCallError(f"`{where}` has {len(q)} characters; at most {QUERY_CHARS_MAX} are searched for")


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


def unread_parameters(request: SearchRequest) -> tuple[str, ...]:
    """Parameters that were given and cannot be read, the page among them."""
    page = ("page",) if read_page(request.page) is None else ()
    return (*page, *ignored_parameters(request))


def refuse_unread(request: SearchRequest, where: str = "") -> None:
    """Raises RefusedCallError naming each parameter that cannot be read and the form it must have.

    For the profile that tells an agent what the reference ignores in silence (docs/benchmark.md#edge-cases, 33).
    `where` goes before a parameter's name.
    """
    faults = [
        f"`{where}{name}` is {quoted(str(getattr(request, name)))}; it must be {ACCEPTED[name]}"
        for name in unread_parameters(request)
    ]
    if faults:
        raise RefusedCallError("; ".join(faults))
