"""Raw parameters mean what they mean to the reference server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.catalogue.port import SearchRequest
from harness.catalogue.requests import (
    ignored_parameters,
    read_price,
    read_request,
)


@pytest.mark.parametrize(
    ("price", "bounds"),
    [
        ("0-100", (0.0, 100.0)),
        ("1000-", (1000.0, None)),
        ("-100", (None, 100.0)),
        ("-", (None, None)),
        ("1e3-inf", (1000.0, float("inf"))),
        (" 5 - 6 ", (5.0, 6.0)),
        ("₱100-200", (None, 200.0)),
        ("nan-5", (None, 5.0)),
        ("104", (None, None)),
        ("above:10", (None, None)),
        ("10-20-30", (None, None)),
        ("5--9", (None, None)),
        ("", (None, None)),
        (None, (None, None)),
    ],
)
def test_prices_have_exactly_one_dash(price: str | None, bounds: tuple[float | None, float | None]) -> None:
    assert read_price(price) == bounds


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (SearchRequest(q="a", price="104", sort="cheap", service="lazmall"), ("price", "sort", "service")),
        (SearchRequest(q="a", price="₱100-200"), ("price",)),
        (SearchRequest(q="a", service="official, COD"), ("service",)),
        (SearchRequest(q="a", price="100-", sort="order", service="COD,official"), ()),
        (SearchRequest(q="a", price="", sort="default", service="default,COD"), ()),
        (SearchRequest(q="a"), ()),
    ],
)
def test_what_the_reference_ignores_in_silence_is_named(request_: SearchRequest, names: tuple[str, ...]) -> None:
    assert ignored_parameters(request_) == names


anything = st.none() | st.text(max_size=20) | st.sampled_from(["1", "5", "1-2", "nan-", "COD", "order", "default"])


@given(q=anything, page=anything, shop_id=anything, price=anything, sort=anything, service=anything)
def test_every_request_is_a_plan_or_an_empty_page(**parameters: str | None) -> None:
    request = SearchRequest(**parameters)
    plan = read_request(request)
    ignored_parameters(request)
    if plan is not None:
        assert plan.text == plan.text.strip() != ""
        assert 1 <= plan.page <= 5
        assert all(bound is None or bound == bound for bound in (plan.low_php, plan.high_php))
