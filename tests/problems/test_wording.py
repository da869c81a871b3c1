"""What a wording must keep: every constraint of every item, and nothing of its own."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from problems.constraints import count_constraints, say_problem, say_voucher
from problems.model import PriceRule, Problem, RewardItem
from problems.synthesis import synthesize
from problems.wording import check_rewording, check_wording, said_names
from tests.problems.stand import DATA, LAMP_ITEM, VOUCHER, make_catalogue

PROBLEMS = synthesize(make_catalogue(600), seed=4, counts={"product": 60, "shop": 30, "voucher": 40})
replace = msgspec.structs.replace


def wordings(problem: Problem, items: tuple[RewardItem, ...], seed: int) -> str:
    """The problem's goods said with other items, under their own names."""
    names = [" ".join(words) for words in said_names(problem)]
    return say_problem(problem.bucket, names, items, problem.voucher, random.Random(seed))


@given(st.sampled_from(PROBLEMS), st.integers(0, 10_000))
def test_every_template_says_every_constraint(problem, seed):
    assert check_wording(problem, wordings(problem, problem.rewards, seed)) == ()


def lessened(item: RewardItem) -> list[tuple[str, RewardItem]]:
    """(what is gone, the item without it), one constraint at a time."""
    less = []
    for option in item.sku_options:
        for key, value in option.items():
            rest = {k: v for k, v in option.items() if k != key}
            less.append((f"{key.replace('_', ' ')}: {value}", replace(item, sku_options=(rest,) if rest else ())))
    for place, rule in enumerate(item.attributes):
        ((key, (value,)),) = rule.items()
        rest = (*item.attributes[:place], *item.attributes[place + 1 :])
        less.append((f"{key.replace('_', ' ')}: {value}", replace(item, attributes=rest)))
    less += [
        (f"service {name}", replace(item, service=tuple(n for n in item.service if n != name))) for name in item.service
    ]
    if item.price:
        less.append(("price", replace(item, price=())))
    return less


def test_a_constraint_that_is_dropped_is_named():
    dropped = 0
    for problem in PROBLEMS:
        for slot, item in enumerate(problem.rewards):
            for what, less in lessened(item):
                items = (*problem.rewards[:slot], less, *problem.rewards[slot + 1 :])
                flaws = check_wording(problem, wordings(problem, items, dropped))
                assert [(flaw.code, flaw.slot) for flaw in flaws] == [("P4016", slot)], (what, problem)
                assert flaws[0].what.startswith(what)
                dropped += 1
    assert dropped == sum(count_constraints(item) for problem in PROBLEMS for item in problem.rewards) > 300


def altered(item: RewardItem) -> list[RewardItem]:
    """The item with one constraint changed."""
    others = [
        replace(item, sku_options=({**option, key: value + " plus"},))
        for option in item.sku_options
        for key, value in option.items()
    ]
    for place, rule in enumerate(item.attributes):
        ((key, (value,)),) = rule.items()
        for change in ({key: (f"dark {value}",)}, {key: ("zz" + value,)}, {key: (value + " plus",)}):
            others.append(replace(item, attributes=(*item.attributes[:place], change, *item.attributes[place + 1 :])))
    services = [name for name in ("official", "freeShipping", "COD", "flashsale") if name not in item.service]
    others += [replace(item, service=(name,)) for name in services if item.service]
    for rule in item.price:
        others.append(replace(item, price=(replace(rule, low=(rule.low or 0) + 1),)))
        others.append(replace(item, price=(PriceRule(mode="less than", high=rule.low),)))
        if rule.high is not None:
            others.append(replace(item, price=(replace(rule, high=rule.high * 10),)))
    return others


def test_a_constraint_that_is_altered_is_found():
    found = 0
    for problem in PROBLEMS:
        for slot, item in enumerate(problem.rewards):
            for other in altered(item):
                items = (*problem.rewards[:slot], other, *problem.rewards[slot + 1 :])
                flaws = check_wording(problem, wordings(problem, items, found))
                assert any(flaw.slot == slot for flaw in flaws), (other, wordings(problem, items, found))
                found += 1
    assert found > 300


def test_constraints_that_move_to_another_item_are_found():
    first, second, *_ = [item for problem in PROBLEMS for item in problem.rewards if count_constraints(item) > 2]
    problem = Problem(problem_id="x", bucket="shop", query="", rewards=(first, second))
    names = [item.title[0].lower() for item in (first, second)]
    swapped = [
        replace(first, sku_options=second.sku_options, attributes=second.attributes, service=(), price=()),
        replace(second, sku_options=first.sku_options, attributes=first.attributes, service=(), price=()),
    ]
    right = say_problem("shop", names, [first, second], None, random.Random(1))
    assert check_wording(problem, right) == ()
    flaws = check_wording(problem, say_problem("shop", names, swapped, None, random.Random(1)))
    assert {flaw.slot for flaw in flaws} == {0, 1}


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
    ("query", "code", "what"),
    [
        (
            "A dimmer desk lamp, color red, size xl, LazMall, 200 to 300 PHP, priced from 200 to 300 PHP.",
            "P4016",
            "material: brass",
        ),
        (KEPT[0].replace("red in color", "dark red in color"), "P4016", "color: red"),
        (KEPT[0].replace("red in color", "not red in color"), "P4016", "color: red"),
        (KEPT[0].replace("LazMall", "any shop"), "P4016", "service official"),
        (KEPT[0].replace("from LazMall", "without LazMall"), "P4016", "service official"),
        (KEPT[0].replace("₱300", "₱330"), "P4016", "price between 200 and 300 PHP"),
        (KEPT[0].replace("between ₱200 and ₱300", "at most ₱300"), "P4016", "price between 200 and 300 PHP"),
        (KEPT[0] + " Cash on delivery, please.", "P4016", "service COD"),
        (KEPT[0] + " Not more than 250 pesos.", "P4016", "price below 250 PHP"),
        (KEPT[0] + " I have 280 pesos.", "P4016", "amount 280"),
        (KEPT[0].replace("brass desk lamp", "light").replace("brass", "b."), "P4016", "name"),
        (KEPT[0].replace("size xl", "size xxl"), "P4016", "size: xl"),
    ],
)
def test_free_prose_that_changes_something_names_it(query, code, what):
    flaws = check_wording(LAMP, query)
    assert any(flaw.code == code and flaw.what.startswith(what) for flaw in flaws), flaws


def test_a_short_value_counts_only_beside_its_key():
    item = RewardItem(product_id="1", title=("Steel Kettle Two Litres",), sku_options=({"capacity": "2"},))
    problem = Problem(problem_id="k", bucket="product", query="", rewards=(item,))
    assert check_wording(problem, "2 times in a week I looked for a steel kettle")[0].what == "capacity: 2"
    assert check_wording(problem, "a steel kettle with a capacity of 2") == ()


TERMS = "\n\nI can spend ₱600. I have a voucher for the same shop: 100 pesos off once the order is at least 500 pesos."


def test_voucher_terms_may_be_said_freely_but_none_may_change():
    problem = Problem(problem_id="v", bucket="voucher", query="", rewards=(LAMP_ITEM, LAMP_ITEM), voucher=VOUCHER)
    problem = replace(problem, rewards=(replace(LAMP_ITEM, price=()),))
    goods = "A brass desk lamp, color red, size xl, material brass, from LazMall."
    assert check_wording(problem, goods + TERMS) == check_wording(problem, goods + say_voucher(VOUCHER)) == ()
    for old, new, what in (
        ("₱600", "₱650", "voucher budget 600"),
        ("same shop", "all products", "voucher for one shop"),
        ("100 pesos off", "110 pesos off", "voucher face value 100"),
        ("500 pesos", "400 pesos", "voucher threshold 500"),
        ("100 pesos off", "20% off", "voucher face value 100"),
        (TERMS, "", "voucher budget 600"),
    ):
        flaws = check_wording(problem, (goods + TERMS).replace(old, new))
        assert what in {flaw.what for flaw in flaws}, (new, flaws)


def test_every_figure_of_every_voucher_is_checked():
    changed = 0
    for problem in PROBLEMS:
        if problem.voucher is None:
            continue
        for field in ("budget", "threshold", "face_value", "cap"):
            amount = getattr(problem.voucher, field)
            if amount is not None:
                other = say_voucher(replace(problem.voucher, **{field: amount + 1}))
                query = problem.query.replace(say_voucher(problem.voucher), other)
                assert any(field.replace("_", " ") in flaw.what for flaw in check_wording(problem, query))
                changed += 1
    assert changed > 60


def test_a_rewording_keeps_the_words_that_name_an_item():
    problem = PROBLEMS[0]
    word = said_names(problem)[0][0]
    flaws = check_rewording(problem, problem.query.replace(word, "thing"))
    assert flaws and flaws[0].code == "P4016" and word in flaws[0].what
    assert check_rewording(problem, problem.query) == ()


@given(st.text(), st.sampled_from(PROBLEMS[::7]))
def test_any_text_gets_an_answer(text, problem):
    assert check_wording(problem, text)


@pytest.mark.skipif(not (DATA / "shoppingbench").is_dir(), reason=f"real problems are not at {DATA}")
def test_the_real_voucher_paragraphs_are_read():
    import json

    from problems.formats import read_problem

    rows = [json.loads(line) for line in (DATA / "shoppingbench" / "problems.jsonl").open()]
    real = [read_problem(row) for row in rows if row["category"] == "voucher"]
    assert len(real) == 250
    assert not [flaw for problem in real for flaw in check_wording(problem) if flaw.what.startswith("voucher")]
