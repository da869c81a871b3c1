"""Rewards and credit, by hand-computed cases: the mean as baseline, nothing for tokens that were not sampled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.rollouts import make_line
from training.rollouts.rewards import (
    Reward,
    Step,
    ToolUse,
    group_advantages,
    match_call,
    match_step,
    reward_of,
    token_advantages,
)
from training.rollouts.rollout import EpisodeLine


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
        (use("find_product", q="x", price="0-9"), use("find_product", q="x", price="0-8"), 0.75),  # exact, else 0
        (use("terminate"), use("terminate"), 1.0),
        (use("find_product", q="x"), use("terminate"), 0.0),
        (("", ""), ("", ""), 0.0),
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


def earned(line: EpisodeLine, teacher: Mapping[str, Sequence[Step]]) -> Reward:
    assert line.rollout is not None
    return reward_of(line.rollout, line.result, teacher, 0.5)


def credited(lines: list[EpisodeLine], teacher: Mapping[str, Sequence[Step]], turn_weight: float) -> list[list[float]]:
    rollouts = [line.rollout for line in lines if line.rollout is not None]
    return token_advantages(rollouts, [earned(line, teacher) for line in lines], turn_weight=turn_weight)


VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=8)


def reward(value: float | None) -> Reward:
    return Reward(value=value, outcome=value, tool_match=None)


@given(VALUES)
def test_advantages_sum_to_zero_and_an_unscorable_rollout_is_outside(values: list[float | None]) -> None:
    found = group_advantages([reward(value) for value in values])
    assert sum(found) == pytest.approx(0, abs=1e-9)
    assert all(one == 0 for one, value in zip(found, values, strict=True) if value is None)
    scored = [value for value in values if value is not None]
    kept = [one for one, value in zip(found, values, strict=True) if value is not None]
    assert kept == list(group_advantages([reward(value) for value in scored]))


@pytest.mark.parametrize("turn_weight", [0.0, 0.5, 1.0])
def test_tokens_of_the_environment_get_nothing(turn_weight: float) -> None:
    teacher = {"p": ((("a", "{}"),), (("b", "{}"),))}
    group = [
        make_line([("a", "{}"), ("b", "{}"), None], reward=1.0),
        make_line([("b", "{}")], reward=0.0),
        make_line([("a", "{}"), ("a", "{}")], reward=None),
    ]
    rows = credited(group, teacher, turn_weight)
    for rollout, row in zip((line.rollout for line in group), rows, strict=True):
        assert len(row) == len(rollout.completion_ids)
        assert all(value == 0 for value, bit in zip(row, rollout.mask, strict=True) if not bit)
    assert not any(rows[2])  # a fault of ours teaches nothing


def test_a_turn_is_credited_with_its_own_match_where_the_blend_is_per_turn() -> None:
    teacher = {"p": ((("a", "{}"),), (("b", "{}"),))}
    group = [
        make_line([("a", "{}"), ("b", "{}")], reward=0.0),  # both right
        make_line([("a", "{}"), ("x", "{}")], reward=0.0),  # the second wrong
    ]
    rows = credited(group, teacher, 0.5)
    assert rows == [[0.0, 0.0, 0.0, 0.25, 0.25], [0.0, 0.0, 0.0, -0.25, -0.25]]
