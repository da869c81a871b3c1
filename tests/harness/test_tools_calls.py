"""Whatever an agent sends gets an answer, and a malformed call gets a sentence and A1050."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.codes.row import Owner
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.tools.port import Toolbox
from harness.tools.registry import PROFILES, make_toolbox
from tests.harness.catalogue_stand import catalogue_of
from tests.harness.test_tools import PROBLEM, SHELF

NAMES = ["find_product", "view_product_information", "recommend_product", "terminate"]
NAMES += ["check_product_match", "find_products_in_same_shop", "calculate_voucher"]


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(SHELF, tmp_path_factory.mktemp("calls"))


@pytest.fixture(scope="module")
def tools(catalogue: Catalogue) -> Toolbox:
    return make_toolbox("sn15", catalogue, PROBLEM)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("find_producto", "{}", "there is no tool 'find_producto'"),
        ("", "{}", "there is no tool"),
        ("\ud800", "{}", "there is no tool"),
        ("find_product", "{q: 1}", "not JSON"),
        ("find_product", '{"q": "\ud800"}', "not JSON"),
        ("find_product", "[]", "must be a JSON object"),
        ("find_product", "null", "must be a JSON object"),
        ("find_product", "", "missing argument `q`"),
        ("find_product", '{"q": null}', "`q` must be a string, not null"),
        ("find_product", '{"q": ["a"]}', "`q` must be a string, not a list"),
        ("find_product", '{"q": "a", "page": "1"}', "`page` must be an integer, not a string"),
        ("find_product", '{"q": "a", "page": 1.5}', "`page` must be an integer, not a number"),
        ("find_product", '{"q": "a", "page": true}', "`page` must be an integer, not a boolean"),
        ("find_product", '{"query": "a"}', "unknown argument 'query'; missing argument `q`"),
        ("calculate_voucher", '{"voucher_type": "shop"}', "`voucher_type` must be one of fixed, percentage"),
        ("terminate", '{"status": 3}', "`status` must be a string"),
    ],
)
def test_a_malformed_call_is_told_what_is_wrong(tools: Toolbox, name: str, arguments: str, says: str) -> None:
    outcome = tools.dispatch(name, arguments)
    answer = json.loads(outcome.result)
    assert says in answer["error"] and answer["code"] == "A1050"
    assert outcome.failure is not None
    assert outcome.failure.detail == answer["error"]
    assert outcome.failure.owner is Owner.AGENT
    assert not outcome.is_final and outcome.found_ids == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    [
        "q",
        "page",
        "price",
        "service",
        "sort",
        "shop_id",
        "product_ids",
        "product_id",
        "requirements",
        "product_queries",
        "product_prices",
        "voucher_type",
        "discount_value",
        "threshold",
        "budget",
        "cap",
        "shop_ids",
        "status",
        "x",
    ]
)
texts = st.sampled_from(["101", "101,102", '{"color": "red"}', '[{"q": "mat"}]', "1,2", "fixed", "COD", "0-9", "bag"])


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(NAMES), arguments=st.dictionaries(keys, json_values | texts, max_size=7))
def test_no_json_object_makes_a_tool_raise(tools: Toolbox, name: str, arguments: dict[str, object]) -> None:
    outcome = tools.dispatch(name, json.dumps(arguments))
    answer = orjson.loads(outcome.result)
    assert (outcome.failure is not None) == (isinstance(answer, dict) and answer.get("code") == "A1050")


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES) | st.text(max_size=10), arguments=st.text(max_size=40))
def test_no_text_makes_dispatch_raise(tools: Toolbox, name: str, arguments: str) -> None:
    orjson.loads(tools.dispatch(name, arguments).result)


def test_a_profile_offers_its_tools_and_no_others(catalogue: Catalogue) -> None:
    paper = make_toolbox("paper4", catalogue, PROBLEM)
    assert json.loads(paper.dispatch("check_product_match", "{}").result)["code"] == "A1050"
    assert "check_product_match" not in paper.schemas
    assert "view_shop_information" not in make_toolbox("sn15", catalogue, PROBLEM).schemas
    assert list(PROFILES) == ["paper4", "sn15", "extended", "compact", "environment"]


def test_an_unknown_profile_is_refused_with_the_known_ones(catalogue: Catalogue) -> None:
    with pytest.raises(ArenaError, match="paper4, sn15, extended"):
        make_toolbox("paper5", catalogue, PROBLEM)
