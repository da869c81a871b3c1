"""The leak guard at full size: 500 problems in six disguises over 100,000 products."""

from __future__ import annotations

import pytest

from harness.catalogue.synthetic import generate
from problems.clusters import find_classes
from problems.synthesis import synthesize
from tests.problems.guard_figures import falsely_merged, measure_guard
from tests.problems.planted import measure_classes, plant

pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def catalogue():
    return tuple(generate(100_000, 7))


@pytest.fixture(scope="module")
def classes(catalogue):
    return find_classes(catalogue)


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
