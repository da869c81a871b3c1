"""Synthetic problems: solvable, not free, said in words, the same for the same seed."""

from __future__ import annotations

import random

import msgspec
import pytest

from foundation.errors import ArenaError
from problems.self_check import check_solvable
from problems.synthesis import synthesize
from problems.titles import matcher_named
from tests.problems.stand import make_catalogue

TITLES = matcher_named("lexical/1")
CATALOGUE = make_catalogue()
BY_ID = {product.product_id: product for product in CATALOGUE}
COUNTS = {"product": 30, "shop": 15, "voucher": 25}
PROBLEMS = synthesize(CATALOGUE, seed=11, counts=COUNTS)
replace = msgspec.structs.replace


def test_equal_seeds_give_equal_problems_whatever_order_the_products_come_in():
    shuffled = random.Random(1).sample(CATALOGUE, len(CATALOGUE))
    assert synthesize(shuffled, seed=11, counts=COUNTS) == PROBLEMS
    assert synthesize(CATALOGUE, seed=12, counts=COUNTS) != PROBLEMS


def test_every_answer_scores_one_and_no_answer_zero():
    for problem in PROBLEMS:
        result = check_solvable(problem, BY_ID.get, TITLES)
        assert (result.oracle_reward_e4, result.warnings) == (10_000, ()), problem


def test_a_product_answers_once_in_a_set_and_excluded_ones_never():
    answers = [item.product_id for problem in PROBLEMS for item in problem.rewards]
    assert len(set(answers)) == len(answers)
    second = synthesize(CATALOGUE, seed=11, counts={"product": 30}, exclude=answers)
    assert not {item.product_id for problem in second for item in problem.rewards} & set(answers)
    assert not {problem.problem_id for problem in synthesize(CATALOGUE, seed=99, counts={"product": 5})} & {
        problem.problem_id for problem in PROBLEMS
    }


def test_a_near_identical_listing_of_an_excluded_product_does_not_answer_either():
    listings = [
        replace(product, product_id=f"9{product.product_id}", shop_id="other", title=product.title.upper())
        for product in CATALOGUE
    ]
    exclude = [product.product_id for product in CATALOGUE[:390]]
    made = synthesize([*CATALOGUE, *listings], seed=3, counts={"product": 10}, exclude=exclude)
    kept = {product.product_id for product in CATALOGUE[390:]}
    assert {item.product_id[-9:] for problem in made for item in problem.rewards} == kept


def test_a_catalogue_that_is_too_small_is_named():
    with pytest.raises(ArenaError, match="P4011"):
        synthesize(CATALOGUE[:3], seed=1, counts={"product": 10})
    with pytest.raises(ArenaError, match="P4011"):
        synthesize([], seed=1, counts={"shop": 1})
    assert synthesize([], seed=1, counts={}) == ()
    with pytest.raises(ValueError, match="negative"):
        synthesize(CATALOGUE, seed=1, counts={"shop": -1})
