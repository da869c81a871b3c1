"""view_shop_information: what a shop sells, as far as the catalogue knows it."""

from __future__ import annotations

from harness.catalogue.port import ShopDirectory
from harness.tools.call import RefusedCallError, ToolContext, listed, result_text
from harness.tools.port import ToolOutcome
from harness.work import PRODUCT


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
