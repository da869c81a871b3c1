"""check_product_match: does one product meet required attributes and options, judged by the scorer's own matching."""

from __future__ import annotations

import msgspec
import orjson

from harness.tools.call import RefusedCallError, ToolContext, quoted, result_text
from harness.tools.port import ToolOutcome
from harness.work import MATCHED_VALUE, PRODUCT
from problems.product import Product
from problems.scoring.axes import Pair, count_pairs

REQUIREMENTS_MAX = 100


def check_product_match(context: ToolContext, product_id: str, requirements: str) -> ToolOutcome:
    """Check one product against required attributes and options before recommending it.

    Keys and values must be equal, letter for letter, to a pair of the product's attributes or of one SKU option; all
    requirements have to be met by the same option. Returns matched, matches, mismatches, the sku_option that meets
    most (null when the attributes alone do) and a product_summary.

    Args:
        product_id: The product to check.
        requirements: JSON object of required pairs, e.g. '{"color_family": "black", "material": "steel"}'; a list as
            value requires each of its values.
    """
    wanted = _read_requirements(requirements)
    context.work.spend(PRODUCT + MATCHED_VALUE * sum(map(len, wanted.values())))
    product = context.catalogue.product(product_id.strip())
    if product is None:
        absent = {"matched": False, "error": "Product not found", "matches": [], "mismatches": list(wanted)}
        return ToolOutcome(result=result_text(absent))
    option, offered = _best_option(product, [pair for pairs in wanted.values() for pair in pairs])
    matches = [key for key, pairs in wanted.items() if _meets(offered, pairs) == len(pairs)]
    answer = {
        "matched": len(matches) == len(wanted),
        "matches": matches,
        "mismatches": [key for key in wanted if key not in matches],
        "sku_option": option,
        "product_summary": {"product_id": product.product_id, "attributes": product.attributes},
    }
    return ToolOutcome(result=result_text(answer))


def _read_requirements(text: str) -> dict[str, list[Pair]]:
    """Pairs by key. Raises RefusedCallError for anything but an object of strings, numbers and lists of them."""
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RefusedCallError(f"`requirements` is not JSON: {quoted(text)}") from None
    if not isinstance(raw, dict) or not raw:
        raise RefusedCallError("`requirements` must be a JSON object with at least one key")
    wanted: dict[str, list[Pair]] = {}
    for key, value in raw.items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values):
            raise RefusedCallError(f"`requirements`: the value of {quoted(key)} is neither text nor a list of texts")
        wanted[key] = [(key, one if isinstance(one, str) else str(one)) for one in values]
    if sum(map(len, wanted.values())) > REQUIREMENTS_MAX:
        raise RefusedCallError(f"`requirements` holds more than {REQUIREMENTS_MAX} values")
    return wanted


def _best_option(product: Product, pairs: list[Pair]) -> tuple[str | None, Product]:
    """The option that meets most pairs, and the product reduced to it; None when no option adds to the attributes."""
    best: str | None = None
    offered = msgspec.structs.replace(product, sku_options={})
    for number, option in product.sku_options.items():
        reduced = msgspec.structs.replace(product, sku_options={number: option})
        if _meets(reduced, pairs) > _meets(offered, pairs):
            best, offered = number, reduced
    return best, offered


def _meets(product: Product, pairs: list[Pair]) -> int:
    hits, _ = count_pairs(product, pairs, ())
    return hits
