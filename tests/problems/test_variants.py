"""Variants: pure, of the shape asked for, sound, and answered by nothing that answers in the suite."""

from __future__ import annotations

import functools
from itertools import combinations

import pytest
from msgspec.structs import replace

from foundation.errors import ArenaError
from problems.axes import match
from problems.formats import read_problems
from problems.model import Problem, RewardItem, variant_id
from problems.product import Product
from problems.self_check import check_solvable
from problems.suites import Variant, VariantMaker
from problems.synthesis import ACCEPTED_MAX, measure_ambiguity, synthesize
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles, title_words
from problems.wording import check_wording
from tests.problems.stand import synthetic_shelf

SEEDS = ("", "a", "b" * 64, "über")


def _products() -> tuple[Product, ...]:
    return _shelf().products


@functools.cache
def _suite() -> tuple[Problem, ...]:
    return synthesize(_shelf(), seed=31, counts={"product": 6, "shop": 6, "voucher": 6})


def _shelf() -> TitleIndex:
    return synthetic_shelf(3_000, 5)


@functools.cache
def _maker() -> VariantMaker:
    return VariantMaker(_suite(), _products())


@functools.cache
def _variants() -> list[Variant]:
    return [_maker().variant(problem.problem_id, seed) for seed in SEEDS for problem in _suite()]


def test_a_variant_follows_from_suite_catalogue_seed_and_problem_alone() -> None:
    """Not from what was drawn before, nor from the order in which problems and products come."""
    other = VariantMaker(reversed(_suite()), reversed(_products()))
    backwards = [other.variant(problem.problem_id, seed) for seed in reversed(SEEDS) for problem in reversed(_suite())]
    assert backwards == _variants()[::-1]
    assert _variants()[0] == _maker().variant(_suite()[0].problem_id, SEEDS[0])


def test_a_variant_is_sound_and_clear_and_says_what_it_asks() -> None:
    for one in _variants():
        check = check_solvable(one.problem, _shelf().product, one.titles)
        assert check.is_usable, check
        assert check_wording(one.problem) == ()
        counts = measure_ambiguity(one.problem, _shelf())
        assert max(*counts.accepted, *counts.fitting) <= ACCEPTED_MAX


def test_no_answer_of_the_suite_satisfies_any_item_of_a_variant() -> None:
    answers = [_shelf().product(item.product_id) for problem in _suite() for item in problem.rewards]
    for one in _variants():
        for item in one.problem.rewards:
            assert item.product_id not in {answer.product_id for answer in answers if answer}
            for answer in answers:
                assert answer is not None
                axes = match(item, answer, one.titles)
                assert axes.title.hits == 0 and axes == match(item, answer, LexicalTitles())


def test_seeds_and_problems_lead_to_other_answers() -> None:
    by_seed = {
        seed: [one.problem for one in _variants()[place * len(_suite()) :][: len(_suite())]]
        for place, seed in enumerate(SEEDS)
    }
    for left, right in combinations(by_seed.values(), 2):
        same = sum(answers_of(a) & answers_of(b) != set() for a in left for b in right)
        assert same <= 6  # by chance, of 324 pairs over 3,000 products
        assert not {one.query for one in left} & {one.query for one in right}
    assert len({one.problem.problem_id for one in _variants()}) == len(_variants())


def answers_of(problem: Problem) -> set[str]:
    return {item.product_id for item in problem.rewards}


def test_its_id_and_text_tell_nothing_of_the_problem_it_stands_for() -> None:
    for one, problem in zip(_variants(), _suite() * len(SEEDS), strict=True):
        assert one.problem.problem_id != problem.problem_id
        names = [title_words(item.title[0]) for item in problem.rewards]
        assert not any(words <= title_words(one.problem.query) for words in names)
    assert variant_id("p_0123456789abcdef", "seed") == "p_2c7c07e68c27ecb2"


def test_every_known_title_is_listed_so_that_every_pick_can_be_scored() -> None:
    for one in _variants():
        assert set(one.titles.accepted) == {title for item in one.problem.rewards for title in item.title}
        assert all(item.product_id in one.titles.accepted[item.title[0]] for item in one.problem.rewards)


def test_a_problem_of_free_prose_with_titles_alone_has_a_variant() -> None:
    (public,) = read_problems(
        [
            {
                "query": "hey, my niece keeps asking for that plush thing with the bell, you know the one?",
                "reward": {"product_id": _products()[0].product_id, "title": [_products()[0].title]},
            }
        ]
    )
    drawn = VariantMaker((public,), _products()).variant(public.problem_id, "s").problem
    assert (drawn.bucket, len(drawn.rewards)) == ("product", 1)
    assert _products()[0].product_id not in answers_of(drawn)


def test_more_items_than_can_be_said_are_cut_and_an_answer_outside_the_catalogue_is_no_hindrance() -> None:
    items = tuple(RewardItem(product_id=f"gone{place}", title=("a b c d",)) for place in range(7))
    model = replace(next(one for one in _suite() if one.bucket == "shop"), problem_id="p_x", rewards=items)
    assert len(VariantMaker((model,), _products()).variant("p_x", "s").problem.rewards) == 4


def test_an_unknown_problem_and_a_catalogue_too_small_are_the_problems_fault() -> None:
    with pytest.raises(ArenaError) as unknown:
        _maker().variant("p_nobody", "s")
    assert unknown.value.failure.code == "P4006"
    answers: set[str] = set().union(*map(answers_of, _suite()))
    nothing_else = [product for product in _products() if product.product_id in answers]
    with pytest.raises(ArenaError) as too_small:
        VariantMaker(_suite(), nothing_else).variant(_suite()[0].problem_id, "s")
    assert too_small.value.failure.code == "P4013"
