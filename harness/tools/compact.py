"""The tools of the profile `compact`: the four of `paper4` in few tokens, for small models and small contexts.

Schemas say each thing once, a search gives five hits of four fields instead of ten of six, and details leave out what
is empty. What a call means, what it finds first and what it surfaces are as in `paper4`; filters hold all the same,
though a hit does not repeat them. The functions carry the names of those they shorten: a name is what a model calls.
"""

from __future__ import annotations

from harness.catalogue.port import ignored_parameters
from harness.limits import PRODUCT
from harness.tools import functions
from harness.tools.functions import (
    ToolContext,
    ToolOutcome,
    products_of,
    refuse_long,
    result_text,
    search_request,
    shown,
)

HITS_MAX = 5


def find_product(
    context: ToolContext, q: str, shop_id: str = "", price: str = "", service: str = "", page: int = 1
) -> ToolOutcome:
    """Search products; five hits, best first.

    Args:
        q: Words of the product.
        shop_id: Only of this shop.
        price: Range in PHP: "100-500", "100-" or "-500".
        service: Comma-separated: official, freeShipping, COD, flashsale.
        page: 1 to 10.
    """
    refuse_long(q, "q")
    request = search_request(q, page=(page + 1) // 2, shop_id=shop_id, price=price, service=service)
    first = HITS_MAX * ((page - 1) % 2)  # two pages here are one of the catalogue's
    hits = context.catalogue.search(request, context.work)[first : first + HITS_MAX]
    context.work.spend(len(hits) * PRODUCT)
    return ToolOutcome(
        result=result_text([shown(hit, "product_id", "shop_id", "title", "price") for hit in hits]),
        ignored_parameters=ignored_parameters(request),
        found_ids=tuple(hit.product_id for hit in hits),
    )


def view_product_information(context: ToolContext, product_ids: str) -> ToolOutcome:
    """Show options and attributes of products.

    Args:
        product_ids: Comma-separated ids.
    """
    rows = [
        shown(one, "product_id", *(["description"] if one.description else ()), "sku_options", "attributes")
        for one in products_of(context, product_ids)
    ]
    return ToolOutcome(result=result_text(rows))


def recommend_product(context: ToolContext, product_ids: str) -> ToolOutcome:
    """Recommend, once.

    Args:
        product_ids: Comma-separated ids in the order asked for.
    """
    return functions.recommend_product(context, product_ids)


def terminate(context: ToolContext, status: str = "success") -> ToolOutcome:
    """End.

    Args:
        status: "success" or "failure".
    """
    return functions.terminate(context, status)
