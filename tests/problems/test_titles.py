"""Title matchers, and variants of a problem under other titles."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foundation.errors import ArenaError
from problems.axes import match
from problems.formats import read_problems
from problems.model import Problem, Product, RewardItem
from problems.self_check import check_solvable
from problems.suites import Variant, VariantMaker
from problems.synthesis import ACCEPTED_MAX, measure_ambiguity, synthesize
from problems.title_index import TitleIndex
from problems.titles import (
    AcceptedTitles,
    LexicalTitles,
    cut_titles,
    decode_accepted,
    join_titles,
    matcher_named,
    reward_titles,
    title_words,
)
from problems.wording import reads_back
from tests.problems.stand import LAMP, PROBLEMS, TWIN, make_catalogue, synthetic_shelf


def test_a_release_is_read_back_and_decides_by_membership():
    release = decode_accepted('{"name": "qwen3-0.6b/1", "accepted": {"Lamp": ["101"]}}')
    assert release.name == "qwen3-0.6b/1"
    assert release.matches(LAMP, "Lamp") and not release.matches(TWIN, "Lamp")
    with pytest.raises(ArenaError, match="V2040"):
        release.matches(LAMP, "Kettle")


@pytest.mark.parametrize(
    "text", ["", '{"name": ""}', '{"name": "", "accepted": {}}', '{"name": "lexical/1", "accepted": {}}', b"\xff"]
)
def test_a_malformed_release_is_refused(text):
    with pytest.raises(ArenaError, match="P4001"):
        decode_accepted(text)
    with pytest.raises(ArenaError, match="V2040"):
        matcher_named("lexical/9")


def test_a_release_is_cut_to_the_titles_of_some_problems_and_says_nothing_of_others():
    wanted = reward_titles(PROBLEMS)
    release = AcceptedTitles(name="qwen/1", accepted={title: frozenset({"101"}) for title in (*wanted, "Kettle")})
    cut = cut_titles(release, PROBLEMS)
    assert cut.name == "qwen/1" and cut.accepted.keys() == wanted and "Kettle" not in cut.accepted
    with pytest.raises(ArenaError, match=r"P4001.*qwen/1 does not list"):
        cut_titles(AcceptedTitles(name="qwen/1", accepted={"Kettle": frozenset()}), PROBLEMS)


def test_joined_releases_decide_each_title_by_the_first_that_lists_it_and_are_named_once():
    first = AcceptedTitles(name="suite/1", accepted={"Lamp": frozenset({"101"})})
    second = AcceptedTitles(name="bank/1", accepted={"Lamp": frozenset(), "Kettle": frozenset({"101"})})
    joined = join_titles((first, second, second))
    assert joined.name == "suite/1 + bank/1"
    assert joined.matches(LAMP, "Lamp") and joined.matches(LAMP, "Kettle") and not joined.matches(TWIN, "Kettle")
    with pytest.raises(ArenaError, match=r"V2040.*suite/1 \+ bank/1"):
        joined.matches(LAMP, "Pan")


titles = st.lists(
    st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=12
)


def on_shelf(names) -> list[Product]:
    return [Product(product_id=f"{n:03}", shop_id="s", title=name, price=5.0) for n, name in enumerate(names)]


@given(titles, st.integers(0, 4))
def test_rivals_are_those_of_a_full_comparison(names, at_most):
    products = on_shelf(names)
    shelf = TitleIndex(products)
    for product in products:
        item = RewardItem(product_id=product.product_id, title=(product.title,))
        axes = [match(item, other, matcher_named("lexical/1")) for other in products if other is not product]
        rivals = sum(one.hits == one.total for one in axes)
        assert min(shelf.count_rivals(item, at_most), at_most + 1) == min(rivals, at_most + 1)


@given(titles, st.sets(st.sampled_from("abcdefghijkl"), max_size=3))
def test_holders_are_the_titles_with_all_the_words(names, words):
    assert TitleIndex(on_shelf(names)).count_holding(words) == sum(words <= title_words(name) for name in names)


# -- variants: pure, of the shape asked for, sound, and answered by nothing that answers in the suite
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
        assert reads_back(one.problem)
        accepted, fitting = measure_ambiguity(one.problem, _shelf())
        assert max(*accepted, *fitting) <= ACCEPTED_MAX


def test_no_answer_of_the_suite_satisfies_any_item_of_a_variant() -> None:
    answers = [_shelf().product(item.product_id) for problem in _suite() for item in problem.rewards]
    for one in _variants():
        for item in one.problem.rewards:
            assert item.product_id not in {answer.product_id for answer in answers if answer}
            for answer in answers:
                assert answer is not None
                axes = match(item, answer, one.titles)
                assert axes.title.hits == 0 and axes == match(item, answer, LexicalTitles())


def answers_of(problem: Problem) -> set[str]:
    return {item.product_id for item in problem.rewards}


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


def test_an_unknown_problem_and_a_catalogue_too_small_are_the_problems_fault() -> None:
    with pytest.raises(ArenaError, match="P4006"):
        _maker().variant("p_nobody", "s")
    answers: set[str] = set().union(*map(answers_of, _suite()))
    nothing_else = [product for product in _products() if product.product_id in answers]
    with pytest.raises(ArenaError, match="P4013"):
        VariantMaker(_suite(), nothing_else).variant(_suite()[0].problem_id, "s")


def test_draws_that_resemble_an_answer_of_the_suite_are_given_up() -> None:
    shelf = make_catalogue(60)
    suite = synthesize(shelf, seed=3, counts={"product": 8})
    answers = [one for one in shelf if one.product_id in set[str]().union(*map(answers_of, suite))]
    near = [replace(one, product_id=f"9{one.product_id}", title=f"{one.title} deluxe") for one in answers]
    with pytest.raises(ArenaError, match=r"P4013.*all of 20 draws resemble answers of the suite"):
        VariantMaker(suite, [*answers, *near]).variant(suite[0].problem_id, "s")
