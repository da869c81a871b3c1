"""The leak guard at full size: 500 problems in three disguises over 100,000 products."""

from __future__ import annotations

import pytest

from harness.catalogue.synthetic import generate
from problems.clusters import find_classes
from problems.synthesis import synthesize
from tests.problems.guard_figures import falsely_merged, measure_guard

pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def catalogue():
    return tuple(generate(100_000, 7))


@pytest.fixture(scope="module")
def classes(catalogue):
    return find_classes(catalogue)


def test_every_disguise_of_500_problems_stays_in_its_cluster(catalogue, classes):
    bank = synthesize(catalogue, seed=5, counts={"product": 168, "shop": 166, "voucher": 166})
    figures = measure_guard(bank, seed=1, classes=classes)
    print(figures)
    assert list(figures.made.values()) == list(figures.in_cluster.values()) == [500] * 3
    assert 100 * len(falsely_merged(bank, classes)) <= len(bank)
