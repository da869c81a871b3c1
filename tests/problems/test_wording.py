"""What a wording must keep: every constraint of every item, and nothing else that reads as one."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from problems.axes import match
from problems.constraints import say_problem
from problems.model import BUCKETS, Bucket, PriceRule, Problem, RewardItem
from problems.synthesis import ACCEPTED_MAX, ProblemMaker, difficulty_of, measure_ambiguity, synthesize
from problems.title_index import TitleIndex
from problems.titles import AcceptedTitles, LexicalTitles, title_words
from problems.wording import reads_back, said_names
from tests.problems.stand import LAMP_ITEM, make_catalogue, synthetic_shelf

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


# -- synthesis


TITLES = LexicalTitles()


def _shelf() -> TitleIndex:
    return synthetic_shelf(4_000, 5)


@pytest.fixture(scope="module")
def made() -> tuple[Problem, ...]:
    return ProblemMaker(_shelf()).make(seed=8, counts=dict.fromkeys(BUCKETS, 8))


def test_difficulty_grows_with_constraints_and_namesakes(made):
    problem = made[0]
    item, shelf = problem.rewards[0], _shelf()
    plain = replace(problem, rewards=(RewardItem(product_id=item.product_id, title=item.title),))
    assert difficulty_of(replace(plain, query=item.title[0]), shelf) == "easy"
    asked = replace(plain, rewards=(replace(plain.rewards[0], service=("x",) * 5),), query=item.title[0])
    assert difficulty_of(asked, shelf) == "medium"
    common = max(title_words(item.title[0]), key=shelf.rarity)
    assert shelf.rarity(common) > 3 and difficulty_of(replace(asked, query=common), shelf) == "hard"


def test_counts_are_those_of_a_full_comparison(made):
    for problem in made[::4]:
        counts = measure_ambiguity(problem, _shelf())
        for item, words, accepted, fitting in zip(problem.rewards, said_names(problem), *counts, strict=True):
            axes = [match(item, product, TITLES) for product in _shelf().products]
            assert accepted == sum(one.hits == one.total for one in axes) <= ACCEPTED_MAX
            held = [product for product in _shelf().products if set(words) <= title_words(product.title)]
            met = [match(replace(item, title=()), product, TITLES) for product in held]
            assert fitting == sum(one.hits == one.total for one in met) <= ACCEPTED_MAX


def test_under_a_title_release_its_lists_decide(made):
    problem = made[0]
    item = replace(problem.rewards[0], sku_options=(), attributes=(), service=(), price=())
    others = frozenset(product.product_id for product in _shelf().products[:7])
    release = AcceptedTitles(name="r", accepted={item.title[0]: others | {"not in this catalogue"}})
    accepted = {product.product_id for product in _shelf().accepted(item, release)}
    assert accepted == others | {item.product_id}
    with pytest.raises(ArenaError, match="V2040"):
        _shelf().accepted(replace(item, title=("unheard of",)), release)


def test_sets_made_one_after_the_other_share_no_class_and_repeat():
    def year() -> list[tuple[Problem, ...]]:
        maker = ProblemMaker(_shelf())
        maker.exclude(_shelf().products[place].product_id for place in range(500))
        return [maker.make(seed=seed, counts=dict.fromkeys(BUCKETS, 5)) for seed in range(8)]

    made = year()
    assert made == year()
    places = [_shelf().place(i.product_id) for batch in made for problem in batch for i in problem.rewards]
    assert None not in places and min(place for place in places if place is not None) >= 500
    classes = [int(_shelf().class_numbers[place]) for place in places]
    assert len(set(classes)) == len(classes)
    assert not set(classes) & {int(number) for number in _shelf().class_numbers[:500]}
    ids = [problem.problem_id for batch in made for problem in batch]
    assert len(set(ids)) == len(ids)


def test_problems_that_come_out_apart_follow_from_seeds_of_their_own():
    counts: dict[Bucket, int] = {"product": 6, "voucher": 3}
    made = list(ProblemMaker(_shelf()).make_apart(seed=1 << 255, counts=counts))
    assert [problem.bucket for problem in made] == ["product"] * 6 + ["voucher"] * 3
    assert made == list(ProblemMaker(_shelf()).make_apart(seed=1 << 255, counts=counts))
    assert len({problem.problem_id for problem in made}) == 9
    places = [_shelf().place(item.product_id) for problem in made for item in problem.rewards]
    assert len({int(_shelf().class_numbers[place]) for place in places if place is not None}) == len(places)
    # the third of a set is not what follows the first two in their stream
    plain = ProblemMaker(_shelf())
    apart = list(plain.make_apart(seed=4, counts={"product": 3}))
    together = ProblemMaker(_shelf()).make(seed=4, counts={"product": 3})
    assert {problem.query for problem in apart}.isdisjoint(problem.query for problem in together)


CATALOGUE = make_catalogue()


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
