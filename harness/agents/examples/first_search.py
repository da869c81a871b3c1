"""A first agent: one search, one recommendation. Run it with `arena run examples/first_search.py`.

`problem` has `problem_id`, `category` (product, shop or voucher) and `query`. The last `recommend_product` is the
answer, and an id counts only if a search of this run brought it.
"""

import re

from arena_sdk import tools

# Words that say nothing about the product. Search looks at titles, options and attributes only.
NOISE = {"a", "an", "and", "any", "buy", "find", "for", "from", "i", "in", "is", "looking", "me", "of", "the", "with"}


def agent_main(problem: dict[str, str]) -> None:
    """Search for the words of the request and recommend the first product."""
    words = re.findall(r"[a-z]+", problem["query"].lower())
    query = " ".join([word for word in words if word not in NOISE][:8])
    products = tools.find_product(q=query)
    if products:
        tools.recommend_product(product_ids=products[0]["product_id"])
    tools.terminate()
