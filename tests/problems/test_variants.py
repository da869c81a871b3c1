"""Variants: pure, of the shape asked for, sound, and answered by nothing that answers in the suite."""

from __future__ import annotations

from itertools import combinations

import pytest
from msgspec.structs import replace

from foundation.errors import ArenaError
from harness.catalogue.synthetic.generator import generate
from problems.model import Problem, RewardItem, variant_id
from problems.scoring.axes import match
from problems.scoring.self_check import check_solvable
from problems.scoring.title_index import TitleIndex
from problems.scoring.title_matching import LexicalTitles, title_words
from problems.suites.formats import read_problems
from problems.suites.variants import VariantMaker
from problems.synthesis.ambiguity import measure_ambiguity
from problems.synthesis.generator import synthesize
from problems.synthesis.wording import check_wording

PRODUCTS = tuple(generate(3_000, seed=5))
SUITE = synthesize(PRODUCTS, seed=31, counts={"product": 6, "shop": 6, "voucher": 6})
SHELF = TitleIndex(PRODUCTS)
MAKER = VariantMaker(SUITE, PRODUCTS)
SEEDS = ("", "a", "b" * 64, "über")
VARIANTS = [MAKER.variant(problem.problem_id, seed) for seed in SEEDS for problem in SUITE]


def test_a_variant_follows_from_suite_catalogue_seed_and_problem_alone() -> None:
    """Not from what was drawn before, nor from the order in which problems and products come."""
    other = VariantMaker(reversed(SUITE), reversed(PRODUCTS))
    backwards = [other.variant(problem.problem_id, seed) for seed in reversed(SEEDS) for problem in reversed(SUITE)]
    assert backwards == VARIANTS[::-1]
    assert VARIANTS[0] == MAKER.variant(SUITE[0].problem_id, SEEDS[0])


def test_a_variant_is_sound_and_clear_and_says_what_it_asks() -> None:
    for one in VARIANTS:
        check = check_solvable(one.problem, SHELF.product, one.titles)
        assert check.is_usable, check
        assert check_wording(one.problem) == ()
        assert measure_ambiguity(one.problem, SHELF).failure is None


def test_no_answer_of_the_suite_satisfies_any_item_of_a_variant() -> None:
    answers = [SHELF.product(item.product_id) for problem in SUITE for item in problem.rewards]
    for one in VARIANTS:
        for item in one.problem.rewards:
            assert item.product_id not in {answer.product_id for answer in answers if answer}
            for answer in answers:
                assert answer is not None
                axes = match(item, answer, one.titles)
                assert axes.title.hits == 0 and axes == match(item, answer, LexicalTitles())


def test_seeds_and_problems_lead_to_other_answers() -> None:
    by_seed = {
        seed: [one.problem for one in VARIANTS[place * len(SUITE) :][: len(SUITE)]] for place, seed in enumerate(SEEDS)
    }
    for left, right in combinations(by_seed.values(), 2):
        same = sum(answers_of(a) & answers_of(b) != set() for a in left for b in right)
        assert same <= 6  # by chance, of 324 pairs over 3,000 products
        assert not {one.query for one in left} & {one.query for one in right}
    assert len({one.problem.problem_id for one in VARIANTS}) == len(VARIANTS)


def answers_of(problem: Problem) -> set[str]:
    return {item.product_id for item in problem.rewards}


def test_its_id_and_text_tell_nothing_of_the_problem_it_stands_for() -> None:
    for one, problem in zip(VARIANTS, SUITE * len(SEEDS), strict=True):
        assert one.problem.problem_id != problem.problem_id
        names = [title_words(item.title[0]) for item in problem.rewards]
        assert not any(words <= title_words(one.problem.query) for words in names)
    assert variant_id("p_0123456789abcdef", "seed") == "p_2c7c07e68c27ecb2"


def test_every_known_title_is_listed_so_that_every_pick_can_be_scored() -> None:
    for one in VARIANTS:
        assert set(one.titles.accepted) == {title for item in one.problem.rewards for title in item.title}
        assert all(item.product_id in one.titles.accepted[item.title[0]] for item in one.problem.rewards)


def test_a_problem_of_free_prose_with_titles_alone_has_a_variant() -> None:
    (public,) = read_problems(
        [
            {
                "query": "hey, my niece keeps asking for that plush thing with the bell, you know the one?",
                "reward": {"product_id": PRODUCTS[0].product_id, "title": [PRODUCTS[0].title]},
            }
        ]
    )
    drawn = VariantMaker((public,), PRODUCTS).variant(public.problem_id, "s").problem
    assert (drawn.bucket, len(drawn.rewards)) == ("product", 1)
    assert PRODUCTS[0].product_id not in answers_of(drawn)


def test_more_items_than_can_be_said_are_cut_and_an_answer_outside_the_catalogue_is_no_hindrance() -> None:
    items = tuple(RewardItem(product_id=f"gone{place}", title=("a b c d",)) for place in range(7))
    model = replace(next(one for one in SUITE if one.bucket == "shop"), problem_id="p_x", rewards=items)
    assert len(VariantMaker((model,), PRODUCTS).variant("p_x", "s").problem.rewards) == 4


def test_an_unknown_problem_and_a_catalogue_too_small_are_the_problems_fault() -> None:
    with pytest.raises(ArenaError) as unknown:
        MAKER.variant("p_nobody", "s")
    assert unknown.value.failure.code == "P4006"
    answers: set[str] = set().union(*map(answers_of, SUITE))
    nothing_else = [product for product in PRODUCTS if product.product_id in answers]
    with pytest.raises(ArenaError) as too_small:
        VariantMaker(SUITE, nothing_else).variant(SUITE[0].problem_id, "s")
    assert too_small.value.failure.code == "P4032"
