"""What a set looks like, in integers; beside the published figures of the real 750."""

from __future__ import annotations

import json

import pytest

from problems.distributions import describe
from problems.formats import read_problem
from problems.synthesis import synthesize
from tests.problems.stand import DATA, PROBLEMS, make_catalogue

REAL = DATA / "shoppingbench" / "problems.jsonl"


def test_a_small_set_is_counted_by_hand_in_any_order():
    shape = describe(PROBLEMS)
    shop = shape.buckets["shop"]
    assert (shop.problems, shop.items, shop.title_only_e4) == (1, {2: 1}, 5_000)
    assert (shop.with_sku_e4, shop.with_price_e4, shop.price_modes) == (5_000, 5_000, {"between": 1})
    assert shape.vouchers == {"shop fixed": 1}
    assert describe(PROBLEMS[::-1]) == shape
    assert describe([]).buckets == {}


@pytest.mark.skipif(not REAL.is_file(), reason=f"real problems are not at {REAL}")
def test_the_real_set_has_its_published_shape_and_a_synthesised_one_is_like_it():
    rows = (json.loads(line) for line in REAL.open())
    real = describe(read_problem(row) for row in rows if row["category"] != "web")
    made = describe(synthesize(make_catalogue(3_000), seed=1, counts={"product": 120, "shop": 60, "voucher": 60}))
    assert real.problems == 750
    assert real.buckets["shop"].items == {2: 89, 3: 86, 4: 75}
    assert real.buckets["voucher"].items == {1: 22, 2: 70, 3: 80, 4: 78}
    assert {kind.split()[0] for kind in real.vouchers} == {"platform", "shop"}
    modes = [bucket.price_modes for bucket in real.buckets.values()]
    assert sum(mode.get("greater than", 0) for mode in modes) == 118 + 353
    for bucket, theirs in real.buckets.items():
        ours = made.buckets[bucket]
        assert ours.title_only_e4 <= 2_000 and max(ours.items) == max(theirs.items)
        for name in ("with_sku_e4", "with_service_e4", "with_price_e4"):
            assert abs(getattr(ours, name) - getattr(theirs, name)) < 1_500, (bucket, name)
