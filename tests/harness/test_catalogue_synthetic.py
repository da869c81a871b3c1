"""The synthetic catalogue: the same everywhere, well formed, and shaped like the real one."""

from __future__ import annotations

import hashlib
from collections import Counter
from statistics import median

import pytest

from harness.catalogue.build import document_line, read_line
from harness.catalogue.synthetic import generate
from problems.product import SERVICES, Product


@pytest.fixture(scope="module")
def made() -> list[Product]:
    return list(generate(6_000, 21))


def share(products: list[Product], is_so: object) -> float:
    return sum(map(is_so, products)) / len(products)  # type: ignore[arg-type]


def test_a_seed_names_one_catalogue_on_every_machine() -> None:
    lines = b"".join(map(document_line, generate(400, 7)))
    assert hashlib.sha256(lines).hexdigest() == "e3075bad0ecc344c16132f400beb3508e697d5ebeeca136a46aa0344278bbf36"


def test_every_product_is_well_formed_and_ids_are_nine_or_ten_digits(made: list[Product]) -> None:
    assert len({one.product_id for one in made}) == len(made)
    for one in made:
        assert read_line(document_line(one)).product == one
        assert one.product_id.isdigit() and len(one.product_id) in (9, 10)
        assert one.shop_id.isdigit()
        assert 0 < len(one.title.strip()) == len(one.title) <= 255
        assert 5 <= one.price <= 37_990 and round(one.price, 2) == one.price
        assert one.sold_count >= 1
        assert list(one.service) == [name for name in SERVICES if name in one.service] != list(SERVICES)
        assert len(one.sku_options) <= 9 and all(one.sku_options.values())
        assert len(one.description) <= 2_000


def test_numbers_follow_the_measured_ones(made: list[Product]) -> None:
    """docs/benchmark.md#statistics; bounds leave room for a sample of this size and for the sources' own spread."""
    prices = sorted(one.price for one in made)
    assert 180 <= median(prices) <= 270
    assert 18 <= prices[len(prices) // 20] <= 45
    assert 1_400 <= prices[len(prices) * 95 // 100] <= 2_800
    assert 0.70 <= share(made, lambda one: one.price.is_integer()) <= 0.80
    assert 0.59 <= share(made, lambda one: one.sold_count == 1) <= 0.67
    assert 75 <= median(len(one.title) for one in made) <= 100
    assert 10 <= median(len(one.title.split()) for one in made) <= 16
    assert 2 <= median(len(one.attributes) for one in made) <= 4
    for name, expected in zip(SERVICES, (0.22, 0.20, 0.27, 0.22), strict=True):
        assert abs(share(made, lambda one, name=name: name in one.service) - expected) < 0.03
    assert abs(share(made, lambda one: not one.service) - 0.36) < 0.03
    assert abs(share(made, lambda one: not one.sku_options) - 0.20) < 0.03
    assert abs(share(made, lambda one: len(one.sku_options) == 9) - 0.26) < 0.04
    assert abs(share(made, lambda one: not one.attributes) - 0.09) < 0.03
    assert abs(share(made, lambda one: "brand" in one.attributes) - 0.40) < 0.04
    assert abs(share(made, lambda one: not one.brand) - 0.62) < 0.04
    assert abs(share(made, lambda one: not one.short_description) - 0.63) < 0.04
    assert abs(share(made, lambda one: not one.description) - 0.41) < 0.04
    assert abs(share(made, lambda one: not one.specification) - 0.08) < 0.03


def test_the_dirt_of_real_documents_is_there(made: list[Product]) -> None:
    texts = [one.title + one.description + one.short_description for one in made]
    values = Counter(value for one in made for values in one.attributes.values() for value in values)
    keys = Counter(key for one in made for key in one.attributes)
    assert any("â€" in text for text in texts)
    assert any("\\u201d" in value for value in values) and any("\\n" in value for value in values)
    assert any("  " in one.title for one in made) and any(one.title.isupper() for one in made)
    assert {"see the description", "unset", "."} <= set(values)
    assert {"1", "max_delivery_time", "services", "power consumption", "power_consumption"} <= set(keys)
    assert any(not values for one in made for values in one.attributes.values())
    assert any(not text.isascii() for text in texts)
    assert any(len(values) > 7 for one in made for values in one.attributes.values())


def test_a_count_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="count"):
        next(generate(-1, 1))
