"""Rewards of rollouts, as pure functions of what happened in them, and the advantage of each token (Dr. GRPO).

Every number is derived from recorded calls and outcomes; nothing is learnt, sampled or looked up. A rollout
whose outcome is missing for a fault of ours has no reward. The baseline is the mean of the group; nothing is divided by
its spread, so a saturated group gives no signal instead of a loud one. Tokens the policy did not sample get 0. An
unscorable rollout is outside the mean and gets 0. Sources: docs/architecture.md#scores (`reward_e4`); paper section 6
and B.6 (tool match against a teacher's trajectory, blended at half weight).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from training.corpus.gates import QUERY_KEYS, json_fields
from training.model import EpisodeResult, Rollout

NAME_SHARE = 0.5  # of a step's match; the rest is its arguments
ID_KEYS = frozenset({"product_ids", "product_id", "shop_ids"})  # ids with commas between them, in any order
_WORD = re.compile(r"\w+")

ToolUse = tuple[str, str]  # tool name, arguments as JSON text
Step = tuple[ToolUse, ...]  # the calls of one turn


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout earned. `value` None: unscorable, it teaches nothing. `steps`: tool match of each turn."""

    value: float | None
    outcome: float | None
    tool_match: float | None  # None: no teacher trajectory for this problem
    steps: tuple[float, ...] = ()


def reward_of(
    rollout: Rollout, result: EpisodeResult, teachers: Mapping[str, Sequence[Step]], tool_weight: float
) -> Reward:
    """The arena's outcome and the tool match blended at reward level: (1 - weight) x outcome + weight x match.

    A problem without a teacher trajectory is rewarded by its outcome alone, and `tool_match` says so.
    """
    teacher, outcome = teachers.get(result.problem_id), result.reward
    if outcome is None:
        return Reward(value=None, outcome=None, tool_match=None)
    if teacher is None or tool_weight == 0:
        return Reward(value=outcome, outcome=outcome, tool_match=None)
    ours = [turn.tools for turn in rollout.turns]
    # each of our steps against the teacher's of the same place; 0 beyond the teacher's last
    matches = tuple(match_step(step, teacher[at]) if at < len(teacher) else 0.0 for at, step in enumerate(ours))
    match = sum(matches) / max(len(ours), len(teacher), 1)
    value = (1 - tool_weight) * outcome + tool_weight * match
    return Reward(value=value, outcome=outcome, tool_match=match, steps=matches)


def match_step(ours: Step, theirs: Step) -> float:
    """Mean match of the calls of two turns in [0, 1], whatever their order: calls are paired best first, and one that
    has no partner counts 0. A turn without a call matches nothing."""
    scores = sorted(
        (
            (match_call(mine, other), -row, -column)
            for row, mine in enumerate(ours)
            for column, other in enumerate(theirs)
        ),
        reverse=True,
    )
    rows, columns, total = set[int](), set[int](), 0.0
    for score, row, column in scores:
        if row not in rows and column not in columns:
            rows.add(row)
            columns.add(column)
            total += score
    return total / max(len(ours), len(theirs), 1)


def match_call(ours: ToolUse, theirs: ToolUse) -> float:
    """0 for another tool; else half for the name and half for the arguments, in [0, 1].

    Arguments: mean over all names either side gives; F1 of the lower-cased words of search queries, F1 of the ids for
    lists of them, exact equality for everything else.
    """
    if not ours[0] or ours[0] != theirs[0]:
        return 0.0
    given, wanted = json_fields(ours[1]), json_fields(theirs[1])
    names = given.keys() | wanted.keys()
    if not names:
        return 1.0
    hits = 0.0
    for name in names:
        mine, other = given.get(name), wanted.get(name)
        if name in QUERY_KEYS and isinstance(mine, str) and isinstance(other, str):
            hits += _f1(*(Counter(_WORD.findall(text.lower())) for text in (mine, other)))
        elif name in ID_KEYS and mine is not None and other is not None:
            hits += _f1(Counter(set(_listed(mine))), Counter(set(_listed(other))))
        else:
            hits += mine is not None and str(mine) == str(other)
    return NAME_SHARE + (1 - NAME_SHARE) * hits / len(names)


def group_advantages(rewards: Sequence[Reward]) -> tuple[float, ...]:
    """Reward minus the group's mean, for rollouts of one problem."""
    values = [reward.value for reward in rewards if reward.value is not None]
    mean = sum(values) / len(values) if values else 0.0
    return tuple(0.0 if reward.value is None else reward.value - mean for reward in rewards)


def mixed_share(rewards: Sequence[Reward], size: int) -> float:
    """Of groups of `size` rewards, the share in which two differ; 0 for none."""
    groups = [[one.value for one in rewards[first : first + size]] for first in range(0, len(rewards), size)]
    mixed = [len({value for value in group if value is not None}) > 1 for group in groups]
    return sum(mixed) / len(mixed) if mixed else 0.0


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
    outcomes = group_advantages([msgspec.structs.replace(reward, value=reward.outcome) for reward in rewards])
    matches: dict[int, list[float]] = {}  # of each turn, over the rollouts that got that far
    for reward in rewards:
        for place, match in enumerate(reward.steps):
            matches.setdefault(place, []).append(match)
    found = []
    for rollout, reward, outcome in zip(rollouts, rewards, outcomes, strict=True):
        advantages = [0.0] * len(rollout.mask)
        weight = turn_weight if reward.tool_match is not None else 0.0  # no teacher: the outcome alone
        for place, turn in enumerate(rollout.turns if reward.value is not None else ()):
            above = reward.steps[place] - sum(matches[place]) / len(matches[place]) if reward.steps else 0.0
            advantages[turn.first : turn.last] = [(1 - weight) * outcome + weight * above] * (turn.last - turn.first)
        found.append(advantages)
    return found


def _f1(mine: Counter[str], other: Counter[str]) -> float:
    """F1 of two bags; 1 when both are empty."""
    total = mine.total() + other.total()
    return 2 * (mine & other).total() / total if total else 1.0


def _listed(value: Any) -> list[str]:
    """The ids of a list, or of a text with commas between them."""
    parts = value if isinstance(value, list) else str(value).split(",")
    return [str(part).strip() for part in parts]
