"""What a set looks like, in integers; beside the published figures of the real 750."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from problems.suites.distributions import PERCENTS, describe, spread
from problems.suites.formats import read_problem
from problems.synthesis.generator import synthesize
from tests.problems.stand import DATA, PROBLEMS, make_catalogue

REAL = DATA / "shoppingbench" / "problems.jsonl"


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1))
def test_percentiles_are_values_of_the_set_in_order(values):
    found = spread(values)
    ordered = sorted(values)
    assert found.count == len(values) and (found.least, found.most) == (ordered[0], ordered[-1])
    assert list(found.percentiles) == sorted(found.percentiles)
    assert len(found.percentiles) == len(PERCENTS) and set(found.percentiles) <= set(values)
    assert found.percentiles[2] == ordered[-(-len(ordered) // 2) - 1]
    assert found.histogram == () or sum(count for _, count in found.histogram) == len(values)


def test_nothing_has_a_shape_too():
    assert spread([]).percentiles == (0, 0, 0, 0, 0)
    shape = describe([])
    assert shape.problems == 0 and shape.buckets == {} and shape.vouchers.kinds == {}


def test_a_small_set_is_counted_by_hand():
    shape = describe(PROBLEMS)
    shop = shape.buckets["shop"]
    assert (shop.problems, shop.items.histogram) == (1, ((2, 1),))
    assert shop.constraints.histogram == ((0, 1), (5, 1)) and shop.title_only_e4 == 5_000
    assert (shop.with_sku_e4, shop.with_price_e4, shop.price_modes) == (5_000, 5_000, {"between": 1})
    assert (shop.price_low_php.most, shop.price_high_php.most) == (200, 300)
    assert shape.vouchers.kinds == {"shop fixed": 1}
    assert (shape.vouchers.threshold_php.most, shape.vouchers.face_value_php.most) == (500, 100)


def test_the_order_of_the_problems_does_not_matter():
    assert describe(PROBLEMS[::-1]) == describe(PROBLEMS)


@pytest.mark.skipif(not REAL.is_file(), reason=f"real problems are not at {REAL}")
def test_the_real_set_has_its_published_shape_and_a_synthesised_one_is_like_it():
    rows = (json.loads(line) for line in REAL.open())
    real = describe(read_problem(row) for row in rows if row["category"] != "web")
    made = describe(synthesize(make_catalogue(3_000), seed=1, counts={"product": 120, "shop": 60, "voucher": 60}))
    assert real.problems == 750
    assert real.buckets["shop"].items.histogram == ((2, 89), (3, 86), (4, 75))
    assert real.buckets["voucher"].items.histogram == ((1, 22), (2, 70), (3, 80), (4, 78))
    assert {kind.split()[0] for kind in real.vouchers.kinds} == {"platform", "shop"}
    modes = [bucket.price_modes for bucket in real.buckets.values()]
    assert sum(mode.get("greater than", 0) for mode in modes) == 118 + 353
    assert real.vouchers.discount_percent.least >= 10 and real.vouchers.discount_percent.most <= 50
    for bucket, theirs in real.buckets.items():
        ours = made.buckets[bucket]
        assert ours.title_only_e4 <= 2_000 and ours.items.most == theirs.items.most
        for name in ("with_sku_e4", "with_service_e4", "with_price_e4"):
            assert abs(getattr(ours, name) - getattr(theirs, name)) < 1_500, (bucket, name)
