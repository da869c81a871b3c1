"""What a wording must keep: every constraint of every item, and nothing else that reads as one."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from problems.constraints import say_problem
from problems.model import PriceRule, Problem, RewardItem
from problems.synthesis import synthesize
from problems.wording import reads_back, said_names
from tests.problems.stand import LAMP_ITEM, make_catalogue

PROBLEMS = synthesize(make_catalogue(600), seed=4, counts={"product": 60, "shop": 30, "voucher": 40})
replace = msgspec.structs.replace


def said(problem: Problem, items: tuple[RewardItem, ...], seed: int) -> Problem:
    """The problem in the words for other items, under its own names."""
    names = [" ".join(words) for words in said_names(problem)]
    query = say_problem(problem.bucket, names, items, problem.voucher, random.Random(seed))
    return replace(problem, query=query)


@given(st.sampled_from(PROBLEMS), st.integers(0, 10_000))
def test_every_template_says_every_constraint(problem, seed):
    assert reads_back(said(problem, problem.rewards, seed))


@pytest.mark.parametrize("kind", ["sku_options", "attributes", "service", "price"])
def test_a_constraint_that_is_dropped_or_added_is_not_read_back(kind):
    for number, problem in enumerate(PROBLEMS):
        for slot, item in enumerate(problem.rewards):
            bare = replace(item, **{kind: ()})
            others = (*problem.rewards[:slot], bare, *problem.rewards[slot + 1 :])
            assert reads_back(said(problem, others, number)) is (not getattr(item, kind)), problem
            if kind in ("service", "price"):
                added = replace(said(problem, problem.rewards, number), rewards=others)
                assert reads_back(added) is (not getattr(item, kind)), problem


LAMP = Problem(
    problem_id="lamp",
    bucket="product",
    query="brass desk lamp, in color red, with size xl, with material brass, on LazMall, priced from 200 to 300 PHP.",
    rewards=(LAMP_ITEM,),
)


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("color red", "color redwood"),
        ("on LazMall", "here"),
        ("300", "330"),
        ("priced from 200 to 300 PHP", "priced at most 300 PHP"),
        (".", ", with cash on delivery."),
        (".", ", costing less than 250 pesos."),
        (".", ", I have 280 pesos."),
    ],
)
def test_what_is_changed_or_added_is_not_read_back(said, instead):
    assert reads_back(LAMP)
    assert not reads_back(replace(LAMP, query=LAMP.query.replace(said, instead)))


def test_words_of_a_value_may_sound_like_a_constraint():
    item = replace(LAMP_ITEM, attributes=({"finish": ("under 20 pesos",)},), price=())
    query = "brass desk lamp, in color red, with size xl, with finish under 20 pesos, sold on LazMall"
    assert reads_back(replace(LAMP, query=query, rewards=(item,)))  # a number of a value is no price
    assert not reads_back(replace(LAMP, query=f"{query}, costing under 20 pesos", rewards=(item,)))
    bounded = replace(item, price=(PriceRule(mode="less than", high=20.0),))
    assert reads_back(replace(LAMP, query=f"{query}, costing under 20 pesos", rewards=(bounded,)))


@given(st.text(), st.sampled_from(PROBLEMS[::7]))
def test_any_text_gets_an_answer(text, problem):
    assert not reads_back(replace(problem, query=text))
