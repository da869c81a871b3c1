"""Rewards: by hand-computed cases; nothing is learnt, sampled or looked up."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.rollouts import make_rollout
from training.rollouts.rewards import match_step, match_steps, reward_of, steps_of, token_f1

WORDS = st.text(st.sampled_from("abc é "), max_size=12)


def step(name: str, **arguments: Any) -> tuple[str, str]:
    return name, json.dumps(arguments)


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        (step("find_product", q="red tee"), step("find_product", q="red tee"), 1.0),
        (step("find_product", q="red tee"), step("find_product", q="blue tee"), 0.75),  # F1 of 1 common word in 2 and 2
        (step("find_product", q="red tee", page=1), step("find_product", q="red tee"), 0.75),  # an argument too many
        (step("find_product", q="RED tee"), step("find_product", q="red, tee!"), 1.0),
        (step("find_product", q="x", price="0-9"), step("find_product", q="x", price="0-8"), 0.75),  # exact, else 0
        (step("find_product", page=1), step("find_product", page="1"), 1.0),
        (step("terminate"), step("terminate"), 1.0),
        (step("find_product", q="x"), step("terminate"), 0.0),
        (("", ""), ("", ""), 0.0),  # a turn without a call matches nothing
        (("find_product", "{broken"), step("find_product", q="x"), 0.5),
        (("find_product", "[1]"), ("find_product", "[1]"), 1.0),
    ],
)
def test_a_step_is_half_its_name_and_half_its_arguments(
    ours: tuple[str, str], theirs: tuple[str, str], wanted: float
) -> None:
    assert match_step(ours, theirs) == pytest.approx(wanted)


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


def test_a_turns_first_call_is_its_step() -> None:
    rollout = make_rollout([("find_product", "{}"), None, ("terminate", "{}")], reward=0.0)
    assert steps_of(rollout) == (("find_product", "{}"), ("", ""), ("terminate", "{}"))
    two = msgspec.structs.replace(rollout.turns[0], tools=(("a", "{}"), ("b", "{}")))
    assert steps_of(msgspec.structs.replace(rollout, turns=(two,))) == (("a", "{}"),)
