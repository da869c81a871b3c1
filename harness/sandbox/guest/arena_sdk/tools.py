"""The catalogue's tools. Each call is executed and recorded by the host.

`call(name, ...)` and the named functions give decoded results and raise `ToolError` when a call is malformed.
`execute(name, arguments)` is for agents that pass a model's own calls on: text in, text out, never an exception for a
malformed call, so that the model reads exactly what was recorded. Arguments that are None are not sent.
"""

from __future__ import annotations

import json

from arena_sdk import _link

TYPE_CHECKING = False  # the name checkers know: at run time, `typing` takes longer than all else that an agent needs
if TYPE_CHECKING:
    from typing import Any

JsonObject = dict[str, "Any"]

_MODELS_DOING = ("A1050", "A1029")  # refusals that say something about the call alone


def schemas() -> list[JsonObject]:
    """The OpenAI `tools` array of this run's tool profile, to hand to `llm.chat(..., tools=tools.schemas())`."""
    decoded: list[JsonObject] = json.loads(_link.schemas)
    return decoded


def execute(name: str, arguments: str | JsonObject) -> str:
    """Run one call and return its result as JSON text, a tool error included.

    `arguments` is an object or the JSON text a model emitted, well formed or not, short or far too long.
    """
    try:
        result, _ = _send(name, arguments)
    except _link.ToolError as error:
        if error.code not in _MODELS_DOING:
            raise
        return json.dumps({"error": error.message, "code": error.code})
    return result


def call(name: str, /, **arguments: object) -> Any:
    """Run one call and return its decoded result. Raises ToolError A1050 when the call is malformed."""
    result, failure = _send(name, {key: value for key, value in arguments.items() if value is not None})
    if failure is not None:
        raise _link.ToolError(failure["code"], failure["message"])
    return json.loads(result)


def find_product(
    q: str | None = None,
    *,
    page: int | str | None = None,
    shop_id: str | None = None,
    price: str | None = None,
    sort: str | None = None,
    service: str | None = None,
) -> Any:
    """Search the catalogue: ten products a page, pages 1 to 5.

    `price` is `low-high` in PHP with either side optional (`0-100`, `1000-`), `sort` one of order, priceasc,
    pricedesc, `service` a comma-separated list of official, freeShipping, COD, flashsale.
    """
    return call("find_product", **locals())


def view_product_information(product_ids: str) -> Any:
    """Descriptions, SKU options and attributes of products; `product_ids` is comma separated."""
    return call("view_product_information", product_ids=product_ids)


def recommend_product(product_ids: str) -> Any:
    """Recommend products, comma separated, in the order of the request. The last recommendation counts."""
    return call("recommend_product", product_ids=product_ids)


def terminate(status: str = "success") -> Any:
    """End the episode; later calls are not executed."""
    return call("terminate", status=status)


def check_product_match(product_id: str, requirements: str | JsonObject) -> Any:
    """Compare one product with required attribute and option pairs, e.g. `{"color_family": "black"}`."""
    return call("check_product_match", product_id=product_id, requirements=_as_text(requirements))


def find_products_in_same_shop(product_queries: str | list[JsonObject]) -> Any:
    """Find several products that one shop sells; one `{"q", "price", "service"}` each, `q` required."""
    return call("find_products_in_same_shop", product_queries=_as_text(product_queries))


def calculate_voucher(
    product_prices: str,
    voucher_type: str,
    discount_value: float,
    threshold: float,
    budget: float,
    cap: float | None = None,
    shop_ids: str | None = None,
) -> Any:
    """The price of a basket after a voucher, amounts in PHP; `voucher_type` is fixed or percentage (42 means 42 %)."""
    return call("calculate_voucher", **locals())


def _as_text(value: str | JsonObject | list[JsonObject]) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _send(name: str, arguments: str | JsonObject) -> tuple[str, dict[str, str] | None]:
    answer: Any = _link.request("tool.call", {"name": name, "arguments": arguments})
    return answer["result"], answer["failure"]
