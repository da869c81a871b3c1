"""Credit: the group's mean as baseline, nothing divided by a spread, nothing for tokens that were not sampled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.rollouts import make_rollout
from training.rollouts.rewards import Reward, group_advantages, reward_of, token_advantages

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
        make_rollout([("a", "{}"), ("b", "{}"), None], reward=1.0),
        make_rollout([("b", "{}")], reward=0.0),
        make_rollout([("a", "{}"), ("a", "{}")], reward=None),
    ]
    rows = token_advantages(group, [reward_of(one, teacher, 0.5) for one in group], turn_weight=turn_weight)
    for rollout, row in zip(group, rows, strict=True):
        assert len(row) == len(rollout.completion_ids)
        assert all(value == 0 for value, bit in zip(row, rollout.mask, strict=True) if not bit)
    assert not any(rows[2])  # a fault of ours teaches nothing


def test_a_turn_is_credited_with_its_own_match_where_the_blend_is_per_turn() -> None:
    teacher = {"p": ((("a", "{}"),), (("b", "{}"),))}
    group = [
        make_rollout([("a", "{}"), ("b", "{}")], reward=0.0),  # both right
        make_rollout([("a", "{}"), ("x", "{}")], reward=0.0),  # the second wrong
    ]
    rows = token_advantages(group, [reward_of(one, teacher, 0.5) for one in group], turn_weight=0.5)
    assert rows == [[0.0, 0.0, 0.0, 0.25, 0.25], [0.0, 0.0, 0.0, -0.25, -0.25]]
