"""The tools: they search, show products, verify by the scorer's own functions, recommend, and end the dialogue.

A page of search results is the reference's; one product a search from a single shop is the same search in one shop. The
last recommendation of an episode counts. Docstrings are what a model reads. A tool is given a `ToolContext` and answers
with a `ToolOutcome`, or raises `RefusedCallError`.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import orjson

from foundation.codes import BAD_CALL
from foundation.errors import Failure
from harness.catalogue.port import Catalogue, SearchRequest, ShopPages, ignored_parameters
from harness.limits import MATCHED_VALUE, PRODUCT, WorkMeter
from problems.axes import Pair, count_pairs
from problems.model import Product, Voucher
from problems.score import parse_recommendation, settle_bill, total_price


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one tool call. `result` is the JSON text the agent receives, also when the call was malformed."""

    result: str
    failure: Failure | None = None  # A1050, with the same sentence the agent sees
    ignored_parameters: tuple[str, ...] = ()
    found_ids: tuple[str, ...] = ()  # ids in the result, in rank order, for find_* tools only
    recommended_ids: tuple[str, ...] | None = None  # recommend_product only
    is_final: bool = False  # terminate only


_ECHO_MAX = 200  # characters of the agent's own text repeated in an error


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool may look at: the catalogue, and never the problem or its answer."""

    catalogue: Catalogue
    work: WorkMeter = msgspec.field(default_factory=WorkMeter)  # of the episode


class RefusedCallError(Exception):
    """Raised by a tool for arguments of the right type that cannot be read; the text is for the agent."""


def decode_arguments(arguments: str) -> object:
    """The value of a call's arguments; none at all are no arguments. The one reading: what judges and attributes a call
    must take effect where the tools do. Raises orjson.JSONDecodeError."""
    return orjson.loads(arguments) if arguments.strip() else {}


def result_text(value: object) -> str:
    """JSON text of a result, as the agent receives it."""
    return orjson.dumps(value).decode()


def refuse(message: str, *, recommended_ids: tuple[str, ...] | None = None) -> ToolOutcome:
    """The answer to a malformed call: the same sentence for the agent and for the record."""
    sentence = message.encode("utf-8", "replace").decode()
    return ToolOutcome(
        result=result_text({"error": sentence, "code": BAD_CALL}),
        failure=Failure(code=BAD_CALL, detail=sentence),
        recommended_ids=recommended_ids,
    )


def quoted(text: str) -> str:
    """The agent's own text, shortened, for use in an error message."""
    return repr(text if len(text) <= _ECHO_MAX else text[:_ECHO_MAX] + "…")


def shown(product: Product, *names: str) -> dict[str, object]:
    """These fields of a product."""
    return {name: getattr(product, name) for name in names}


def listed(product: Product) -> dict[str, object]:
    """A product as a search result shows it."""
    return shown(product, "product_id", "shop_id", "title", "price", "service", "sold_count")


def split_list(text: str) -> list[str]:
    """Parts of a comma-separated list, stripped, blanks dropped."""
    return [part.strip() for part in text.split(",") if part.strip()]


PRODUCTS_MAX = 100  # in one call: a short argument must not ask for an endless answer


def view_product_information(context: ToolContext, product_ids: str) -> ToolOutcome:
    """Show details of products: product_id, short_description, description, sku_options and attributes.

    Returns a list in the order asked for; unknown ids are left out. Titles and prices stand in search results.

    Args:
        product_ids: Comma-separated product ids, at most 100.
    """
    names = ("product_id", "short_description", "description", "sku_options", "attributes")
    return ToolOutcome(result=result_text([shown(one, *names) for one in products_of(context, product_ids)]))


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


def search_request(q: str, page: int = 1, **filters: str) -> SearchRequest:
    """The request of a tool call; an empty filter is an absent parameter."""
    return SearchRequest(q=q, page=str(page), **{name: value or None for name, value in filters.items()})


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
                "products": [shown(product, "product_id", "title", "price", "shop_id") for product in products],
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


REQUIREMENTS_MAX = 100
PRICES_MAX = 100


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
    # The attributes alone, or with the option that meets most pairs; the first of those that meet as many.
    every_pair = [pair for pairs in wanted.values() for pair in pairs]
    offers: list[tuple[str | None, Product]] = [(None, msgspec.structs.replace(product, sku_options={}))]
    for number, sku_option in product.sku_options.items():
        offers.append((number, msgspec.structs.replace(product, sku_options={number: sku_option})))
    option, offered = max(offers, key=lambda offer: _meets(offer[1], every_pair))
    matches = [key for key, pairs in wanted.items() if _meets(offered, pairs) == len(pairs)]
    answer = {
        "matched": len(matches) == len(wanted),
        "matches": matches,
        "mismatches": [key for key in wanted if key not in matches],
        "sku_option": option,
        "product_summary": shown(product, "product_id", "attributes"),
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
        wanted[key] = [(key, str(one)) for one in values]
    if sum(map(len, wanted.values())) > REQUIREMENTS_MAX:
        raise RefusedCallError(f"`requirements` holds more than {REQUIREMENTS_MAX} values")
    return wanted


def _meets(product: Product, pairs: list[Pair]) -> int:
    hits, _ = count_pairs(product, pairs, ())
    return hits


def calculate_voucher(
    context: ToolContext,
    product_prices: str,
    voucher_type: Literal["fixed", "percentage"],
    discount_value: float,
    threshold: float,
    budget: float,
    cap: float = 0.0,
    shop_ids: str = "",
) -> ToolOutcome:
    """Compute the price of a basket after a voucher, exactly as the final check will.

    Returns prices, total_before, discount_amount, total_after, within_budget, voucher_applied and budget. A basket
    whose plain total meets the budget is within it without the voucher.

    Args:
        product_prices: Comma-separated prices in PHP in the order of the products, e.g. "100,50.5,75".
        voucher_type: "fixed" takes an amount off, "percentage" a share.
        discount_value: Amount in PHP for a fixed voucher; per cent for a percentage voucher, 42 meaning 42 %.
        threshold: Least total in PHP for which the voucher applies.
        budget: The user's budget in PHP.
        cap: Most that a percentage voucher takes off, in PHP; 0 means no cap.
        shop_ids: For a voucher that needs one shop: comma-separated shop ids of the products, in the same order. Empty
            for a voucher that applies everywhere.
    """
    prices = _read_prices(product_prices)
    shops = split_list(shop_ids)
    if shops and len(shops) != len(prices):
        raise RefusedCallError(f"`shop_ids` names {len(shops)} shops for {len(prices)} prices")
    is_percentage = voucher_type == "percentage"
    amounts = {"discount_value": discount_value, "threshold": threshold, "budget": budget, "cap": cap}
    for name, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            raise RefusedCallError(f"`{name}` must be a finite number that is not negative")
    if is_percentage and discount_value > 100:
        raise RefusedCallError("`discount_value` of a percentage voucher must be at most 100")
    voucher = Voucher(
        voucher_type="shop" if shops else "platform",
        discount_type=voucher_type,
        threshold=threshold,
        budget=budget,
        face_value=None if is_percentage else discount_value,
        discount=discount_value / 100 if is_percentage else None,
        cap=(cap or total_price(prices)) if is_percentage else None,
    )
    bill = settle_bill(prices, shops, voucher)
    answer = {
        "prices": prices,
        # shown as the reference shows them, to the cent; what is within the budget is decided before
        "total_before": round(bill.total_php, 2),
        "discount_amount": round(bill.total_php - bill.after_php, 2),
        "total_after": round(bill.after_php, 2),
        "within_budget": bill.is_within_budget,
        "voucher_applied": bill.is_eligible,
        "budget": budget,
    }
    return ToolOutcome(result=result_text(answer))


def _read_prices(text: str) -> list[float]:
    """Prices in PHP. Raises RefusedCallError for anything but 1 to 100 finite numbers that are not negative."""
    parts = split_list(text)
    if not 0 < len(parts) <= PRICES_MAX:
        raise RefusedCallError(f"`product_prices` must hold 1 to {PRICES_MAX} numbers")
    prices = []
    for part in parts:
        try:
            price = float(part)
        except ValueError:
            price = math.nan
        if not (math.isfinite(price) and price >= 0):
            raise RefusedCallError(f"`product_prices` has {quoted(part)}, which is not a price")
        prices.append(price)
    return prices
