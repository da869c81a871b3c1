"""The leak guard at full size: 500 problems in two disguises over 100,000 products."""

from __future__ import annotations

import pytest

from harness.catalogue.synthetic import generate
from problems.clusters import find_classes
from problems.synthesis import synthesize
from tests.problems.disguises import DISGUISES, count_in_cluster, falsely_merged

pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def catalogue():
    return tuple(generate(100_000, 7))


@pytest.fixture(scope="module")
def classes(catalogue):
    return find_classes(catalogue)


def test_every_disguise_of_500_problems_stays_in_its_cluster(catalogue, classes):
    bank = synthesize(catalogue, seed=5, counts={"product": 168, "shop": 166, "voucher": 166})
    counts = count_in_cluster(bank, seed=1, classes=classes)
    print(counts)
    assert counts == dict.fromkeys(DISGUISES, 500)
    assert 100 * len(falsely_merged(bank, classes)) <= len(bank)
