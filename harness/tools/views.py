"""The tool that shows products, and those that end a task: the recommendation, of which the last one of an episode
counts, and the end itself."""

from __future__ import annotations

from harness.limits import PRODUCT
from harness.tools.port import RefusedCallError, ToolContext, ToolOutcome, result_text, split_list
from problems.model import Product
from problems.score import parse_recommendation

PRODUCTS_MAX = 100  # in one call: a short argument must not ask for an endless answer


def view_product_information(context: ToolContext, product_ids: str) -> ToolOutcome:
    """Show details of products: product_id, short_description, description, sku_options and attributes.

    Returns a list in the order asked for; unknown ids are left out. Titles and prices stand in search results.

    Args:
        product_ids: Comma-separated product ids, at most 100.
    """
    answer = [
        {
            "product_id": product.product_id,
            "short_description": product.short_description,
            "description": product.description,
            "sku_options": product.sku_options,
            "attributes": product.attributes,
        }
        for product in products_of(context, product_ids)
    ]
    return ToolOutcome(result=result_text(answer))


def products_of(context: ToolContext, product_ids: str) -> list[Product]:
    """The products of a comma-separated list, in its order, unknown ids left out; their work is spent.

    Raises RefusedCallError for more than PRODUCTS_MAX ids.
    """
    wanted = split_list(product_ids)
    if len(wanted) > PRODUCTS_MAX:
        raise RefusedCallError(f"`product_ids` names {len(wanted)} products; at most {PRODUCTS_MAX} in one call")
    context.work.spend(len(wanted) * PRODUCT)
    products = [context.catalogue.product(product_id) for product_id in wanted]
    return [product for product in products if product is not None]


def recommend_product(context: ToolContext, product_ids: str) -> ToolOutcome:
    """Recommend products to the user. Call it once, when you are sure: a later call replaces this one.

    Args:
        product_ids: Product ids as one comma-separated string, in the order in which the user asked for the products.
            One id when the user asked for one product.
    """
    ids, _ = parse_recommendation(product_ids)
    if not ids:
        text = "Nothing was recommended: `product_ids` holds no product id."
    else:
        text = f"Recommended to the user: {','.join(ids)}"
    return ToolOutcome(result=result_text(text), recommended_ids=ids)


def terminate(context: ToolContext, status: str = "success") -> ToolOutcome:
    """End the dialogue. Recommend first: what was not recommended does not count.

    Args:
        status: "success" when products were recommended, "failure" when none could be found.
    """
    return ToolOutcome(result=result_text(f"The dialogue has ended with status: {status}"), is_final=True)
