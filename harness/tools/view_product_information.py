"""view_product_information: descriptions, options and attributes of named products; no title and no price."""

from __future__ import annotations

from harness.tools.call import RefusedCallError, ToolContext, result_text, split_list
from harness.tools.port import ToolOutcome
from harness.work import PRODUCT
from problems.product import Product

PRODUCTS_MAX = 100  # in one call: a short argument must not ask for an endless answer


def view_product_information(context: ToolContext, product_ids: str) -> ToolOutcome:
    """Show details of products: product_id, short_description, description, sku_options and attributes.

    Returns a list in the order asked for; unknown ids are left out. Titles and prices stand in search results.

    Args:
        product_ids: Comma-separated product ids, at most 100.
    """
    wanted = split_list(product_ids)
    if len(wanted) > PRODUCTS_MAX:
        raise RefusedCallError(f"`product_ids` names {len(wanted)} products; at most {PRODUCTS_MAX} in one call")
    context.work.spend(len(wanted) * PRODUCT)
    products = [context.catalogue.product(product_id) for product_id in wanted]
    return ToolOutcome(result=result_text([_details(product) for product in products if product is not None]))


def _details(product: Product) -> dict[str, object]:
    return {
        "product_id": product.product_id,
        "short_description": product.short_description,
        "description": product.description,
        "sku_options": product.sku_options,
        "attributes": product.attributes,
    }
