"""Each tool answers what it promises, and its deviations from the reference are the listed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue, SearchRequest
from harness.tools.port import Toolbox, ToolOutcome
from harness.tools.registry import make_toolbox
from harness.work import WorkMeter
from problems.axes import match
from problems.model import Problem, RewardItem
from problems.product import Product
from problems.titles import LexicalTitles
from tests.harness.catalogue_stand import catalogue_of, product

PROBLEM = Problem(
    problem_id="p-1",
    bucket="product",
    query="Show me a red bag.",
    rewards=(RewardItem(product_id="101", title=("Red Canvas Bag",)),),
)
SHELF = [
    product(
        "101",
        "Red Canvas Bag",
        price=120.0,
        service=("COD",),
        sku_options={"1": {"color": "red", "size": "s"}, "2": {"color": "blue", "size": "l"}},
        attributes={"material": ("canvas", "cotton"), "style": ("bored",)},
        description="A bag.",
    ),
    product("102", "Red Canvas Bag Large", price=300.0, shop_id="78", sold_count=9),
    product("103", "Yoga Mat Thick", price=400.0, shop_id="78", service=("COD", "flashsale")),
    product("104", "Yoga Mat Thin", price=200.0, shop_id="78"),
    product("105", "Yoga Mat", price=150.0, shop_id="79"),
]


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(SHELF, tmp_path_factory.mktemp("tools"))


@pytest.fixture(scope="module")
def tools(catalogue: Catalogue) -> Toolbox:
    return make_toolbox("sn15", catalogue, PROBLEM)


def call(tools: Toolbox, name: str, **arguments: object) -> tuple[Any, ToolOutcome]:
    outcome = tools.dispatch(name, json.dumps(arguments))
    return json.loads(outcome.result), outcome


# -- find_product


def test_find_product_lists_six_fields_in_rank_order(tools: Toolbox) -> None:
    result, outcome = call(tools, "find_product", q="red canvas bag")
    assert [row["product_id"] for row in result] == ["101", "102"] == list(outcome.found_ids)
    assert result[0] == {
        "product_id": "101",
        "shop_id": "77",
        "title": "Red Canvas Bag",
        "price": 120.0,
        "service": ["COD"],
        "sold_count": 1,
    }
    assert outcome.failure is None


# -- view_product_information


def test_view_shows_details_without_title_and_price_and_strips_ids(tools: Toolbox) -> None:
    result, outcome = call(tools, "view_product_information", product_ids=" 102 ,101,, 999")
    assert [row["product_id"] for row in result] == ["102", "101"]
    assert result[1] == {
        "product_id": "101",
        "short_description": "",
        "description": "A bag.",
        "sku_options": {"1": {"color": "red", "size": "s"}, "2": {"color": "blue", "size": "l"}},
        "attributes": {"material": ["canvas", "cotton"], "style": ["bored"]},
    }
    assert outcome.found_ids == ()


def test_view_of_too_many_products_is_refused(tools: Toolbox) -> None:
    result, outcome = call(tools, "view_product_information", product_ids="101," * 101)
    assert "at most 100" in result["error"]
    assert outcome.failure is not None and outcome.failure.code == "A1050"


# -- recommend_product and terminate


@pytest.mark.parametrize(
    ("text", "ids"), [("101", ("101",)), (" 102 , 101,,102", ("102", "101")), ("", ()), (" , ", ())]
)
def test_recommendations_are_read_as_the_scorer_reads_them(tools: Toolbox, text: str, ids: tuple[str, ...]) -> None:
    result, outcome = call(tools, "recommend_product", product_ids=text)
    assert outcome.recommended_ids == ids
    assert (",".join(ids) if ids else "Nothing was recommended") in result


def test_only_recommend_product_recommends_and_only_terminate_ends(tools: Toolbox) -> None:
    outcomes = {
        "find_product": call(tools, "find_product", q="bag")[1],
        "recommend_product": call(tools, "recommend_product", product_ids="101")[1],
        "terminate": call(tools, "terminate")[1],
    }
    assert [name for name, outcome in outcomes.items() if outcome.is_final] == ["terminate"]
    assert [name for name, one in outcomes.items() if one.recommended_ids is not None] == ["recommend_product"]


# -- check_product_match


def check(tools: Toolbox, requirements: object, product_id: str = "101") -> dict[str, Any]:
    text = requirements if isinstance(requirements, str) else json.dumps(requirements)
    result, _ = call(tools, "check_product_match", product_id=product_id, requirements=text)
    assert isinstance(result, dict)
    return result


def test_the_check_agrees_with_the_scorer(tools: Toolbox) -> None:
    for option in ({"color": "red"}, {"color": "red", "size": "l"}, {"size": "l"}, {"color": "green"}):
        for attributes in ({"material": ("canvas",)}, {"material": ("wool",)}, {"style": ("bored",), "size": ("s",)}):
            if not option.keys() & attributes.keys():
                item = RewardItem(product_id="x", title=(), sku_options=(option,), attributes=(attributes,))
                axes = match(item, SHELF[0], LexicalTitles())
                result = check(tools, {**option, **{key: list(values) for key, values in attributes.items()}})
                assert result["matched"] == (axes.hits == axes.total)
                assert len(result["matches"]) == axes.hits


@pytest.mark.parametrize("requirements", ["", "{", "[]", "{}", '"red"', '{"a": null}', '{"a": {}}', '{"a": []}', "3"])
def test_requirements_that_cannot_be_read_are_refused_for_any_product(tools: Toolbox, requirements: str) -> None:
    for product_id in ("101", "999"):
        _, outcome = call(tools, "check_product_match", product_id=product_id, requirements=requirements)
        assert outcome.failure is not None and "requirements" in outcome.failure.detail


# -- find_products_in_same_shop


def same_shop(tools: Toolbox, *queries: object) -> tuple[Any, ToolOutcome]:
    return call(tools, "find_products_in_same_shop", product_queries=json.dumps(queries))


def test_one_shop_sells_everything_in_the_order_asked(tools: Toolbox) -> None:
    result, outcome = same_shop(tools, {"q": "yoga mat", "price": "0-250"}, {"q": "red bag"})
    assert result["found"] and result["shop_id"] == "78" and result["shops_tried"] == 2
    assert [row["product_id"] for row in result["products"]] == ["104", "102"] == list(outcome.found_ids)
    assert result["products"][1] == {
        "product_id": "102",
        "title": "Red Canvas Bag Large",
        "price": 300.0,
        "shop_id": "78",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "[3]",
        '[{"price": "1-2"}]',
        '[{"q": ""}]',
        '[{"q": "a", "price": 5}]',
        "[" * 2000,
        json.dumps([{"q": "a"}] * 11),
    ],
)
def test_queries_that_cannot_be_read_are_refused(tools: Toolbox, text: str) -> None:
    _, outcome = call(tools, "find_products_in_same_shop", product_queries=text)
    assert outcome.failure is not None and "product_queries" in outcome.failure.detail


# -- calculate_voucher


def voucher(tools: Toolbox, prices: str = "150", **arguments: object) -> tuple[Any, ToolOutcome]:
    given = {"voucher_type": "percentage", "discount_value": 18, "threshold": 100, "budget": 123, **arguments}
    return call(tools, "calculate_voucher", product_prices=prices, **given)


def test_the_voucher_is_decided_as_the_scorer_does_to_the_last_bit_and_shown_to_the_cent(tools: Toolbox) -> None:
    """The reference's tool says 123.0 is affordable where its scorer says it is not."""
    result, _ = voucher(tools)
    assert result["total_after"] == 123.0 != 150 * (1 - 0.18)
    assert voucher(tools, "33.333,33.333")[0]["total_before"] == 66.67
    assert result["within_budget"] is False and result["voucher_applied"] is True


@pytest.mark.parametrize(
    "wrong",
    [
        {"prices": ""},
        {"prices": "1;2"},
        {"prices": "nan"},
        {"prices": "-5"},
        {"prices": "1," * 101},
        {"discount_value": 101},
        {"discount_value": -1},
        {"cap": -1},
        {"shop_ids": "77,78"},
        {"voucher_type": "shop"},
        {"budget": "123"},
        {"budget": True},
    ],
)
def test_voucher_arguments_that_make_no_sense_are_refused(tools: Toolbox, wrong: dict[str, Any]) -> None:
    _, outcome = voucher(tools, **wrong)
    assert outcome.failure is not None and outcome.failure.code == "A1050"


# -- the catalogue's own failures


def test_a_failing_catalogue_is_never_the_agents_fault(tmp_path: Path) -> None:
    class Failing:
        content_sha256 = "0" * 64

        def __len__(self) -> int:
            return 1

        def search(self, request: SearchRequest, work: WorkMeter | None = None) -> tuple[Product, ...]:
            raise ArenaError("U3010", "disk")

        def product(self, product_id: str) -> Product | None:
            raise ArenaError("U3010", "disk")

        def products(self) -> Any:
            raise ArenaError("U3010", "disk")

    tools = make_toolbox("sn15", Failing(), PROBLEM)
    for name, arguments in (("find_product", '{"q": "a"}'), ("view_product_information", '{"product_ids": "1"}')):
        with pytest.raises(ArenaError, match="U3010"):
            tools.dispatch(name, arguments)


def test_no_product_is_taken_twice(tools: Toolbox) -> None:
    result, _ = same_shop(tools, {"q": "yoga mat"}, {"q": "yoga mat"})
    ids = [row["product_id"] for row in result["products"]]
    assert sorted(ids) == ["103", "104"]


def test_no_hit_for_the_first_query_is_said(tools: Toolbox) -> None:
    result, outcome = same_shop(tools, {"q": "spaceship"}, {"q": "yoga mat"})
    assert result == {"found": False, "error": "no result for the first query: 'spaceship'", "shops_tried": 0}
    assert outcome.failure is None
