"""What a recommendation is worth."""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.codes import Owner
from foundation.errors import ArenaError
from problems.formats import Documents, read_problem, score_cases
from problems.model import Axis, OutcomeScore, PriceRule, Problem, UnscoredOutcome, Voucher
from problems.score import discounted_total, parse_recommendation, reference_fields, score, settle_bill
from problems.self_check import check_chance, check_solvable
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles, matcher_named
from tests.problems import stand

TITLES = matcher_named("lexical/1")
replace = msgspec.structs.replace


def scored(problem, ids, products=stand.PRODUCTS, **more) -> OutcomeScore:
    outcome = score(problem, ids, products.get, TITLES, **more)
    assert isinstance(outcome, OutcomeScore), outcome
    return outcome


def unscored_code(problem, ids, product_of=stand.PRODUCTS.get, titles=TITLES) -> str:
    outcome = score(problem, ids, product_of, titles)
    assert isinstance(outcome, UnscoredOutcome), outcome
    return outcome.failure.code


# -- slots and axes


def test_the_answer_satisfies_its_slot_whatever_its_fields_say():
    item = replace(stand.LAMP_ITEM, price=(PriceRule(mode="greater than", low=9_999),))
    outcome = scored(replace(stand.PRODUCT_PROBLEM, rewards=(item,)), ["101"])
    assert outcome.is_success and outcome.is_gt_exact and outcome.reward_e4 == 10_000
    assert outcome.slots[0].price == Axis(0, 1)  # the counters still tell the truth


def test_another_product_that_meets_every_rule_succeeds_without_being_exact():
    outcome = scored(stand.PRODUCT_PROBLEM, ["102"])
    assert outcome.is_success and not outcome.is_gt_exact
    assert (outcome.slots[0].rule_hits, outcome.slots[0].rule_total) == (6, 6)


@pytest.mark.parametrize(
    ("axis", "near_miss"),
    [
        ("title", {"title": "Copper Floor Light"}),
        ("price", {"price": 300.01}),
        ("service", {"service": ("COD",)}),
        ("sku", {"sku_options": {"1": {"color": "red", "size": "m"}, "2": {"color": "blue", "size": "xl"}}}),
        ("attribute", {"attributes": {"material": ("bras",)}}),
    ],
)
def test_a_near_miss_on_one_axis_costs_exactly_that_axis(axis, near_miss):
    product = replace(stand.TWIN, **near_miss)
    slot = scored(stand.PRODUCT_PROBLEM, ["102"], {**stand.PRODUCTS, "102": product}).slots[0]
    assert slot.rule_hits == 5
    for name in ("title", "price", "service", "sku", "attribute"):
        missed = getattr(slot, name).total - getattr(slot, name).hits
        assert missed == (1 if name == axis else 0), name


# -- ids


def test_an_unsurfaced_id_makes_its_slot_a_missing_one():
    outcome = scored(stand.SHOP_PROBLEM, ["101", "103"], unsurfaced={"103"})
    assert [slot.is_unsurfaced for slot in outcome.slots] == [False, True]
    assert not outcome.slots[1].is_found and not outcome.is_success and not outcome.is_one_shop
    assert outcome.findings == ("A-ids-unsurfaced",)


@pytest.mark.parametrize(
    ("text", "ids", "findings"),
    [
        (" 101 ,, 103 ", ("101", "103"), ()),
        ("101,103,101", ("101", "103"), ("A-ids-duplicate",)),
        ("", (), ("A-ids-missing",)),
        (None, (), ("A-ids-missing",)),
        (["101"], (), ("A-ids-format",)),
        (101, (), ("A-ids-format",)),
        ("101;103", ("101;103",), ("A-ids-format",)),
        ("[101, 103]", ("[101", "103]"), ("A-ids-format",)),
    ],
)
def test_product_ids_are_read_as_the_reference_reads_them(text, ids, findings):
    assert parse_recommendation(text) == (ids, findings)


# -- over slots


def test_a_failed_shop_problem_in_one_shop_stays_below_one():
    outcome = scored(
        replace(stand.SHOP_PROBLEM, rewards=(stand.LAMP_ITEM, replace(stand.KETTLE_ITEM, service=("COD",)))),
        ["102", "103"],
    )
    assert outcome.is_one_shop  # the answer's id satisfies the second slot
    assert outcome.is_success
    item = replace(stand.KETTLE_ITEM, product_id="999", service=("COD",))
    outcome = scored(replace(stand.SHOP_PROBLEM, rewards=(stand.LAMP_ITEM, item)), ["102", "103"])
    assert outcome.is_one_shop and not outcome.is_success
    assert (outcome.rule_e4, outcome.reward_e4) == (7_500, 8_750)


def test_a_voucher_problem_needs_its_budget():
    assert scored(stand.VOUCHER_PROBLEM, ["101", "103"]).is_success  # 650 - 100 <= 600
    across = scored(stand.VOUCHER_PROBLEM, ["101", "104"])  # 640, and a shop voucher does not apply across shops
    assert across.is_within_budget is False and not across.is_success and across.rule_e4 == 10_000
    plain = replace(stand.VOUCHER_PROBLEM, voucher=replace(stand.VOUCHER, budget=640))
    assert scored(plain, ["101", "104"]).is_success  # no voucher needed, any shops


# -- faults that are not the agent's: no score, never a zero


def test_a_malformed_document_is_unscored():
    for broken in ({"price": None}, {"service": None}, {"attributes": {"material": "brass"}}, {"price": float("nan")}):
        assert unscored_code(stand.PRODUCT_PROBLEM, ["102"], {"102": replace(stand.TWIN, **broken)}.get) == "P4005"


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        ({"bucket": "web"}, "P4003"),
        ({"rewards": ()}, "P4003"),
        ({"rewards": None}, "P4003"),
        ({"rewards": (stand.LAMP_ITEM, stand.KETTLE_ITEM)}, "P4003"),
        ({"rewards": (replace(stand.LAMP_ITEM, price=(PriceRule(mode="between", low=1),)),)}, "P4003"),
        ({"bucket": "voucher"}, "P4003"),
        ({"voucher": stand.VOUCHER}, "P4003"),
        ({"problem_id": ""}, "P4009"),
        ({"query": object()}, "P4009"),
    ],
)
def test_a_problem_built_wrong_is_unscored(broken, code):
    assert unscored_code(replace(stand.PRODUCT_PROBLEM, **broken), ["101"]) == code


# -- properties

ids_lists = st.lists(st.sampled_from([*stand.PRODUCTS, "999", "x;y"]), max_size=4, unique=True)


@given(problem=st.sampled_from(stand.PROBLEMS), ids=ids_lists, extra=st.text(max_size=5))
def test_an_extra_id_changes_nothing_but_the_findings(problem, ids, extra):
    full = [*ids, *(str(900 + number) for number in range(len(problem.rewards) - len(ids)))]
    assert replace(scored(problem, full), findings=()) == replace(scored(problem, [*full, extra]), findings=())


@given(problem=st.sampled_from(stand.PROBLEMS), ids=ids_lists, unsurfaced=ids_lists)
def test_reward_rule_and_success_agree(problem, ids, unsurfaced):
    outcome = scored(problem, ids, unsurfaced=unsurfaced)
    assert 0 <= outcome.rule_e4 <= 10_000
    assert (outcome.reward_e4 == 10_000) == outcome.is_success
    assert not outcome.is_success or outcome.rule_e4 == 10_000
    assert all(slot.rule_hits <= slot.rule_total for slot in outcome.slots)
    fields = reference_fields(problem, outcome)
    assert fields["success"] == outcome.is_success and all(0 <= value <= 1 for value in fields.values())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
item_fields = ("product_id", "title", "price", "service", "sku_options", "attributes", "shop_id", "between")
row_fields = ("reward", "rewards", "voucher", "category", "bucket", "query", "problem_id", "threshold", "budget", "cap")
field_names = st.sampled_from([*item_fields, *row_fields])


def damaged(value, draw):
    """`value` with one part replaced by arbitrary JSON."""
    if draw(st.integers(0, 3)) == 0 or not isinstance(value, dict | list) or not value:
        return draw(json_values)
    if isinstance(value, list):
        spot = draw(st.integers(0, len(value) - 1))
        return [damaged(item, draw) if number == spot else item for number, item in enumerate(value)]
    spot = draw(st.sampled_from([*value]) | field_names)
    return {**value, spot: damaged(value.get(spot), draw)}


@given(data=st.data(), problem=st.sampled_from(stand.PROBLEMS), answer=json_values | st.just("101,103"))
def test_arbitrary_json_as_problem_document_or_answer_never_raises(data, problem, answer):
    row = data.draw(st.just(msgspec.to_builtins(problem)) | json_values)
    document = damaged(msgspec.to_builtins(stand.LAMP), data.draw)
    ids, _ = parse_recommendation(answer)
    product_of = {"101": document, "103": document}.get  # raw documents: the scorer types what it is given
    try:
        made = read_problem(damaged(row, data.draw))
    except ArenaError as error:
        assert error.owner is Owner.PROBLEM
        made = problem
    outcome = score(made, ids, product_of, TITLES)
    assert isinstance(outcome, OutcomeScore | UnscoredOutcome)
    if isinstance(outcome, UnscoredOutcome):
        assert outcome.failure.owner is Owner.PROBLEM


PERCENT = Voucher(
    voucher_type="platform", discount_type="percentage", threshold=100, budget=2680, discount=0.33, cap=5000
)


def test_the_scorer_multiplies_where_the_public_tool_subtracts():
    voucher = replace(PERCENT, discount=0.18, budget=123)
    assert 150 - 150 * 18 / 100 <= 123  # the public tool: affordable
    assert settle_bill([150.0], ["s"], voucher).after_php == 123.00000000000001
    assert not settle_bill([150.0], ["s"], voucher).is_within_budget


def test_a_discount_without_its_amounts_is_a_problem_fault():
    with pytest.raises(ArenaError, match="P4003"):
        discounted_total(500.0, replace(PERCENT, cap=None))


@given(prices=st.lists(st.floats(0.01, 1e6), min_size=1, max_size=4), budget=st.floats(0, 1e6))
def test_a_voucher_never_makes_a_basket_dearer(prices, budget):
    bill = settle_bill(prices, ["s"] * len(prices), replace(PERCENT, budget=budget))
    assert bill.after_php <= bill.total_php
    assert bill.is_within_budget == (bill.after_php <= budget)


CASES, DOCUMENTS = stand.DATA / "scoring_cases.jsonl", stand.DATA / "scoring_documents.jsonl"


@pytest.mark.skipif(not CASES.is_file(), reason=f"golden vectors are not at {CASES}")
def test_every_golden_row_has_the_reference_keys_and_values():
    expected = {row["case_id"]: row["expected"] for row in map(json.loads, CASES.open())}
    with DOCUMENTS.open("rb") as documents, CASES.open("rb") as cases:
        results = list(score_cases(cases, Documents(documents), matcher_named("lexical/1")))
    assert len(results) == len(expected) == 800
    for result in results:
        case_id = str(result["case_id"])
        assert list(result.items()) == [("case_id", case_id), *expected[case_id].items()]


# -- self-check: the answer scores 1, nothing scores 0, chance solves nothing; what breaks that is named


LEXICAL = LexicalTitles()
SHELF = TitleIndex(stand.make_catalogue(3_000))


def test_a_problem_that_anything_satisfies_is_free():
    copies = [replace(stand.LAMP, product_id=str(number)) for number in range(50)]
    crowd = [*copies, *random.Random(1).sample(SHELF.products, 50)]
    check = check_solvable(stand.PRODUCT_PROBLEM, stand.PRODUCTS.get, LEXICAL)
    assert check.is_usable
    free = check_chance(check, stand.PRODUCT_PROBLEM, crowd, LEXICAL, seed=1)
    assert free.failure is not None and free.failure.code == "P4013" and "random" in free.failure.detail
    assert free.random_reward_e4 == 10_000
    kept = check_chance(check, stand.PRODUCT_PROBLEM, SHELF.products, LEXICAL, seed=1)
    assert kept.is_usable and kept.random_reward_e4 is not None and kept.random_reward_e4 < 10_000


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (replace(stand.PRODUCT_PROBLEM, rewards=(replace(stand.LAMP_ITEM, product_id="gone"),)), "P4006", ""),
        (
            replace(stand.SHOP_PROBLEM, rewards=(stand.LAMP_ITEM, replace(stand.KETTLE_ITEM, product_id="104"))),
            "P4013",
            "different shops",
        ),
        (replace(stand.VOUCHER_PROBLEM, voucher=replace(stand.VOUCHER, budget=100)), "P4013", "budget"),
    ],
)
def test_an_unsolvable_problem_is_named(problem, code, words):
    check = check_solvable(problem, stand.PRODUCTS.get, LEXICAL)
    assert not check.is_usable and check_solvable(stand.PRODUCT_PROBLEM, stand.PRODUCTS.get, LEXICAL).is_usable
    assert check.problem_id == problem.problem_id
    assert check.failure is not None and check.failure.code == code and words in check.failure.detail
    (same,) = stand.check_problem_set([problem], SHELF.products, stand.PRODUCTS.get, LEXICAL, seed=1)
    assert same == check  # chance is not asked about what can't be solved


def asking(**fields) -> Problem:
    return replace(stand.PRODUCT_PROBLEM, rewards=(replace(stand.LAMP_ITEM, **fields),))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (replace(stand.PRODUCT_PROBLEM, query=" "), "query is empty"),
        (asking(price=(PriceRule(mode="greater than", low=9_999),)), "the answer itself meets 5 of 6 rules"),
        (asking(attributes=({"material": ("Brass",)},)), "'Brass' is met in another spelling only"),
        (replace(stand.VOUCHER_PROBLEM, voucher=replace(stand.VOUCHER, face_value=9_999)), "falls below zero"),
    ],
)
def test_what_is_odd_and_can_be_solved_is_a_warning(problem, words):
    check = check_solvable(problem, stand.PRODUCTS.get, LEXICAL)
    assert check.is_usable and words in " ".join(check.warnings)
