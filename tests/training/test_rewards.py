"""Rewards: by hand-computed cases; nothing is learnt, sampled or looked up."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.rollouts import make_rollout
from training.model import Rollout
from training.rollouts.rewards import (
    Reward,
    Step,
    ToolUse,
    match_call,
    match_step,
    match_steps,
    mixed_share,
    process_of,
    reward_of,
    steps_of,
    token_f1,
)

WORDS = st.text(st.sampled_from("abc é "), max_size=12)


def use(name: str, **arguments: Any) -> ToolUse:
    return name, json.dumps(arguments)


def step(name: str, **arguments: Any) -> Step:
    return (use(name, **arguments),)


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        (use("find_product", q="red tee"), use("find_product", q="red tee"), 1.0),
        (use("find_product", q="red tee"), use("find_product", q="blue tee"), 0.75),  # F1 of 1 common word in 2 and 2
        (use("find_product", q="red tee", page=1), use("find_product", q="red tee"), 0.75),  # an argument too many
        (use("find_product", q="RED tee"), use("find_product", q="red, tee!"), 1.0),
        (use("find_product", q="x", price="0-9"), use("find_product", q="x", price="0-8"), 0.75),  # exact, else 0
        (use("find_product", page=1), use("find_product", page="1"), 1.0),
        (use("terminate"), use("terminate"), 1.0),
        (use("find_product", q="x"), use("terminate"), 0.0),
        (("", ""), ("", ""), 0.0),
        (use("recommend_product", product_ids="a,b"), use("recommend_product", product_ids="b, a"), 1.0),
        (use("recommend_product", product_ids="a,b"), use("recommend_product", product_ids="a,c"), 0.75),
        (use("recommend_product", product_ids=["a", "b"]), use("recommend_product", product_ids="a"), 0.5 + 1 / 3),
        (("find_product", "{broken"), use("find_product", q="x"), 0.5),
        (("find_product", "[1]"), ("find_product", "[1]"), 1.0),
    ],
)
def test_a_call_is_half_its_name_and_half_its_arguments(ours: ToolUse, theirs: ToolUse, wanted: float) -> None:
    assert match_call(ours, theirs) == pytest.approx(wanted)


def test_all_calls_of_a_turn_count_in_whatever_order() -> None:
    red, blue, view = use("find_product", q="red"), use("find_product", q="blue"), use("view", product_id="1")
    assert match_step((red, blue), (blue, red)) == 1.0
    assert match_step((red,), (red, blue)) == 0.5  # a call that is left out
    assert match_step((red, view), (red,)) == 0.5  # and one too many
    assert match_step((red, blue), (red, view)) == pytest.approx(0.5)
    assert match_step((), ()) == match_step((red,), ()) == 0.0  # a turn without a call matches nothing


@given(WORDS, WORDS)
def test_token_f1_is_symmetric_and_one_for_equal_texts(one: str, other: str) -> None:
    assert token_f1(one, other) == token_f1(other, one)
    assert 0 <= token_f1(one, other) <= 1
    assert token_f1(one, one) == 1


def test_steps_are_aligned_in_order_and_nothing_matches_beyond_the_teachers_last() -> None:
    teacher = (step("find_product", q="a"), step("terminate"))
    assert match_steps((step("find_product", q="a"), step("terminate"), step("terminate")), teacher) == (1.0, 1.0, 0.0)
    assert match_steps((step("terminate"), step("find_product", q="a")), teacher) == (0.0, 0.0)


def test_the_blend_is_at_reward_level() -> None:
    rollout = make_rollout([("find_product", '{"q": "a"}')], reward=0.4)
    teacher = {"p": (step("find_product", q="a"), step("terminate"))}
    found = reward_of(rollout, teacher, 0.5)
    assert found.tool_match == pytest.approx(0.5)  # one of two steps: a short rollout can't win by stopping early
    assert found.value == pytest.approx(0.5 * 0.4 + 0.5 * 0.5)
    assert found.outcome == 0.4 and found.steps == (1.0,)


def test_without_a_teacher_or_a_weight_the_outcome_alone_counts_and_says_so() -> None:
    rollout = make_rollout([("terminate", "{}")], reward=0.4)
    for teachers, weight in (({}, 0.5), ({"p": (step("terminate"),)}, 0.0)):
        found = reward_of(rollout, teachers, weight)
        assert (found.value, found.tool_match) == (0.4, None)


def test_a_fault_of_ours_has_no_reward() -> None:
    found = reward_of(make_rollout([("terminate", "{}")], reward=None), {"p": (step("terminate"),)}, 0.5)
    assert found.value is None and found.outcome is None


def test_the_calls_of_a_turn_are_its_step() -> None:
    rollout = make_rollout([("find_product", "{}"), None, ("terminate", "{}")], reward=0.0)
    assert steps_of(rollout) == ((("find_product", "{}"),), (), (("terminate", "{}"),))
    two = msgspec.structs.replace(rollout.turns[0], tools=(("a", "{}"), ("b", "{}")))
    assert steps_of(msgspec.structs.replace(rollout, turns=(two,))) == ((("a", "{}"), ("b", "{}")),)


def test_a_group_is_mixed_where_two_of_its_rewards_differ() -> None:
    values = [1.0, 1.0, 0.0, 0.5, None, 1.0]
    rewards = [Reward(value=value, outcome=value, tool_match=None) for value in values]
    assert mixed_share(rewards, 2) == pytest.approx(1 / 3)  # an unscored rollout is no reward
    assert mixed_share(rewards, 6) == 1.0 and mixed_share([], 2) == 0.0


def partly(reward: float, **axes: tuple[int, int]) -> Rollout:
    """A rollout of that outcome that met so many of the demands of each part."""
    rollout = make_rollout([None], reward=reward)
    return msgspec.structs.replace(rollout, result=msgspec.structs.replace(rollout.result, axes=axes))


@pytest.mark.parametrize(
    ("rollout", "wanted"),
    [
        (partly(0.2, price=(1, 1), attribute=(1, 4), sku=(0, 0)), (1 + 1 / 4) / 2),  # each part alike, if asked for
        (partly(0.2, title=(0, 1), service=(2, 2)), 1.0),  # the title is no part of it
        (partly(1.0, price=(0, 1)), 1.0),  # a success is whole, whatever the fields say
        (partly(0.3, title=(0, 1)), 0.3),  # a request for a title alone is worth its outcome
        (partly(0.0, price=(0, 1), service=(0, 2)), 0.0),
    ],
)
def test_a_process_reward_is_the_mean_share_of_the_rules_parts_that_were_met(rollout: Rollout, wanted: float) -> None:
    assert process_of(rollout) == pytest.approx(wanted)
    blended = reward_of(rollout, {}, 0.0, 0.25)
    outcome = rollout.result.reward
    assert outcome is not None and blended.value == pytest.approx(0.75 * outcome + 0.25 * wanted)
    assert reward_of(rollout, {}, 0.0).value == outcome  # unasked it changes nothing


def test_a_fault_of_ours_has_no_process_reward_either() -> None:
    assert reward_of(make_rollout([None], reward=None), {}, 0.0, 0.5).value is None
