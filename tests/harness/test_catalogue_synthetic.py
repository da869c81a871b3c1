"""The synthetic catalogue: the same everywhere, well formed, and shaped like the real one."""

from __future__ import annotations

import hashlib

import pytest

from harness.catalogue.build import document_line, read_line
from harness.catalogue.synthetic import generate
from problems.model import SERVICES, Product


@pytest.fixture(scope="module")
def made() -> list[Product]:
    return list(generate(6_000, 21))


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


def test_a_count_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="count"):
        next(generate(-1, 1))
