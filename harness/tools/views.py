"""The tools that show what is known (products, a shop, the voucher that the task states) and those that end a task: the
recommendation, of which the last one of an episode counts, and the end itself."""

from __future__ import annotations

from harness.catalogue.port import ShopDirectory
from harness.tools.port import RefusedCallError, ToolContext, ToolOutcome, listed, result_text, split_list
from harness.work import PRODUCT
from problems.product import Product
from problems.score import parse_recommendation

PRODUCTS_MAX = 100  # in one call: a short argument must not ask for an endless answer
_DIGITS = 10  # of a per cent figure: 0.29 * 100 is 28.999999999999996


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


def view_shop_information(context: ToolContext, shop_id: str) -> ToolOutcome:
    """Show what a shop sells: found, shop_id, product_count, price_range, sold_count, services and top_sellers.

    services counts the products that offer each service; top_sellers are up to five products as find_product lists
    them. Search for a product before you recommend it: being listed here does not count as found by a search.

    Args:
        shop_id: A shop id as search results show it.
    """
    wanted = shop_id.strip()
    if not wanted:
        raise RefusedCallError("`shop_id` is empty; take one from a search result")
    directory = context.catalogue
    if not isinstance(directory, ShopDirectory):  # `make_toolbox` refuses such a catalogue for this tool's profile
        raise TypeError(f"{type(directory).__name__} has no shops")
    shop = directory.shop(wanted, context.work)
    if shop is None:
        return ToolOutcome(result=result_text({"found": False, "shop_id": wanted, "error": "Shop not found"}))
    context.work.spend(len(shop.best_sellers) * PRODUCT)
    answer = {
        "found": True,
        "shop_id": shop.shop_id,
        "product_count": shop.products,
        "price_range": {"lowest": shop.low_php, "highest": shop.high_php},
        "sold_count": shop.sold_count,
        "services": shop.services,
        "top_sellers": [listed(product) for product in shop.best_sellers],
    }
    return ToolOutcome(result=result_text(answer))


def view_voucher_information(context: ToolContext) -> ToolOutcome:
    """Show the voucher and the budget of the task: has_voucher, voucher_type, discount_value, threshold, cap, budget
    and needs_one_shop.

    Amounts are in PHP; the values can be passed to calculate_voucher as they are. A task without a voucher says
    has_voucher false.
    """
    voucher = context.problem.voucher
    if voucher is None:
        return ToolOutcome(result=result_text({"has_voucher": False, "message": "This task has no voucher."}))
    is_percentage = voucher.discount_type == "percentage"
    value = round((voucher.discount or 0.0) * 100, _DIGITS) if is_percentage else voucher.face_value
    answer = {  # what the task's text says; the price after the voucher stays out: it is the answer's
        "has_voucher": True,
        "voucher_type": voucher.discount_type,
        "discount_value": value,
        "threshold": voucher.threshold,
        "cap": voucher.cap if is_percentage and voucher.cap is not None else 0.0,
        "budget": voucher.budget,
        "needs_one_shop": voucher.voucher_type == "shop",
    }
    return ToolOutcome(result=result_text(answer))


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
