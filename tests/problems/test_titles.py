"""Title matchers, and variants of a problem under other titles."""

from __future__ import annotations

import functools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foundation.errors import ArenaError
from problems import titles as matching
from problems.axes import match
from problems.constraints import say_problem
from problems.formats import read_problems
from problems.model import BUCKETS, Bucket, PriceRule, Problem, Product, RewardItem
from problems.self_check import check_solvable
from problems.suites import Variant, VariantMaker
from problems.synthesis import ACCEPTED_MAX, ProblemMaker, difficulty_of, measure_ambiguity, synthesize
from problems.title_index import TitleIndex
from problems.wording import reads_back, said_names
from tests.problems.stand import LAMP, LAMP_ITEM, PROBLEMS, TWIN, make_catalogue, synthetic_shelf


def test_a_release_is_read_back_and_decides_by_membership():
    release = matching.decode_accepted('{"name": "qwen3-0.6b/1", "accepted": {"Lamp": ["101"]}}')
    assert release.name == "qwen3-0.6b/1"
    assert release.matches(LAMP, "Lamp") and not release.matches(TWIN, "Lamp")
    with pytest.raises(ArenaError, match="V2040"):
        release.matches(LAMP, "Kettle")


@pytest.mark.parametrize(
    "text", ["", '{"name": ""}', '{"name": "", "accepted": {}}', '{"name": "lexical/1", "accepted": {}}', b"\xff"]
)
def test_a_malformed_release_is_refused(text):
    with pytest.raises(ArenaError, match="P4001"):
        matching.decode_accepted(text)
    with pytest.raises(ArenaError, match="V2040"):
        matching.matcher_named("lexical/9")


def test_a_release_is_cut_to_the_titles_of_some_problems_and_says_nothing_of_others():
    wanted = matching.reward_titles(PROBLEMS)
    release = matching.AcceptedTitles(
        name="qwen/1", accepted={title: frozenset({"101"}) for title in (*wanted, "Kettle")}
    )
    cut = matching.cut_titles(release, PROBLEMS)
    assert cut.name == "qwen/1" and cut.accepted.keys() == wanted and "Kettle" not in cut.accepted
    with pytest.raises(ArenaError, match=r"P4001.*qwen/1 does not list"):
        matching.cut_titles(matching.AcceptedTitles(name="qwen/1", accepted={"Kettle": frozenset()}), PROBLEMS)


def test_joined_releases_decide_each_title_by_the_first_that_lists_it_and_are_named_once():
    first = matching.AcceptedTitles(name="suite/1", accepted={"Lamp": frozenset({"101"})})
    second = matching.AcceptedTitles(name="bank/1", accepted={"Lamp": frozenset(), "Kettle": frozenset({"101"})})
    joined = matching.join_titles((first, second, second))
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
        axes = [match(item, other, matching.matcher_named("lexical/1")) for other in products if other is not product]
        rivals = sum(one.hits == one.total for one in axes)
        assert min(shelf.count_rivals(item, at_most), at_most + 1) == min(rivals, at_most + 1)


@given(titles, st.sets(st.sampled_from("abcdefghijkl"), max_size=3))
def test_holders_are_the_titles_with_all_the_words(names, words):
    assert TitleIndex(on_shelf(names)).count_holding(words) == sum(
        words <= matching.title_words(name) for name in names
    )


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
                assert axes.title.hits == 0 and axes == match(item, answer, matching.LexicalTitles())


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


# -- what a wording must keep: every constraint of every item, and nothing else that reads as one


ASKED = synthesize(make_catalogue(600), seed=4, counts={"product": 60, "shop": 30, "voucher": 40})


def said(problem: Problem, items: tuple[RewardItem, ...], seed: int) -> Problem:
    """The problem in the words for other items, under its own names."""
    names = [" ".join(words) for words in said_names(problem)]
    query = say_problem(problem.bucket, names, items, problem.voucher, random.Random(seed))
    return replace(problem, query=query)


@given(st.sampled_from(ASKED), st.integers(0, 10_000))
def test_every_template_says_every_constraint(problem, seed):
    assert reads_back(said(problem, problem.rewards, seed))


@pytest.mark.parametrize("kind", ["sku_options", "attributes", "service", "price"])
def test_a_constraint_that_is_dropped_or_added_is_not_read_back(kind):
    for number, problem in enumerate(ASKED):
        for slot, item in enumerate(problem.rewards):
            bare = replace(item, **{kind: ()})
            others = (*problem.rewards[:slot], bare, *problem.rewards[slot + 1 :])
            assert reads_back(said(problem, others, number)) is (not getattr(item, kind)), problem
            if kind in ("service", "price"):
                added = replace(said(problem, problem.rewards, number), rewards=others)
                assert reads_back(added) is (not getattr(item, kind)), problem


LAMP_PROBLEM = Problem(
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
    assert reads_back(LAMP_PROBLEM)
    assert not reads_back(replace(LAMP_PROBLEM, query=LAMP_PROBLEM.query.replace(said, instead)))


def test_words_of_a_value_may_sound_like_a_constraint():
    item = replace(LAMP_ITEM, attributes=({"finish": ("under 20 pesos",)},), price=())
    query = "brass desk lamp, in color red, with size xl, with finish under 20 pesos, sold on LazMall"
    assert reads_back(replace(LAMP_PROBLEM, query=query, rewards=(item,)))  # a number of a value is no price
    assert not reads_back(replace(LAMP_PROBLEM, query=f"{query}, costing under 20 pesos", rewards=(item,)))
    bounded = replace(item, price=(PriceRule(mode="less than", high=20.0),))
    assert reads_back(replace(LAMP_PROBLEM, query=f"{query}, costing under 20 pesos", rewards=(bounded,)))


@given(st.text(), st.sampled_from(ASKED[::7]))
def test_any_text_gets_an_answer(text, problem):
    assert not reads_back(replace(problem, query=text))


# -- synthesis


TITLES = matching.LexicalTitles()


def _market() -> TitleIndex:
    return synthetic_shelf(4_000, 5)


@pytest.fixture(scope="module")
def made() -> tuple[Problem, ...]:
    return ProblemMaker(_market()).make(seed=8, counts=dict.fromkeys(BUCKETS, 8))


def test_difficulty_grows_with_constraints_and_namesakes(made):
    problem = made[0]
    item, shelf = problem.rewards[0], _market()
    plain = replace(problem, rewards=(RewardItem(product_id=item.product_id, title=item.title),))
    assert difficulty_of(replace(plain, query=item.title[0]), shelf) == "easy"
    asked = replace(plain, rewards=(replace(plain.rewards[0], service=("x",) * 5),), query=item.title[0])
    assert difficulty_of(asked, shelf) == "medium"
    common = max(matching.title_words(item.title[0]), key=shelf.rarity)
    assert shelf.rarity(common) > 3 and difficulty_of(replace(asked, query=common), shelf) == "hard"


def test_counts_are_those_of_a_full_comparison(made):
    for problem in made[::4]:
        counts = measure_ambiguity(problem, _market())
        for item, words, accepted, fitting in zip(problem.rewards, said_names(problem), *counts, strict=True):
            axes = [match(item, product, TITLES) for product in _market().products]
            assert accepted == sum(one.hits == one.total for one in axes) <= ACCEPTED_MAX
            held = [product for product in _market().products if set(words) <= matching.title_words(product.title)]
            met = [match(replace(item, title=()), product, TITLES) for product in held]
            assert fitting == sum(one.hits == one.total for one in met) <= ACCEPTED_MAX


def test_under_a_title_release_its_lists_decide(made):
    problem = made[0]
    item = replace(problem.rewards[0], sku_options=(), attributes=(), service=(), price=())
    others = frozenset(product.product_id for product in _market().products[:7])
    release = matching.AcceptedTitles(name="r", accepted={item.title[0]: others | {"not in this catalogue"}})
    accepted = {product.product_id for product in _market().accepted(item, release)}
    assert accepted == others | {item.product_id}
    with pytest.raises(ArenaError, match="V2040"):
        _market().accepted(replace(item, title=("unheard of",)), release)


def test_sets_made_one_after_the_other_share_no_class_and_repeat():
    def year() -> list[tuple[Problem, ...]]:
        maker = ProblemMaker(_market())
        maker.exclude(_market().products[place].product_id for place in range(500))
        return [maker.make(seed=seed, counts=dict.fromkeys(BUCKETS, 5)) for seed in range(8)]

    made = year()
    assert made == year()
    places = [_market().place(i.product_id) for batch in made for problem in batch for i in problem.rewards]
    assert None not in places and min(place for place in places if place is not None) >= 500
    classes = [int(_market().class_numbers[place]) for place in places]
    assert len(set(classes)) == len(classes)
    assert not set(classes) & {int(number) for number in _market().class_numbers[:500]}
    ids = [problem.problem_id for batch in made for problem in batch]
    assert len(set(ids)) == len(ids)


def test_problems_that_come_out_apart_follow_from_seeds_of_their_own():
    counts: dict[Bucket, int] = {"product": 6, "voucher": 3}
    made = list(ProblemMaker(_market()).make_apart(seed=1 << 255, counts=counts))
    assert [problem.bucket for problem in made] == ["product"] * 6 + ["voucher"] * 3
    assert made == list(ProblemMaker(_market()).make_apart(seed=1 << 255, counts=counts))
    assert len({problem.problem_id for problem in made}) == 9
    places = [_market().place(item.product_id) for problem in made for item in problem.rewards]
    assert len({int(_market().class_numbers[place]) for place in places if place is not None}) == len(places)
    # the third of a set is not what follows the first two in their stream
    plain = ProblemMaker(_market())
    apart = list(plain.make_apart(seed=4, counts={"product": 3}))
    together = ProblemMaker(_market()).make(seed=4, counts={"product": 3})
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
