"""The leak guard in small: disguises stay with their source by answers alone, unrelated problems stay apart."""

from __future__ import annotations

import random

import msgspec
import pytest

from harness.catalogue.synthetic.generator import generate
from problems.pools.product_classes import ProductClasses, find_classes
from problems.pools.title_keys import title_key
from problems.scoring.score import score
from problems.scoring.soundness import check_problem
from problems.scoring.title_matching import matcher_named
from problems.synthesis.generator import synthesize
from tests.problems.disguises import DISGUISE_KINDS, disguises
from tests.problems.guard_figures import falsely_merged, guard_table, measure_guard
from tests.problems.leak_stand import cheap_problems, problem_of, real_problems

CATALOGUE = tuple(generate(5_000, 11))
PRICES = {product.product_id: product.price for product in CATALOGUE}
CLASSES = find_classes(CATALOGUE)


@pytest.fixture(scope="module")
def bank():
    return synthesize(CATALOGUE, seed=8, counts={"product": 20, "shop": 20, "voucher": 20})


@pytest.fixture(scope="module")
def figures(bank):
    return measure_guard(bank, seed=1, classes=CLASSES, prices_php=PRICES)


def test_every_disguise_falls_in_its_sources_cluster_by_answers_alone(figures):
    assert [(row.kind, row.made, row.in_cluster) for row in figures.rows] == [(kind, 60, 60) for kind in DISGUISE_KINDS]


def test_the_net_is_weaker_than_the_classes_and_its_figures_are_shown(figures):
    assert figures.net_precision_e4 >= 9_500
    assert 5_000 <= figures.net_recall_e4 < figures.in_cluster_e4 == 10_000
    table = guard_table(figures)
    assert all(kind in table for kind in DISGUISE_KINDS) and "falsely merged 0.0 %" in table


def test_unrelated_problems_are_not_merged():
    drawn = cheap_problems(CATALOGUE, 1_500)
    assert 100 * len(falsely_merged(drawn, CLASSES)) <= len(drawn)


def test_a_false_merge_is_counted():
    pair = [problem_of(f"p{place}", "product", [CATALOGUE[place]]) for place in (0, 900)]
    assert falsely_merged(pair, CLASSES) == frozenset()
    keys = tuple(sorted(title_key(CATALOGUE[place].title) for place in (0, 900)))
    wrong = ProductClasses(class_of_key=dict.fromkeys(keys, keys[0]), keys_of_class={keys[0]: keys})
    assert falsely_merged(pair, wrong) == {"p0", "p900"}


def test_disguises_are_sound_problems_under_new_ids_and_words(bank):
    rng = random.Random(2)
    for problem in bank:
        made = disguises(problem, rng, PRICES)
        assert list(made) == list(DISGUISE_KINDS)
        ids = {problem.problem_id, *(one.problem_id for one in made.values())}
        assert len(ids) == 1 + len(DISGUISE_KINDS)
        for disguised in made.values():
            check_problem(disguised)
            assert disguised.query != problem.query
        assert {item.product_id for item in made["retailer"].rewards}.isdisjoint(PRICES)


def test_a_new_voucher_can_be_met_with_the_same_answers(bank):
    by_id, titles = {product.product_id: product for product in CATALOGUE}, matcher_named("lexical/1")
    rng = random.Random(3)
    for problem in bank:
        for prices in (PRICES, {}):
            voucher = disguises(problem, rng, prices).get("voucher")
            if voucher is None:
                assert not prices and problem.voucher is None
                continue
            assert voucher.voucher != problem.voucher
            outcome = score(voucher, [item.product_id for item in voucher.rewards], by_id.get, titles)
            assert outcome.is_success, (problem, voucher)


def test_equal_seeds_make_equal_disguises(bank):
    assert disguises(bank[0], random.Random(5), PRICES) == disguises(bank[0], random.Random(5), PRICES)


def test_the_public_problems_stay_in_their_clusters_without_any_catalogue():
    figures = measure_guard(real_problems(), seed=1)
    assert figures.in_cluster_e4 >= 9_980
    assert figures.falsely_merged == 0
    assert msgspec.structs.asdict(figures)["clusters"] == figures.clusters < figures.problems
