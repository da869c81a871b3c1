"""The extended profile: shops and vouchers can be looked at, and what the reference ignores in silence is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue, SearchRequest, ShopDirectory
from harness.catalogue.requests import ignored_parameters
from harness.catalogue.synthetic import generate
from harness.tools.port import Toolbox, ToolContext, ToolOutcome
from harness.tools.registry import make_toolbox
from harness.tools.views import view_shop_information
from problems.model import Voucher
from problems.product import SERVICES, Product
from tests.harness.catalogue_stand import catalogue_of, product
from tests.harness.test_tools import PROBLEM, SHELF, call

VOUCHER = Voucher(
    voucher_type="shop",
    discount_type="percentage",
    threshold=100,
    budget=123.0,
    discount=0.29,
    cap=80,
    price_after_voucher=98.7654,
)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(SHELF, tmp_path_factory.mktemp("extended"))


@pytest.fixture(scope="module")
def tools(catalogue: Catalogue) -> Toolbox:
    return make_toolbox("extended", catalogue, PROBLEM)


def with_voucher(catalogue: Catalogue, voucher: Voucher) -> Toolbox:
    problem = msgspec.structs.replace(PROBLEM, bucket="voucher", voucher=voucher)
    return make_toolbox("extended", catalogue, problem)


# -- view_shop_information


def test_a_shop_is_summed_up(tools: Toolbox) -> None:
    result, outcome = call(tools, "view_shop_information", shop_id=" 78 ")
    assert {key: value for key, value in result.items() if key != "top_sellers"} == {
        "found": True,
        "shop_id": "78",
        "product_count": 3,
        "price_range": {"lowest": 200.0, "highest": 400.0},
        "sold_count": 11,
        "services": {"official": 0, "freeShipping": 0, "COD": 1, "flashsale": 1},
    }
    assert [row["product_id"] for row in result["top_sellers"]] == ["102", "103", "104"]
    assert result["top_sellers"][0] == call(tools, "find_product", q="large")[0][0]
    assert outcome.failure is None


def test_every_shop_of_a_catalogue_is_what_its_products_say(tmp_path: Path) -> None:
    products = list(generate(300, 4))
    products += [product(f"9{place}", shop_id="many", sold_count=place % 3, price=1.0 + place) for place in range(8)]
    catalogue = catalogue_of(products, tmp_path)
    assert isinstance(catalogue, ShopDirectory)
    for shop_id in {one.shop_id for one in products}:
        own = sorted((one for one in products if one.shop_id == shop_id), key=lambda one: one.product_id)
        shop = catalogue.shop(shop_id)
        assert shop is not None
        assert (shop.products, shop.sold_count) == (len(own), sum(one.sold_count for one in own))
        assert (shop.low_php, shop.high_php) == (min(one.price for one in own), max(one.price for one in own))
        assert shop.services == {name: sum(name in one.service for one in own) for name in SERVICES}
        assert list(shop.best_sellers) == sorted(own, key=lambda one: -one.sold_count)[:5]


# -- view_voucher_information


def test_the_voucher_of_the_problem_is_shown_without_the_answers_price(catalogue: Catalogue) -> None:
    result, outcome = call(with_voucher(catalogue, VOUCHER), "view_voucher_information")
    assert result == {
        "has_voucher": True,
        "voucher_type": "percentage",
        "discount_value": 29.0,
        "threshold": 100.0,
        "cap": 80.0,
        "budget": 123.0,
        "needs_one_shop": True,
    }
    assert outcome.failure is None and "98.7" not in outcome.result


amounts = st.integers(1, 5_000).map(float)


@settings(max_examples=60, deadline=None)
@given(
    percent=st.integers(1, 100), threshold=amounts, budget=amounts, cap=amounts, prices=st.lists(amounts, min_size=1)
)
def test_what_is_shown_can_be_passed_to_calculate_voucher_and_means_the_same(
    catalogue: Catalogue, percent: int, threshold: float, budget: float, cap: float, prices: list[float]
) -> None:
    from problems.score import settle_bill

    for discount, face_value, kind in ((percent / 100, None, "percentage"), (None, cap, "fixed")):
        voucher = Voucher(
            voucher_type="platform",
            discount_type=kind,  # type: ignore[arg-type]
            threshold=threshold,
            budget=budget,
            discount=discount,
            face_value=face_value,
            cap=cap if kind == "percentage" else None,
        )
        tools = with_voucher(catalogue, voucher)
        shown, _ = call(tools, "view_voucher_information")
        shown.pop("has_voucher"), shown.pop("needs_one_shop")
        computed, _ = call(tools, "calculate_voucher", product_prices=",".join(map(str, prices)), **shown)
        bill = settle_bill(prices, (), voucher)
        assert computed["total_after"] == round(bill.after_php, 2)
        assert computed["within_budget"] == bill.is_within_budget


# -- strict search parameters


@pytest.mark.parametrize(
    ("arguments", "name", "form"),
    [
        ({"price": "above:10"}, "price", '"100-500"'),
        ({"price": "104"}, "price", '"100-"'),
        ({"price": "₱100-200"}, "price", '"-500"'),
        ({"sort": "cheapest"}, "sort", "priceasc"),
        ({"service": "lazmall"}, "service", "official, freeShipping, COD, flashsale"),
        ({"service": "official, COD"}, "service", "without spaces"),
        ({"page": 6}, "page", "1 to 5"),
        ({"page": 0}, "page", "1 to 5"),
    ],
)
def test_a_parameter_that_would_be_ignored_is_named_with_its_form(
    tools: Toolbox, arguments: dict[str, object], name: str, form: str
) -> None:
    result, outcome = call(tools, "find_product", q="bag", **arguments)
    assert f"`{name}`" in result["error"] and form in result["error"] and result["code"] == "A1050"
    assert outcome.failure is not None and outcome.found_ids == ()


filters = {
    "price": st.sampled_from(["", "1-2", "-500", "100-", "104", "a-b", "1-2-3", "nan-5", "default", "1e3-"]),
    "sort": st.sampled_from(["", "order", "priceasc", "pricedesc", "default", "Order", "price"]),
    "service": st.sampled_from(["", "COD", "COD,official", "default", "cod", "COD, official", ","]),
    "page": st.integers(1, 5),
}


@settings(max_examples=200, deadline=None)
@given(given_=st.fixed_dictionaries({}, optional=filters))
def test_extended_gives_the_page_of_the_other_profiles_or_refuses_what_they_ignore(
    catalogue: Catalogue, given_: dict[str, object]
) -> None:
    strict, plain = (_find(make_toolbox(name, catalogue, PROBLEM), given_) for name in ("extended", "sn15"))
    raw = {key: str(value) for key, value in given_.items()}
    if ignored_parameters(SearchRequest(q="bag", **raw)):
        assert strict.failure is not None and plain.failure is None and plain.ignored_parameters
    else:
        assert strict == plain


def _find(tools: Toolbox, arguments: dict[str, object]) -> ToolOutcome:
    return tools.dispatch("find_product", json.dumps({"q": "red bag yoga mat", **arguments}))


json_values = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.lists(st.text(max_size=3), max_size=2)
)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["view_shop_information", "view_voucher_information", "find_product"]),
    arguments=st.dictionaries(st.sampled_from(["shop_id", "q", "page", "price", "x"]), json_values, max_size=4),
)
def test_no_json_object_makes_an_extended_tool_raise(tools: Toolbox, name: str, arguments: dict[str, object]) -> None:
    outcome = tools.dispatch(name, json.dumps(arguments))
    answer = json.loads(outcome.result)
    assert (outcome.failure is not None) == (isinstance(answer, dict) and answer.get("code") == "A1050")


@pytest.mark.parametrize("arguments", [{}, {"shop_id": 78}, {"shop_id": " "}, {"shop_id": None}, {"shop": "78"}])
def test_a_shop_has_to_be_named(tools: Toolbox, arguments: dict[str, object]) -> None:
    result, outcome = call(tools, "view_shop_information", **arguments)
    assert outcome.failure is not None and "shop_id" in result["error"]


class Searching:
    """A catalogue of another engine, one that knows no shops."""

    content_sha256 = "0" * 64

    def __len__(self) -> int:
        return 0

    def search(self, request: SearchRequest) -> tuple[Product, ...]:
        return ()

    def product(self, product_id: str) -> Product | None:
        return None

    def products(self) -> Any:
        return iter(())

    def product_ids(self) -> Any:
        return iter(())


def test_a_catalogue_without_shops_is_refused_before_the_first_call() -> None:
    with pytest.raises(ArenaError, match="V2030"):
        make_toolbox("extended", Searching(), PROBLEM)
    assert make_toolbox("sn15", Searching(), PROBLEM).profile == "sn15"
    with pytest.raises(TypeError):
        view_shop_information(ToolContext(Searching(), PROBLEM), "78")
