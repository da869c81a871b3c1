"""Self-check: the answer scores 1, nothing scores 0, chance solves nothing; what breaks that is named."""

from __future__ import annotations

import random

import msgspec
import pytest

from problems.model import PriceRule, Problem
from problems.self_check import check_chance, check_solvable
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles
from tests.problems.stand import (
    KETTLE_ITEM,
    LAMP,
    LAMP_ITEM,
    PRODUCT_PROBLEM,
    PRODUCTS,
    SHOP_PROBLEM,
    VOUCHER,
    VOUCHER_PROBLEM,
    check_problem_set,
    make_catalogue,
)

TITLES = LexicalTitles()
SHELF = TitleIndex(make_catalogue(3_000))
replace = msgspec.structs.replace


def test_a_problem_that_anything_satisfies_is_free():
    copies = [replace(LAMP, product_id=str(number)) for number in range(50)]
    crowd = [*copies, *random.Random(1).sample(SHELF.products, 50)]
    check = check_solvable(PRODUCT_PROBLEM, PRODUCTS.get, TITLES)
    assert check.is_usable
    free = check_chance(check, PRODUCT_PROBLEM, crowd, TITLES, seed=1)
    assert free.failure is not None and free.failure.code == "P4013" and "random" in free.failure.detail
    assert free.random_reward_e4 == 10_000
    kept = check_chance(check, PRODUCT_PROBLEM, SHELF.products, TITLES, seed=1)
    assert kept.is_usable and kept.random_reward_e4 is not None and kept.random_reward_e4 < 10_000


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (replace(PRODUCT_PROBLEM, rewards=(replace(LAMP_ITEM, product_id="gone"),)), "P4006", ""),
        (
            replace(SHOP_PROBLEM, rewards=(LAMP_ITEM, replace(KETTLE_ITEM, product_id="104"))),
            "P4013",
            "different shops",
        ),
        (replace(VOUCHER_PROBLEM, voucher=replace(VOUCHER, budget=100)), "P4013", "budget"),
    ],
)
def test_an_unsolvable_problem_is_named(problem, code, words):
    check = check_solvable(problem, PRODUCTS.get, TITLES)
    assert not check.is_usable and check_solvable(PRODUCT_PROBLEM, PRODUCTS.get, TITLES).is_usable
    assert check.problem_id == problem.problem_id
    assert check.failure is not None and check.failure.code == code and words in check.failure.detail
    (same,) = check_problem_set([problem], SHELF.products, PRODUCTS.get, TITLES, seed=1)
    assert same == check  # chance is not asked about what can't be solved


def asking(**fields) -> Problem:
    return replace(PRODUCT_PROBLEM, rewards=(replace(LAMP_ITEM, **fields),))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (replace(PRODUCT_PROBLEM, query=" "), "query is empty"),
        (asking(price=(PriceRule(mode="greater than", low=9_999),)), "the answer itself meets 5 of 6 rules"),
        (asking(attributes=({"material": ("Brass",)},)), "'Brass' is met in another spelling only"),
        (replace(VOUCHER_PROBLEM, voucher=replace(VOUCHER, face_value=9_999)), "falls below zero"),
    ],
)
def test_what_is_odd_and_can_be_solved_is_a_warning(problem, words):
    check = check_solvable(problem, PRODUCTS.get, TITLES)
    assert check.is_usable and words in " ".join(check.warnings)
