"""Each tool answers what it promises, whatever an agent sends gets an answer, and schemas are the published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.canonical import text_hash
from foundation.codes import Owner
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.tools.compact import HITS_MAX
from harness.tools.functions import ToolOutcome
from harness.tools.registry import PROFILES, Toolbox, profile_schemas, profile_tools
from problems.axes import match
from problems.model import RewardItem
from problems.titles import LexicalTitles
from tests.harness.catalogue_stand import catalogue_of, product

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
    return Toolbox("sn15", catalogue)


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


# -- recommend_product and terminate


@pytest.mark.parametrize(
    ("text", "ids"), [("101", ("101",)), (" 102 , 101,,102", ("102", "101")), ("", ()), (" , ", ())]
)
def test_recommendations_are_read_as_the_scorer_reads_them(tools: Toolbox, text: str, ids: tuple[str, ...]) -> None:
    result, outcome = call(tools, "recommend_product", product_ids=text)
    assert outcome.recommended_ids == ids
    assert (",".join(ids) if ids else "Nothing was recommended") in result


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


@pytest.mark.parametrize("requirements", ["", "[]", "{}", '{"a": null}', '{"a": []}'])
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
        "[]",
        "[3]",
        '[{"price": "1-2"}]',
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
        {"prices": "nan"},
        {"prices": "-5"},
        {"prices": "1," * 101},
        {"discount_value": 101},
        {"shop_ids": "77,78"},
        {"budget": "123"},
    ],
)
def test_voucher_arguments_that_make_no_sense_are_refused(tools: Toolbox, wrong: dict[str, Any]) -> None:
    _, outcome = voucher(tools, **wrong)
    assert outcome.failure is not None and outcome.failure.code == "A1050"


def test_no_product_is_taken_twice(tools: Toolbox) -> None:
    result, _ = same_shop(tools, {"q": "yoga mat"}, {"q": "yoga mat"})
    ids = [row["product_id"] for row in result["products"]]
    assert sorted(ids) == ["103", "104"]


# -- malformed calls


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("find_producto", "{}", "there is no tool 'find_producto'"),
        ("\ud800", "{}", "there is no tool"),
        ("find_product", "{q: 1}", "not JSON"),
        ("find_product", "[]", "must be a JSON object"),
        ("find_product", "", "missing argument `q`"),
        ("find_product", '{"q": null}', "`q` must be a string, not null"),
        ("find_product", '{"q": "a", "page": "1"}', "`page` must be an integer, not a string"),
        ("find_product", '{"q": "a", "page": true}', "`page` must be an integer, not a boolean"),
        ("find_product", '{"query": "a"}', "unknown argument 'query'; missing argument `q`"),
        ("calculate_voucher", '{"voucher_type": "shop"}', "`voucher_type` must be one of fixed, percentage"),
    ],
)
def test_a_malformed_call_is_told_what_is_wrong(tools: Toolbox, name: str, arguments: str, says: str) -> None:
    outcome = tools.dispatch(name, arguments)
    answer = json.loads(outcome.result)
    assert says in answer["error"] and answer["code"] == "A1050"
    assert outcome.failure.detail == answer["error"]
    assert outcome.failure.owner is Owner.AGENT
    assert not outcome.is_final and outcome.found_ids == ()


def test_an_id_that_an_agent_only_passed_in_is_not_found(tools: Toolbox) -> None:
    wide = "".join(chr(0xFF10 + int(digit)) for digit in "103")
    for name, arguments in (
        ("view_product_information", {"product_ids": "103"}),
        ("find_product", {"q": "red bag 103"}),
        ("find_product", {"q": "red bag", "note": "103"}),
        ("find_product", {"q": f"red bag {wide} a" + "\u0301" * 90}),
        ("find_products_in_same_shop", {"product_queries": '[{"q": "red bag", "id": "103"}]'}),
        ("find_products_in_same_shop", {"product_queries": '[{"q": "red bag \\u0031\\u0030\\u0033"}]'}),
    ):
        assert "103" not in call(tools, name, **arguments)[1].found_ids, arguments


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(sorted({one.name for tool in profile_tools("sn15").values() for one in tool.parameters} | {"x"}))
texts = st.sampled_from(["101", "101,102", '{"color": "red"}', '[{"q": "mat"}]', "1,2", "fixed", "COD", "0-9", "bag"])


@settings(max_examples=200)
@given(
    name=st.sampled_from(list(profile_tools("sn15"))), arguments=st.dictionaries(keys, json_values | texts, max_size=7)
)
def test_no_json_object_makes_a_tool_raise(tools: Toolbox, name: str, arguments: dict[str, object]) -> None:
    outcome = tools.dispatch(name, json.dumps(arguments))
    answer = orjson.loads(outcome.result)
    assert (outcome.failure is not None) == (isinstance(answer, dict) and answer.get("code") == "A1050")


def test_a_profile_offers_its_tools_and_no_others_and_an_unknown_one_is_refused(catalogue: Catalogue) -> None:
    paper = Toolbox("paper4", catalogue)
    assert json.loads(paper.dispatch("check_product_match", "{}").result)["code"] == "A1050"
    assert "check_product_match" not in paper.schemas
    with pytest.raises(ArenaError, match="paper4, sn15, compact, environment"):
        Toolbox("paper5", catalogue)


# -- the compact profile: the four tools in few tokens, which find, surface and recommend as in `paper4`


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(list(generate(400, 3)), tmp_path_factory.mktemp("compact"))


def test_two_of_its_pages_are_one_of_the_catalogues(many: Catalogue) -> None:
    long, short = (Toolbox(profile, many) for profile in ("paper4", "compact"))
    for page in (1, 2):
        rows, whole = call(long, "find_product", q="bag", page=page)
        parts = [call(short, "find_product", q="bag", page=number) for number in (2 * page - 1, 2 * page)]
        assert [len(found) <= HITS_MAX for found, _ in parts] == [True, True]
        assert sum((outcome.found_ids for _, outcome in parts), ()) == whole.found_ids
        fields = ("product_id", "shop_id", "title", "price")
        assert [row for found, _ in parts for row in found] == [{name: row[name] for name in fields} for row in rows]
    assert whole.found_ids  # the second page holds something


def test_details_recommendation_and_end_are_those_of_the_paper_profile(many: Catalogue) -> None:
    long, short = (Toolbox(profile, many) for profile in ("paper4", "compact"))
    ids = call(long, "find_product", q="bag")[1].found_ids[:2]
    (first, _), (whole, _) = (call(one, "view_product_information", product_ids=",".join(ids)) for one in (short, long))
    assert [(row["sku_options"], row["attributes"]) for row in first] == [
        (row["sku_options"], row["attributes"]) for row in whole
    ]
    for name, arguments in (("recommend_product", {"product_ids": ids[0]}), ("terminate", {"status": "success"})):
        assert call(short, name, **arguments)[1] == call(long, name, **arguments)[1]
    assert list(profile_tools("compact")) == list(profile_tools("paper4"))
    assert len(profile_schemas("compact")) < 0.6 * len(profile_schemas("paper4"))


# -- schemas

SNAPSHOT = Path(__file__).with_name("tools_schemas.json")


@pytest.mark.parametrize("profile", list(PROFILES))
def test_schemas_are_the_published_ones(profile: str) -> None:
    """A change here changes what every model is told: renew the snapshot on purpose, by
    `python -m tests.harness.test_tools`."""
    published = json.loads(SNAPSHOT.read_text("utf-8"))
    assert json.loads(profile_schemas(profile)) == published[profile]["tools"]
    assert text_hash(profile_schemas(profile)) == published[profile]["sha256"]


def write_snapshot() -> None:
    """Renew the snapshot from the code."""
    published = {
        name: {"sha256": text_hash(profile_schemas(name)), "tools": json.loads(profile_schemas(name))}
        for name in PROFILES
    }
    SNAPSHOT.write_text(json.dumps(published, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    write_snapshot()
