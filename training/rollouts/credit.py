"""Credit: from a group's rewards to an advantage for each token (Dr. GRPO).

Promise: pure. The baseline is the mean of the group; nothing is divided by its spread, so a saturated group gives no
signal instead of a loud one (paper section 6, stage 5). Tokens the policy did not sample get 0. An unscorable rollout
is outside the mean and gets 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.model import Rollout
from training.rollouts.rewards import Reward


def group_advantages(rewards: Sequence[Reward]) -> tuple[float, ...]:
    """Reward minus the group's mean, for rollouts of one problem."""
    values = [reward.value for reward in rewards if reward.value is not None]
    mean = sum(values) / len(values) if values else 0.0
    return tuple(0.0 if reward.value is None else reward.value - mean for reward in rewards)


def token_advantages(
    rollouts: Sequence[Rollout], rewards: Sequence[Reward], *, turn_weight: float = 0.0
) -> list[list[float]]:
    """One advantage for each completion token, (rollouts, completion length).

    `turn_weight` 0: all sampled tokens of a rollout share its advantage, as in v17 to v19. Else the outcome's advantage
    and, at that weight, the turn's tool match minus the group's mean match at that turn.
    """
    if turn_weight == 0:
        shared = group_advantages(rewards)
        return [[advantage * bit for bit in rollout.mask] for rollout, advantage in zip(rollouts, shared, strict=True)]
    outcomes = group_advantages([_outcome_only(reward) for reward in rewards])
    means = _turn_means(rewards)
    return [
        _by_turn(rollout, reward, outcome, means, turn_weight)
        for rollout, reward, outcome in zip(rollouts, rewards, outcomes, strict=True)
    ]


def _by_turn(
    rollout: Rollout, reward: Reward, outcome: float, means: Sequence[float], turn_weight: float
) -> list[float]:
    advantages = [0.0] * len(rollout.mask)
    if reward.value is None:
        return advantages
    weight = turn_weight if reward.tool_match is not None else 0.0  # no teacher: the outcome alone
    for place, turn in enumerate(rollout.turns):
        match = reward.steps[place] - means[place] if reward.steps else 0.0
        advantages[turn.first : turn.last] = [(1 - weight) * outcome + weight * match] * (turn.last - turn.first)
    return advantages


def _turn_means(rewards: Sequence[Reward]) -> list[float]:
    """The group's mean match at each turn, over the rollouts that got that far."""
    longest = max((len(reward.steps) for reward in rewards), default=0)
    columns = ([reward.steps[place] for reward in rewards if place < len(reward.steps)] for place in range(longest))
    return [sum(column) / len(column) for column in columns]


def _outcome_only(reward: Reward) -> Reward:
    return Reward(value=reward.outcome, outcome=reward.outcome, tool_match=None)
