"""The leak guard in small: disguises stay with their source by answers alone, unrelated problems stay apart."""

from __future__ import annotations

import functools

import pytest

from problems.clusters import ProductClasses, find_classes
from problems.model import Product
from problems.synthesis import synthesize
from tests.problems.disguises import DISGUISE_KINDS
from tests.problems.guard_figures import falsely_merged, measure_guard
from tests.problems.leak_stand import cheap_problems, real_problems
from tests.problems.stand import synthetic_shelf


@pytest.fixture(scope="module")
def bank():
    return synthesize(_catalogue(), seed=8, counts={"product": 20, "shop": 20, "voucher": 20})


def _catalogue() -> tuple[Product, ...]:
    return synthetic_shelf(5_000, 11).products


@functools.cache
def _classes() -> ProductClasses:
    return find_classes(_catalogue())


@pytest.fixture(scope="module")
def figures(bank):
    return measure_guard(bank, seed=1, classes=_classes())


def test_every_disguise_falls_in_its_sources_cluster_by_answers_alone(figures):
    assert figures.made == figures.in_cluster == dict.fromkeys(DISGUISE_KINDS, 60)


def test_unrelated_problems_are_not_merged():
    drawn = cheap_problems(_catalogue(), 1_500)
    assert 100 * len(falsely_merged(drawn, _classes())) <= len(drawn)


def test_the_public_problems_stay_in_their_clusters_without_any_catalogue():
    problems = real_problems()
    figures = measure_guard(problems, seed=1)
    assert sum(figures.in_cluster.values()) >= 0.998 * sum(figures.made.values())
    assert falsely_merged(problems) == frozenset()
