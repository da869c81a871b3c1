"""Problem files: three formats in, one out."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from foundation.errors import ArenaError
from problems.formats import count_web, problem_bytes, read_problems, write_problems
from problems.model import PriceRule
from tests.problems.stand import PROBLEMS, PRODUCT_PROBLEM

ITEM = {
    "product_id": "1",
    "title": ["Lamp"],
    "sku_options": [{"color": "red", "size": "xl"}],
    "attributes": [{"material": ["brass"]}, {"style": ["plain"]}],
    "service": ["COD"],
    "price": [{"greater than": [10, None]}],
}
VOUCHER = {
    "voucher_type": "shop",
    "threshold": 50,
    "discount_type": "fixed",
    "face_value": 9,
    "discount": None,
    "cap": None,
    "price_after_voucher": 41.5,
    "budget": 45,
}
UPSTREAM = [
    {"query": "a lamp", "reward": ITEM},
    {"query": "two lamps", "reward": [ITEM, ITEM]},
    {"query": "cheap lamps", "reward": [ITEM], "voucher": VOUCHER},
]


def refused(*rows, code: str) -> str:
    with pytest.raises(ArenaError) as caught:
        read_problems(rows)
    assert caught.value.failure.code == code, caught.value
    return caught.value.failure.detail


def test_the_upstream_format_tells_its_bucket_by_its_shape():
    problems = read_problems(map(json.dumps, UPSTREAM))
    assert [problem.bucket for problem in problems] == ["product", "shop", "voucher"]
    item = problems[0].rewards[0]
    assert item.price == (PriceRule(mode="greater than", low=10.0),)
    assert item.attributes == ({"material": ("brass",)}, {"style": ("plain",)})
    assert problems[2].voucher is not None and problems[2].voucher.budget == 45.0


def test_the_sn15_format_names_its_bucket_in_title_case():
    more = {"difficulty": "easy", "title": "A Lamp 1", "reward_title_embeddings": {"Lamp": [0.1]}}
    named = zip(UPSTREAM, ("Product", "Shop", "Voucher"), strict=True)
    rows = [{**row, "category": name, **more} for row, name in named]
    plain = [{**row, "category": name} for row, name in zip(UPSTREAM, ("product", "shop", "voucher"), strict=True)]
    assert read_problems(map(json.dumps, rows)) == read_problems(plain)


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"suite": 1, "problems": rows}])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_or_an_envelope_reads_like_lines(wrap, indent):
    text = json.dumps(wrap(UPSTREAM), indent=indent)
    assert read_problems([*text.splitlines(), ""]) == read_problems(UPSTREAM)


def test_our_own_format_is_read_back_equal():
    assert read_problems(write_problems(PROBLEMS)) == PROBLEMS


def test_two_problems_with_one_query_keep_their_own_rewards():
    first, second = read_problems([UPSTREAM[0], {**UPSTREAM[0], "reward": {**ITEM, "product_id": "2"}}])
    assert first.problem_id != second.problem_id
    assert (first.rewards[0].product_id, second.rewards[0].product_id) == ("1", "2")


def test_two_problems_with_one_id_are_refused():
    detail = refused({**UPSTREAM[0], "id": "x"}, {**UPSTREAM[1], "id": "x"}, code="P4009")
    assert "line 1" in detail and "line 2" in detail


def test_a_broken_line_is_named():
    assert "line 2" in refused(json.dumps(UPSTREAM[0]), '{"query": ', code="P4001")
    assert "line 2" in refused(json.dumps(UPSTREAM[0]), '{"price": NaN}', code="P4001")
    refused(b"\xff\xfe", code="P4001")
    refused("[" * 100_000, code="P4001")


def test_web_problems_are_counted_and_left_out_where_that_is_asked_for():
    rows = [UPSTREAM[0], {**UPSTREAM[0], "category": "Web"}, {**UPSTREAM[0], "knowledge_attribute": "Violin"}]
    assert read_problems(rows, is_web_skipped=True) == read_problems(rows[:1])
    assert count_web(rows) == 2


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        ({"query": "q", "reward": ITEM, "category": "web"}, "P4008", "web"),
        ({"query": "q", "reward": ITEM, "Knowledge_Attribute": "Violin"}, "P4008", "web"),
        ({"query": "q", "reward": ITEM, "category": "grocery"}, "P4003", "grocery"),
        ({"query": "q", "reward": ITEM, "category": 3}, "P4003", "3"),
        ({"query": 5, "reward": ITEM}, "P4009", "query"),
        ({"query": "q", "reward": ITEM, "id": 7}, "P4009", "problem_id"),
        ({"query": "q", "reward": [ITEM, "lamp"]}, "P4003", "reward[1] is not an object"),
        ({"query": "q", "reward": {**ITEM, "price": {}}}, "P4003", "price is not a list of objects"),
        ({"query": "q", "reward": {**ITEM, "price": [{"between": [1]}]}}, "P4003", "'between' needs two bounds"),
        ({"query": "q", "reward": {**ITEM, "price": [{"less than": [None, math.inf]}]}}, "P4003", "high is not finite"),
        ({"query": "q", "reward": {**ITEM, "product_id": ""}}, "P4003", "product_id is empty"),
        ({"query": "q", "reward": {"product_id": "1", "title": []}}, "P4003", "asks nothing"),
        ({"query": "\ud800", "reward": ITEM}, "P4009", ""),
    ],
)
def test_malformed_rows_name_line_and_field(row, code, words):
    detail = refused(row, code=code)
    assert "line 1" in detail and words in detail


def test_hashes_do_not_depend_on_key_order_or_on_integers_for_floats():
    item = PRODUCT_PROBLEM.rewards[0]
    turned = msgspec.structs.replace(
        item,
        sku_options=tuple(dict(reversed(option.items())) for option in item.sku_options),
        price=(PriceRule(mode="between", low=200.0, high=300.0),),
    )
    same = msgspec.structs.replace(PRODUCT_PROBLEM, rewards=(turned,))
    assert problem_bytes(same) == problem_bytes(PRODUCT_PROBLEM)
    other = msgspec.structs.replace(PRODUCT_PROBLEM, query="a lamp!")
    assert problem_bytes(other) != problem_bytes(PRODUCT_PROBLEM)
