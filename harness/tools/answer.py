"""The tools that end a task: the recommendation, of which the last one of an episode counts, and the end itself."""

from __future__ import annotations

from harness.tools.call import ToolContext, result_text
from harness.tools.port import ToolOutcome
from problems.score import parse_recommendation


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
