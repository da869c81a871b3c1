"""What a wording must keep: every constraint of every item, and nothing of its own."""

from __future__ import annotations

import random
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from problems.axes import ask
from problems.constraints import say_problem, say_voucher
from problems.model import Problem, RewardItem
from problems.synthesis import synthesize
from problems.wording import check_wording, said_names
from tests.problems.stand import LAMP_ITEM, VOUCHER, make_catalogue

PROBLEMS = synthesize(make_catalogue(600), seed=4, counts={"product": 60, "shop": 30, "voucher": 40})
replace = msgspec.structs.replace


def wordings(problem: Problem, items: tuple[RewardItem, ...], seed: int) -> str:
    """The problem's goods said with other items, under their own names."""
    names = [" ".join(words) for words in said_names(problem)]
    return say_problem(problem.bucket, names, items, problem.voucher, random.Random(seed))


@given(st.sampled_from(PROBLEMS), st.integers(0, 10_000))
def test_every_template_says_every_constraint(problem, seed):
    assert check_wording(problem, wordings(problem, problem.rewards, seed)) == ()


def test_every_constraint_that_is_dropped_is_named():
    for number, problem in enumerate(PROBLEMS):
        for slot, item in enumerate(problem.rewards):
            bare = replace(item, sku_options=(), attributes=(), service=(), price=())
            items = (*problem.rewards[:slot], bare, *problem.rewards[slot + 1 :])
            flaws = check_wording(problem, wordings(problem, items, number))
            lost = ask(item).total - len(item.title)
            assert [(flaw.slot, flaw.is_added) for flaw in flaws] == [(slot, False)] * lost, problem


LAMP = Problem(problem_id="lamp", bucket="product", query="", rewards=(LAMP_ITEM,))
KEPT = (
    "I need a brass desk lamp for my mother. It should be red in color and come in size xl, made of brass material, "
    "from LazMall, and cost between ₱200 and ₱300.",
    "brass desk lamp (LazMall only!), color: red; size: xl; material: brass; the price should be from 200 to 300 pesos",
    "Hi! Do you have a dimmer desk lamp, material brass, color red, size xl, at LazMall? Price 200-300 PHP please.",
)


@pytest.mark.parametrize("query", KEPT)
def test_free_prose_that_keeps_everything_passes(query):
    assert check_wording(LAMP, query) == ()


@pytest.mark.parametrize(
    ("query", "is_added", "what"),
    [
        (
            "A dimmer desk lamp, color red, size xl, LazMall, 200 to 300 PHP, priced from 200 to 300 PHP.",
            False,
            "material: brass",
        ),
        (KEPT[0].replace("red in color", "dark red in color"), False, "color: red"),
        (KEPT[0].replace("red in color", "not red in color"), False, "color: red"),
        (KEPT[0].replace("LazMall", "any shop"), False, "service official"),
        (KEPT[0].replace("from LazMall", "without LazMall"), False, "service official"),
        (KEPT[0].replace("₱300", "₱330"), False, "price between 200 and 300 PHP"),
        (KEPT[0].replace("between ₱200 and ₱300", "at most ₱300"), False, "price between 200 and 300 PHP"),
        (KEPT[0] + " Cash on delivery, please.", True, "service COD"),
        (KEPT[0] + " Not more than 250 pesos.", True, "price below 250 PHP"),
        (KEPT[0] + " I have 280 pesos.", True, "amount 280"),
        (KEPT[0].replace("brass desk lamp", "light").replace("brass", "b."), False, "name"),
        (KEPT[0].replace("size xl", "size xxl"), False, "size: xl"),
    ],
)
def test_free_prose_that_changes_something_names_it(query, is_added, what):
    flaws = check_wording(LAMP, query)
    assert any(flaw.is_added is is_added and flaw.what.startswith(what) for flaw in flaws), flaws


def test_a_shop_problem_says_that_everything_comes_from_one_place():
    problem = next(problem for problem in PROBLEMS if problem.bucket == "shop")
    silent = re.sub(r"(?i)\b(shop|store|seller|one place)s?\b", "x", problem.query)
    assert [flaw.detail for flaw in check_wording(problem, silent)] == ["all from one shop"]


def test_a_short_value_counts_only_beside_its_key():
    item = RewardItem(product_id="1", title=("Steel Kettle Two Litres",), sku_options=({"capacity": "2"},))
    problem = Problem(problem_id="k", bucket="product", query="", rewards=(item,))
    assert check_wording(problem, "2 times in a week I looked for a steel kettle")[0].what == "capacity: 2"
    assert check_wording(problem, "a steel kettle with a capacity of 2") == ()


def test_the_voucher_stands_in_the_benchmark_s_own_sentences():
    goods = "A brass desk lamp, color red, size xl, material brass, from LazMall."
    rewards = (replace(LAMP_ITEM, price=()),)
    problem = Problem(problem_id="v", bucket="voucher", query="", rewards=rewards, voucher=VOUCHER)
    assert check_wording(problem, goods + say_voucher(VOUCHER)) == ()
    for terms in ("", say_voucher(replace(VOUCHER, budget=VOUCHER.budget + 1)), "\n\nI have a voucher."):
        assert "voucher" in {flaw.what.split()[0] for flaw in check_wording(problem, goods + terms)}


@given(st.text(), st.sampled_from(PROBLEMS[::7]))
def test_any_text_gets_an_answer(text, problem):
    assert check_wording(problem, text)
