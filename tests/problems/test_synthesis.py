"""Synthetic problems: solvable, not free, said in words, the same for the same seed."""

from __future__ import annotations

import random
import re

import msgspec
import pytest

from foundation.errors import ArenaError
from problems.axes import attribute_pairs_of, match, sku_pairs_of
from problems.clusters import cluster_id, title_key
from problems.formats import read_problems, write_problems
from problems.score import score
from problems.self_check import check_solvable
from problems.synthesis import ACCEPTED_MAX, synthesize
from problems.titles import matcher_named
from problems.wording import check_wording
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


def test_each_bucket_has_the_number_asked_for_and_every_id_is_its_own():
    assert {bucket: sum(p.bucket == bucket for p in PROBLEMS) for bucket in COUNTS} == COUNTS
    assert len({problem.problem_id for problem in PROBLEMS}) == len(PROBLEMS)
    assert not any(answer_id in problem.problem_id for problem in PROBLEMS for answer_id in BY_ID)


def test_every_answer_scores_one_and_no_answer_zero():
    for problem in PROBLEMS:
        result = check_solvable(problem, BY_ID.get, TITLES)
        assert (result.oracle_reward_e4, result.warnings) == (10_000, ()), problem


def test_the_answers_meet_every_rule_by_their_fields_alone():
    for problem in PROBLEMS:
        for item in problem.rewards:
            axes = match(item, BY_ID[item.product_id], TITLES)
            assert axes.hits == axes.total


def test_few_other_products_satisfy_an_item():
    for item in (item for problem in PROBLEMS for item in problem.rewards):
        rivals = [p for p in CATALOGUE if p.product_id != item.product_id and all_met(item, p)]
        assert len(rivals) < ACCEPTED_MAX


def all_met(item, product) -> bool:
    axes = match(item, product, TITLES)
    return axes.hits == axes.total


def spoiled(item, product, axis):
    """The answer's twin under another id, wrong on one axis; None when the item does not ask that axis."""
    twin = replace(product, product_id="1")
    if axis == "title":
        return replace(twin, title="something else entirely")
    if axis == "price" and item.price:
        return replace(twin, price=(item.price[0].low or 1) - 1)
    if axis == "service" and item.service:
        return replace(twin, service=tuple(name for name in twin.service if name != item.service[0]))
    if axis == "sku" and item.sku_options:
        return replace(twin, sku_options={})
    if axis == "attribute" and item.attributes:
        return replace(twin, attributes={})
    return None


@pytest.mark.parametrize("axis", ["title", "price", "service", "sku", "attribute"])
def test_a_planted_near_miss_scores_below_one(axis):
    planted = 0
    for problem in PROBLEMS:
        ids = [item.product_id for item in problem.rewards]
        twin = spoiled(problem.rewards[0], BY_ID[ids[0]], axis)
        if twin is None:
            continue
        planted += 1
        outcome = score(problem, ["1", *ids[1:]], {**BY_ID, "1": twin}.get, TITLES)
        assert not outcome.is_success and outcome.reward_e4 < 10_000
    assert planted >= 10


def test_items_and_shops_follow_the_public_generator():
    for problem in PROBLEMS:
        answers = [BY_ID[item.product_id] for item in problem.rewards]
        shops = {answer.shop_id for answer in answers}
        if problem.bucket == "shop":
            assert 2 <= len(answers) <= 4 and len(shops) == 1
        if problem.voucher:
            assert not any(item.price for item in problem.rewards)
            least = 2 if problem.voucher.voucher_type == "shop" else 1
            assert least <= len(answers) <= 4
            assert problem.voucher.voucher_type == "platform" or len(shops) == 1


def test_voucher_amounts_lie_in_the_published_ranges():
    seen = set()
    for problem in PROBLEMS:
        if (voucher := problem.voucher) is None:
            continue
        total = 0.0
        for item in problem.rewards:
            total += BY_ID[item.product_id].price
        seen.add((voucher.voucher_type, voucher.discount_type))
        assert total >= 100 and 0.1 * total - 1 <= voucher.threshold <= 0.9 * total
        after = voucher.price_after_voucher
        assert after <= voucher.budget <= (after + 1) * 1.1
        if voucher.discount_type == "fixed":
            assert 0.1 * voucher.threshold - 1 <= voucher.face_value <= 0.5 * voucher.threshold
        else:
            assert 0.1 <= voucher.discount <= 0.5
            assert voucher.threshold * voucher.discount < voucher.cap <= voucher.threshold
    assert len(seen) == 4


def test_every_constraint_is_said_in_the_query():
    for problem in PROBLEMS:
        assert check_wording(problem) == ()
        for item in problem.rewards:
            for key, value in [*sku_pairs_of(item), *attribute_pairs_of(item)]:
                assert f"{key.replace('_', ' ')} {value}" in problem.query
            for rule in item.price:
                for bound in (rule.low, rule.high):
                    assert bound is None or re.search(rf"\b{bound:.0f}\b (PHP|pesos|and|to)", problem.query)


VOUCHER_TEXT = re.compile(
    r"\n\nMy budget is only `(?P<budget>\d+)`, but I have a voucher with the following rules:\n"
    r"1\. The voucher (?P<scope>applies to all products|only applies to the products from the same shop)\.\n"
    r"2\. It is valid only when the total price of the products exceeds `(?P<threshold>\d+)`\.\n"
    r"3\. It provides a (?:fixed discount of `(?P<face>\d+)`"
    r"|percentage discount of `(?P<percent>\d+)%` with a cap of `(?P<cap>\d+)`)\.$"
)


def test_the_voucher_is_said_in_the_public_benchmarks_sentences():
    for problem in PROBLEMS:
        said = VOUCHER_TEXT.search(problem.query)
        assert (said is not None) == (problem.bucket == "voucher")
        if said is None or problem.voucher is None:
            continue
        voucher = problem.voucher
        assert float(said["budget"]) == voucher.budget and float(said["threshold"]) == voucher.threshold
        assert ("same shop" in said["scope"]) == (voucher.voucher_type == "shop")
        if said["face"]:
            assert float(said["face"]) == voucher.face_value
        else:
            assert int(said["percent"]) / 100 == voucher.discount and float(said["cap"]) == voucher.cap


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


def test_no_two_problems_of_a_set_share_an_answer_class():
    classes = [title_key(*item.title) for problem in PROBLEMS for item in problem.rewards]
    assert len(set(classes)) == len(classes)


def test_synthetic_problems_are_written_and_read_back_equal():
    assert read_problems(write_problems(PROBLEMS)) == PROBLEMS


def test_a_catalogue_that_is_too_small_is_named():
    with pytest.raises(ArenaError, match="P4011"):
        synthesize(CATALOGUE[:3], seed=1, counts={"product": 10})
    with pytest.raises(ArenaError, match="P4011"):
        synthesize([], seed=1, counts={"shop": 1})
    assert synthesize([], seed=1, counts={}) == ()
    with pytest.raises(ValueError, match="negative"):
        synthesize(CATALOGUE, seed=1, counts={"shop": -1})


def test_paraphrase_order_retailer_and_voucher_keep_the_cluster():
    problem = next(problem for problem in PROBLEMS if problem.bucket == "voucher" and len(problem.rewards) > 1)
    turned = replace(
        problem, query="other words", rewards=tuple(reversed(problem.rewards)), voucher=None, bucket="shop"
    )
    assert cluster_id(turned) == cluster_id(problem)
    shouted = tuple(replace(item, product_id="5", title=(item.title[0].upper(),)) for item in problem.rewards)
    assert cluster_id(replace(problem, rewards=shouted)) == cluster_id(problem)
    assert len({cluster_id(problem) for problem in PROBLEMS}) == len(PROBLEMS)
