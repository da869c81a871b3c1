"""Leak clusters: what belongs together stays together, whatever order it comes in and however it is written."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from problems.clusters import NO_CATALOGUE, cluster_id, find_classes, find_clusters, title_key
from problems.model import Product
from problems.synthesis import synthesize
from tests.problems.disguises import DISGUISES, count_in_cluster, falsely_merged
from tests.problems.leak_stand import cheap_problems, problem_of, real_problems
from tests.problems.stand import synthetic_shelf

SHELF = [
    Product(product_id=str(100 + number), shop_id="s", title=f"Vermo Steel Kettle VX-{number} two litres", price=10.0)
    for number in range(12)
]


def ask(problem_id: str, *numbers: int):
    return problem_of(problem_id, "product" if len(numbers) == 1 else "shop", [SHELF[number] for number in numbers])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Vermo Kettle VX-20 500ml", "500 ML kettle, VX20 (Vermo)"),
        ("Water Bottle 0.5 L", "water bottle 500ml [COD] - Official Store"),
        ("Lamp 12 inch", '12" LAMP'),
        ("Rope 1.5m", "150 cm rope"),
        ("Set of 4 Mugs", "Mugs 4pcs Ready Stock, Free Shipping"),
        ("Box 90x97cm", "BOX 900 × 970 mm 50% OFF"),
        ("Rice 1,000g", "100% Authentic Rice 1 kg"),
        ("Trays 40/60/80cm", "trays 400mm / 600mm / 800mm"),
        ("Hose 3L-15L", "hose 3000ml-15 litres"),
        ("Tape-4.8cm*16m", "tape 48mm * 16 m"),
        ("Pipe 1/2 inch", "pipe 0.5 inch"),
        ("Café Crème", "cafe creme"),
    ],
)
def test_one_product_written_twice_is_one_class(left: str, right: str):
    assert title_key(left) == title_key(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Vermo Kettle VX-20 500ml", "Vermo Kettle VX-20 750ml"),
        ("Vermo Kettle", "Marpo Kettle"),
        ("Phone 8gb 128gb", "Phone 8gb 256gb"),
        ("Phone X", "Phone X Pro"),
        ("Trays 40/60cm", "Trays 40/80cm"),
        ("Pipe 1/2 inch", "Pipe 1 inch 2"),
        ("10 in 1 adapter", "10 inch adapter 1"),
        ("!!!", "???"),
    ],
)
def test_variants_are_classes_of_their_own(left: str, right: str):
    assert title_key(left) != title_key(right)


@given(st.text(max_size=60))
def test_any_text_has_a_class_and_repeating_it_changes_nothing(title: str):
    once = title_key(title)
    assert once
    if not once.startswith("="):
        assert title_key(f"{title} | {title}") == once


def test_problems_that_share_one_answer_share_a_cluster_and_chains_join():
    bank = [ask("a", 0, 1), ask("b", 1, 2), ask("c", 2, 3), ask("d", 4)]
    assert sorted(find_clusters(bank).values()) == [("a", "b", "c"), ("d",)]


@given(st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=3, unique=True), max_size=10), st.randoms())
def test_clusters_and_their_names_do_not_depend_on_order(asked: list[list[int]], rng: random.Random):
    bank = [ask(f"p{number}", *numbers) for number, numbers in enumerate(asked)]
    clusters = find_clusters(bank)
    rng.shuffle(bank)
    assert find_clusters(bank) == clusters
    by_id = {problem.problem_id: problem for problem in bank}
    for name, ids in clusters.items():
        assert name == min(cluster_id(by_id[one]) for one in ids)


def test_a_listing_of_the_same_class_joins_through_the_catalogue_even_under_a_new_title():
    shelf = [*SHELF, Product(product_id="900", shop_id="t", title="VX-0 KETTLE STEEL, Vermo 2 litres", price=11.0)]
    far = problem_of(
        "far", "product", [Product(product_id="900", shop_id="t", title="Tea boiler of Mr Ven", price=1.0)]
    )
    assert len(find_clusters([ask("a", 0), far], NO_CATALOGUE)) == 2
    renamed = [*shelf[:-1], Product(product_id="900", shop_id="t", title=SHELF[0].title.upper(), price=11.0)]
    assert len(find_clusters([ask("a", 0), far], find_classes(renamed))) == 1


def test_two_problems_of_one_id_are_refused():
    with pytest.raises(ArenaError, match="P4009"):
        find_clusters([ask("a", 0), ask("a", 1)])


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


def test_every_disguise_falls_in_its_sources_cluster_by_answers_alone_and_unrelated_problems_are_not_merged() -> None:
    shelf = synthetic_shelf(5_000, 11)
    bank = synthesize(shelf, seed=8, counts={"product": 20, "shop": 20, "voucher": 20})
    assert count_in_cluster(bank, seed=1, classes=shelf.classes) == dict.fromkeys(DISGUISES, 60)
    drawn = cheap_problems(shelf.products, 1_500)
    assert 100 * len(falsely_merged(drawn, shelf.classes)) <= len(drawn)


def test_the_public_problems_stay_in_their_clusters_without_any_catalogue() -> None:
    problems = real_problems()
    assert sum(count_in_cluster(problems, seed=1).values()) >= 0.998 * len(DISGUISES) * len(problems)
    assert falsely_merged(problems) == frozenset()
