"""One test per deviation from the reference that problems/README.md lists, and one that the list is complete."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from problems.formats import read_problem, read_problems
from problems.outcome import UnscoredOutcome
from problems.product import read_product
from problems.score import reference_fields, score
from problems.self_check import check_solvable
from problems.titles import AcceptedTitles, matcher_named
from tests.problems.stand import LAMP, PRODUCT_PROBLEM, PRODUCTS, SHOP_PROBLEM, VOUCHER_PROBLEM

TITLES = matcher_named("lexical/1")
README = Path(__file__).parents[2] / "problems" / "README.md"
ITEM = {"product_id": "1", "title": ["Lamp"]}
VOUCHER = {"voucher_type": "platform", "discount_type": "fixed", "threshold": 1, "budget": 9, "face_value": 1}
DOCUMENT = msgspec.to_builtins(LAMP)
replace = msgspec.structs.replace


def refuses(row, code: str) -> None:
    with pytest.raises(ArenaError) as caught:
        read_problem({"query": "q", **row})
    assert caught.value.failure.code == code


def test_d14_without_a_title_matcher_that_knows_the_title_there_is_no_score():
    outcome = score(PRODUCT_PROBLEM, ["102"], PRODUCTS.get, AcceptedTitles(name="release/1", accepted={}))
    assert isinstance(outcome, UnscoredOutcome) and outcome.failure.code == "V2040"


def test_d17_ids_must_be_text():
    refuses({"reward": {**ITEM, "product_id": 1}}, "P4003")
    with pytest.raises(ArenaError, match="P4005"):
        read_product({**DOCUMENT, "product_id": 101})


@pytest.mark.parametrize(
    "row",
    [
        {"category": "shop", "reward": ITEM},
        {"category": "shop", "reward": []},
        {"category": "product", "reward": [ITEM]},
        {"reward": {"product_id": "1", "title": []}},
        {"reward": {"product_id": "1"}},
        {"category": "product"},
    ],
)
def test_d18_a_reward_of_the_wrong_shape_is_refused_at_load(row):
    refuses(row, "P4003")


@pytest.mark.parametrize(
    "voucher",
    [
        None,
        "10% off",
        {**VOUCHER, "discount_type": "percentage", "discount": 0.2, "cap": None},
        {**VOUCHER, "face_value": None},
        {**VOUCHER, "discount_type": "gift"},
        {**VOUCHER, "budget": None},
        {**VOUCHER, "threshold": float("nan")},
    ],
)
def test_d19_a_voucher_that_cannot_be_computed_is_refused_at_load_whatever_the_total(voucher):
    refuses({"category": "voucher", "reward": [ITEM], "voucher": voucher}, "P4003")


def test_d20_an_unknown_voucher_type_is_refused_at_load():
    refuses({"category": "voucher", "reward": [ITEM], "voucher": {**VOUCHER, "voucher_type": "city"}}, "P4003")


def test_d21_a_face_value_above_the_total_scores_the_same_and_is_warned_of():
    problem = replace(VOUCHER_PROBLEM, voucher=replace(VOUCHER_PROBLEM.voucher, face_value=5_000))
    result = check_solvable(problem, PRODUCTS.get, TITLES)
    assert result.is_usable and "below zero" in result.warnings[0]


@pytest.mark.parametrize(
    "price",
    [
        [{"between": [1, None]}],
        [{"between": [None, 2]}],
        [{"greater than": [None, 2]}],
        [{"less than": [1, None]}],
        [{"about": [1, 2]}],
        [{"between": [1]}],
        [{"between": "12"}],
        [{"between": [1, "2"]}],
        [{"between": [True, 2]}],
        {"between": [1, 2]},
    ],
)
def test_d22_a_price_rule_that_cannot_be_decided_is_refused_at_load(price):
    refuses({"reward": {**ITEM, "price": price}}, "P4003")


def test_d23_an_attribute_given_as_text_is_refused_instead_of_matched_by_letters():
    refuses({"reward": {**ITEM, "attributes": [{"material": "brass"}]}}, "P4003")
    with pytest.raises(ArenaError, match="P4005"):
        read_product({**DOCUMENT, "attributes": {"material": "brass"}})


@pytest.mark.parametrize(
    "change",
    [
        {"service": None},
        {"price": None},
        {"price": "250"},
        {"price": float("inf")},
        {"sku_options": []},
        {"sku_options": {"1": {"color": ["red"]}}},
        {"product_id": ""},
    ],
)
def test_d24_a_malformed_document_is_refused_at_build_and_unscored_at_scoring(change):
    with pytest.raises(ArenaError, match="P4005"):
        read_product({**DOCUMENT, **change})
    outcome = score(PRODUCT_PROBLEM, ["102"], lambda _: {**DOCUMENT, **change}, TITLES)
    assert isinstance(outcome, UnscoredOutcome) and outcome.failure.code == "P4005"


def test_d24_a_document_without_service_is_refused():
    with pytest.raises(ArenaError, match="service is missing"):
        read_product({key: value for key, value in DOCUMENT.items() if key != "service"})


def test_d25_d26_a_failed_lookup_is_no_missing_product():
    def away(_: str) -> None:
        raise ArenaError("U3010", "connection refused")

    outcome = score(PRODUCT_PROBLEM, ["102"], away, TITLES)
    assert isinstance(outcome, UnscoredOutcome) and outcome.failure.code == "U3010"


def test_d27_two_problems_with_the_same_query_keep_their_rewards():
    first, second = read_problems(
        [{"query": "q", "reward": ITEM}, {"query": "q", "reward": {**ITEM, "product_id": "2"}}]
    )
    assert first.problem_id != second.problem_id


def test_d29_another_spelling_does_not_match_and_is_warned_of():
    item = replace(PRODUCT_PROBLEM.rewards[0], attributes=({"Material": ("Brass",)},))
    result = check_solvable(replace(PRODUCT_PROBLEM, rewards=(item,)), PRODUCTS.get, TITLES)
    assert result.is_usable
    assert any("another spelling" in warning for warning in result.warnings)


def test_d32_every_key_is_there_when_nothing_is_recommended():
    fields = reference_fields(SHOP_PROBLEM, score(SHOP_PROBLEM, [], PRODUCTS.get, TITLES))
    assert len(fields) == 9 and not any(fields.values())


def test_d39_an_unknown_category_is_refused_at_load():
    refuses({"category": "grocery", "reward": ITEM}, "P4003")


def test_d41_the_answers_own_id_without_its_document_is_no_miss():
    outcome = score(PRODUCT_PROBLEM, ["101"], {}.get, TITLES)
    assert isinstance(outcome, UnscoredOutcome) and outcome.failure.code == "P4006"


def test_every_deviation_listed_has_a_test_here_and_every_test_is_listed():
    listed = set(re.findall(r"^\| D(\d+) \|", README.read_text(), re.MULTILINE))
    tested = {number for name in globals() if name.startswith("test_d") for number in re.findall(r"(?<=_d)\d+", name)}
    assert listed == tested
