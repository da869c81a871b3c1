"""The leak guard at full size: 500 problems in six disguises over 100,000 products, and a year of batches dealt."""

from __future__ import annotations

import time

import pytest

from harness.catalogue.synthetic import generate
from problems.clusters import find_classes
from problems.partition import OpenPartition, extend, freeze
from problems.synthesis import synthesize
from tests.problems.guard_figures import falsely_merged, measure_guard
from tests.problems.leak_stand import cheap_problems
from tests.problems.planted import measure_classes, plant

pytestmark = pytest.mark.prove

YEAR = 44_000  # problems: 120 a day
KEY = bytes(range(32))


@pytest.fixture(scope="module")
def catalogue():
    return tuple(generate(100_000, 7))


@pytest.fixture(scope="module")
def classes(catalogue):
    started = time.perf_counter()
    found = find_classes(catalogue)
    print(f"classes of {len(catalogue)} products: {time.perf_counter() - started:.1f} s")
    return found


def test_every_disguise_of_500_problems_stays_in_its_cluster(catalogue, classes):
    bank = synthesize(catalogue, seed=5, counts={"product": 168, "shop": 166, "voucher": 166})
    prices = {product.product_id: product.price for product in catalogue}
    figures = measure_guard(bank, seed=1, classes=classes, prices_php=prices)
    print(figures)
    assert list(figures.made.values()) == list(figures.in_cluster.values()) == [500] * 6
    assert 100 * len(falsely_merged(bank, classes)) <= len(bank) and figures.net_precision >= 0.95


def test_planted_twins_are_joined_and_planted_misses_are_not(catalogue):
    figures = measure_classes(catalogue, plant(catalogue, 500, 1))
    print(figures)
    assert figures.precision_e4 >= 9_950 and figures.recall_e4 >= 9_500


def test_a_year_of_batches_is_dealt_without_false_merges(catalogue, classes):
    drawn = cheap_problems(catalogue, YEAR)
    merged = falsely_merged(drawn, classes)
    print(f"falsely merged: {len(merged)} of {YEAR}")
    assert 100 * len(merged) <= YEAR
    started = time.perf_counter()
    first = freeze(drawn[:2_000], drawn[2_000:2_090], seed=7, key=KEY, classes=classes)
    added = extend(OpenPartition(first, KEY), drawn[2_090:], classes)
    print(f"{YEAR} problems dealt in {time.perf_counter() - started:.1f} s: {added.manifest.problem_counts}")
    print(f"refused, for they join two pools: {len(added.refused)}")
    assert len(added.pools) + len(added.refused) == YEAR - 2_090
