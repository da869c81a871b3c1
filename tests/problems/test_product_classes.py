"""Product classes over a catalogue, against a truth that is known because it was planted."""

from __future__ import annotations

import random

from problems.clusters import find_classes, title_key
from problems.model import Product
from tests.problems.stand import synthetic_shelf


def _catalogue() -> tuple[Product, ...]:
    return synthetic_shelf(5_000, 7).products


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
    (joined,) = classes.keys_of_class.values()
    assert {word: title_key(f"Long iron handle fork {word}") in joined for word in pairs} == pairs


def test_a_small_catalogue_of_one_floor_joins_by_title_keys_alone():
    shelf = [Product(product_id=str(n), shop_id="s", title=f"Fork no {n} sturdy", price=1.0) for n in range(99)]
    assert find_classes(shelf).keys_of_class == {}
