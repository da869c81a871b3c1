"""What the search server answers: the reference's bytes for any request, and a cause in every error.

`answer` is tested as the function it is; sockets and processes are in `test_catalogue_serving.py`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock
from urllib.parse import urlencode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.catalogue.layout import PRODUCTS
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue
from harness.catalogue.server import QUERY_STRING_MAX, Connections, HttpAnswer, SearchApplication, answer, network_of
from tests.harness.catalogue_stand import index_of, product

SHELF = [
    product("101", "Red Canvas Bag", price=120.0, service=("COD",), sku_options={"1": {"size": "s"}}, description="A"),
    product("102", "Red Canvas Bag Größe", price=300.5, shop_id="78", sold_count=9, attributes={"m": ("steel",)}),
    *(product(f"2{place:02}", f"Lamp {place}", price=float(place), shop_id="79") for place in range(60)),
]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return open_catalogue(index_of(SHELF, tmp_path_factory.mktemp("server")))


def ask(shelf: Catalogue, target: str, method: str = "GET") -> HttpAnswer:
    path, _, query = target.partition("?")
    return answer(shelf, method, path, query.encode())


def get(shelf: Catalogue, target: str) -> Any:
    reply = ask(shelf, target)
    assert reply.status == 200, reply
    return json.loads(reply.body)


# -- what the reference's clients read


QUIRKS = [
    ("/find_product?q=lamp", []),  # no page
    ("/find_product?q=&page=1", []),
    ("/find_product?q=lamp&page=%C2%B2", []),
    ("/find_product?q=lamp&page=1.0", []),
    ("/find_product?q=%2B%28%29&page=1", []),
    ("/find_product?q=lamp&page=1&shop_id=nowhere", []),
    ("/view_product_information?product_ids=%20101", []),  # not stripped
    ("/get_product_raw?product_ids=101%2C+102", ["101"]),
    ("/get_product_raw?product_ids=101,101", ["101", "101"]),
    ("/find_product?q=canvas&page=%D9%A1", ["101", "102"]),  # a digit of another script
    ("/find_product?q=canvas&page=1&page=9", ["101", "102"]),  # the first counts
    ("/find_product?q=canvas&page=1&price=120-120", ["101"]),
    ("/find_product?q=canvas&page=1&price=nan-200", ["101"]),
    ("/find_product?q=canvas&page=1&service=official,+COD", []),
    ("/find_product?q=canvas&page=1&service=COD,lazmall", ["101"]),
    ("/find_product?q=canvas&page=1&sort=pricedesc", ["102", "101"]),
]


@pytest.mark.parametrize(("target", "ids"), QUIRKS)
def test_quirks_are_the_references(shelf: Catalogue, target: str, ids: list[str]) -> None:
    assert [row["product_id"] for row in get(shelf, target)] == ids


words = st.sampled_from(["lamp", "red", "canvas bag", "größe", "the", "+", "lamp 7", "x" * 300, "\0", "漢字", "🙂"])
raw_values = st.text(max_size=12) | words


# -- what is refused, and how


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/find_product?page=1&q=" + "x" * QUERY_STRING_MAX, 414),
        ("/find_products", 404),
        ("/find_product/", 404),
        ("", 404),
    ],
)
def test_a_refusal_names_its_cause(shelf: Catalogue, target: str, status: int) -> None:
    reply = ask(shelf, target)
    body = json.loads(reply.body)
    assert reply.status == status and body["error"]


paths = st.sampled_from(["/", "/health", "/find_product", "/view_product_information", "/get_product_raw", "/x"])
names = st.sampled_from(["q", "page", "price", "service", "sort", "shop_id", "product_ids"]) | st.text(max_size=4)
encoded = st.lists(st.tuples(names, raw_values), max_size=8).map(urlencode).map(str.encode)


@settings(max_examples=400, deadline=None)
@given(path=paths | st.text(max_size=9), query=encoded | st.binary(max_size=60))
@example(path="/find_product", query=b"q=%ff%fe&page=1")
@example(path="/find_product", query=b"q=%ed%a0%80&page=1")
@example(path="/find_product", query=b"q=%00&page=1&&=&%=&q")
@example(path="/view_product_information", query=b"product_ids=%00,\xc3\xa4")
def test_no_request_fails_but_for_the_references_reasons(shelf: Catalogue, path: str, query: bytes) -> None:
    reply = answer(shelf, "GET", path, query)
    body = json.loads(reply.body)
    assert reply.status in (200, 400, 404) and (reply.status == 200 or body["error"])
    assert reply.body.endswith(b"\n") and reply.body.isascii()


def test_only_reading_methods_are_answered(shelf: Catalogue) -> None:
    assert ask(shelf, "/find_product?q=lamp&page=1", "POST").status == 405
    assert ask(shelf, "/find_product?q=lamp&page=1", "OPTIONS") == HttpAnswer(status=200, body=b"")


def test_an_index_that_is_damaged_while_it_is_served_is_a_500_with_the_code(tmp_path: Path) -> None:
    index = index_of(SHELF[:2], tmp_path)
    catalogue = open_catalogue(index)
    os.truncate(index / PRODUCTS, 3)
    reply = ask(catalogue, "/get_product_raw?product_ids=101")
    assert (reply.status, json.loads(reply.body)["code"]) == (500, "U3010")


def test_a_worker_that_finds_no_index_says_so_and_does_not_start(tmp_path: Path) -> None:
    application, tell = SearchApplication(functools.partial(open_catalogue, tmp_path)), AsyncMock()
    asyncio.run(application({"type": "lifespan"}, AsyncMock(), tell))
    (message,) = tell.await_args.args
    assert message["type"] == "lifespan.startup.failed" and "V2010" in message["message"]


def test_a_search_answers_six_fields_in_the_bytes_of_the_reference(shelf: Catalogue) -> None:
    reply = ask(shelf, "/find_product?q=gr%C3%B6%C3%9Fe&page=1")
    assert reply.body == (
        b'[{"price":300.5,"product_id":"102","service":[],"shop_id":"78","sold_count":9,'
        b'"title":"Red Canvas Bag Gr\\u00f6\\u00dfe"}]\n'
    )


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3::4%eth0", "2001:db8:1:2::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_address_counts_for_the_party_that_has_it(address: str, network: str) -> None:
    assert network_of(address) == network


def test_a_full_house_closes_who_waits_and_turns_away_where_all_are_being_answered() -> None:
    house, idle, busy = Connections(total=3, per_address=2), Mock(is_answering=False), Mock(is_answering=True)
    assert house.enter(busy, "a") and house.enter(idle, "a") and house.enter(Mock(is_answering=True), "a")
    assert (idle.close.call_count, busy.close.call_count) == (1, 0)
    assert not house.enter(Mock(is_answering=False), "a")
    assert house.enter(Mock(is_answering=True), "b") and not house.enter(Mock(), "c")
    house.leave(busy)
    assert house.enter(Mock(), "c")
