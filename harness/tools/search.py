"""The tools that search: one page of results, which is the reference's, and one product a search from a single shop."""

from __future__ import annotations

import orjson

from harness.catalogue.port import SearchRequest, ShopPages
from harness.catalogue.requests import ignored_parameters
from harness.limits import PRODUCT
from harness.tools.port import RefusedCallError, ToolContext, ToolOutcome, listed, quoted, result_text
from problems.model import Product

QUERY_CHARS_MAX = 16_384  # of one search text
QUERIES_MAX = 10
_FIELDS = ("q", "price", "service")


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


def find_products_in_same_shop(context: ToolContext, product_queries: str) -> ToolOutcome:
    """Find several products that one shop sells. Meant for tasks where all products come from the same shop.

    Tries the shops on the first page of the first query, in order, and takes the best match of each query in that shop.
    Returns found, shop_id, products (product_id, title, price, shop_id, in the order of the queries) and shops_tried.
    Every filter holds for every product and no product stands twice. Matches are by words: check them before you
    recommend.

    Args:
        product_queries: JSON array of one to ten searches, e.g. '[{"q": "foam roller", "price": "0-500"}, {"q": "yoga
            mat", "service": "COD"}]'. q is required; price and service are as in find_product.
    """
    queries, ignored = _read_queries(product_queries)
    candidates = context.catalogue.search(queries[0], context.work)
    context.work.spend(len(candidates) * PRODUCT)
    others = [context.catalogue.search_in_shops(query, context.work) for query in queries[1:]]
    shops = list(dict.fromkeys(product.shop_id for product in candidates))
    for tried, shop_id in enumerate(shops, start=1):
        first = next(product for product in candidates if product.shop_id == shop_id)
        products = _fill_basket(context, shop_id, first, others)
        if products is not None:
            answer = {
                "found": True,
                "shop_id": shop_id,
                "products": [
                    {
                        "product_id": product.product_id,
                        "title": product.title,
                        "price": product.price,
                        "shop_id": product.shop_id,
                    }
                    for product in products
                ],
                "shops_tried": tried,
            }
            ids = tuple(product.product_id for product in products)
            return ToolOutcome(result=result_text(answer), ignored_parameters=ignored, found_ids=ids)
    if candidates:
        error = f"none of the {len(shops)} shops on the first page sells all {len(queries)} products"
    else:
        error = f"no result for the first query: {quoted(queries[0].q or '')}"
    answer = {"found": False, "error": error, "shops_tried": len(shops)}
    return ToolOutcome(result=result_text(answer), ignored_parameters=ignored)


def _fill_basket(context: ToolContext, shop_id: str, first: Product, others: list[ShopPages]) -> list[Product] | None:
    """The first product and the best unused match of every other query in the shop, or None when one has none."""
    basket = [first]
    for pages in others:
        taken = {product.product_id for product in basket}
        hits = pages(shop_id)
        context.work.spend(len(hits) * PRODUCT)
        match = next((product for product in hits if product.product_id not in taken), None)
        if match is None:
            return None
        basket.append(match)
    return basket


def _read_queries(text: str) -> tuple[list[SearchRequest], tuple[str, ...]]:
    """Queries, and the names of what was ignored in them. Raises RefusedCallError when they cannot be read."""
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RefusedCallError(f"`product_queries` is not JSON: {quoted(text)}") from None
    if not isinstance(raw, list) or not 0 < len(raw) <= QUERIES_MAX:
        raise RefusedCallError(f"`product_queries` must be a JSON array of 1 to {QUERIES_MAX} searches")
    queries, ignored = [], []
    for place, item in enumerate(raw):
        where = f"product_queries[{place}]"
        if not isinstance(item, dict) or not isinstance(item.get("q"), str) or not item["q"].strip():
            raise RefusedCallError(f"`{where}` must be an object with a text `q`")
        fields = {name: item.get(name) or "" for name in _FIELDS}
        for name, value in fields.items():
            if not isinstance(value, str):
                raise RefusedCallError(f"`{where}.{name}` must be a string")
        refuse_long(fields["q"], f"{where}.q")
        query = search_request(fields["q"], price=fields["price"], service=fields["service"])
        queries.append(query)
        unread = (name for name in item if name not in _FIELDS)
        ignored += [f"{where}.{name}" for name in (*ignored_parameters(query), *unread)]
    return queries, tuple(ignored)
