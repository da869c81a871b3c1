"""Product classes over a catalogue, against a truth that is known because it was planted."""

from __future__ import annotations

import random

import pytest

from problems.clusters import find_classes
from problems.product import Product
from tests.problems.planted import class_of, measure_classes, plant
from tests.problems.stand import synthetic_shelf


@pytest.fixture(scope="module")
def figures():
    return measure_classes(_catalogue(), plant(_catalogue(), 100, 1))


def _catalogue() -> tuple[Product, ...]:
    return synthetic_shelf(5_000, 7).products


def test_what_is_joined_is_one_product(figures):
    assert figures.precision_e4 >= 9_950
    assert all(share_e4 <= 100 for share_e4 in figures.miss_joined_e4.values()), figures.miss_joined_e4


def test_what_is_one_product_is_joined(figures):
    assert figures.recall_e4 >= 9_500
    for kind in ("order", "retailer", "unit", "plain words"):
        assert figures.twin_recall_e4[kind] >= 9_500, kind


def test_the_limit_is_shown_a_word_never_heard_before_parts_a_listing(figures):
    assert figures.twin_recall_e4["unheard word"] < 1_000


def test_classes_do_not_depend_on_the_order_of_the_products():
    shuffled = random.Random(5).sample(_catalogue(), len(_catalogue()))
    assert find_classes(shuffled) == find_classes(_catalogue())


def test_an_often_seen_brand_or_colour_still_parts():
    def listed(number: int, title: str, brand: str = "") -> Product:
        category = f"Floor {number % 6} > Shelf"
        return Product(product_id=str(number), shop_id="s", title=title, price=9.0, category=category, brand=brand)

    shelf = [listed(number, f"Item tool part k{number} sturdy", "") for number in range(200)]
    shelf += [listed(200 + number, f"Marpo gadget thing q{number}", "Marpo") for number in range(200)]
    shelf += [listed(400 + number, f"blue gadget thing z{number}") for number in range(200)]
    pairs = {"sturdy": True, "Marpo": False, "blue": False}
    shelf += [listed(900, "Long iron handle fork")]
    shelf += [listed(901 + place, f"Long iron handle fork {word}", "") for place, word in enumerate(pairs)]
    classes = find_classes(shelf)
    plain = class_of(classes, "Long iron handle fork")
    assert {word: class_of(classes, f"Long iron handle fork {word}") == plain for word in pairs} == pairs


def test_a_small_catalogue_of_one_floor_joins_by_title_keys_alone():
    shelf = [Product(product_id=str(n), shop_id="s", title=f"Fork no {n} sturdy", price=1.0) for n in range(99)]
    assert find_classes(shelf).keys_of_class == {}
