"""Rollouts in prime-rl's sample form: tokens, masks, logprobs and advantages, one JSON array a line.

Lossless for what that trainer reads; ids are those that were sampled. Episodes that teach nothing (no tokens,
no reward) are left out and counted by reason. prime-rl itself is never a dependency: its pins can't live beside ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from training.model import Rollout
from training.rollouts.episode_file import EpisodeLine
from training.rollouts.rewards import Reward, reward_of, token_advantages

ENV_NAME = "agent-arena"
LOSS = "rl"  # the name by which prime-rl finds its policy gradient

NO_TOKENS, NO_REWARD = "no tokens", "no reward"


class PrimeAdvantage(msgspec.Struct, frozen=True, array_like=True):
    """What a loss weighs each token by; `mask` is True where the policy sampled."""

    loss: str
    values: tuple[float, ...]
    mask: tuple[bool, ...]


class PrimeSample(msgspec.Struct, frozen=True, array_like=True):
    """One sample, a JSON array in this order: `TrainingSample` of prime-rl's `transport/types.py`.

    Prompt and completion are one sequence; `mask`, `logprobs` (0 where nothing was sampled), `temperatures` and the
    advantage have a value for each of its tokens.
    """

    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    temperatures: tuple[float, ...]
    env_name: str
    advantages: tuple[PrimeAdvantage, ...]
    reward: float | None


class PrimeExport(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of a run. `groups`: problems with a sample; `level_groups`: those whose rewards are all alike, which
    give no advantage; `left_out` counts episodes by reason."""

    lines: tuple[bytes, ...]
    groups: int
    level_groups: int
    left_out: dict[str, int]


def export_episodes(lines: Iterable[EpisodeLine], temperature: float) -> PrimeExport:
    """The episodes of a run, sampled at `temperature`, as samples rewarded by their outcome alone.

    Left out are episodes without tokens (sampled at an endpoint, or not one growing sequence) and without a reward (a
    fault of ours).
    """
    kept: list[Rollout] = []
    left_out: Counter[str] = Counter()
    for line in lines:
        if line.rollout is None:
            left_out[NO_TOKENS] += 1
        elif line.rollout.result.reward is None:
            left_out[NO_REWARD] += 1
        else:
            kept.append(line.rollout)
    earned: dict[str, set[float | None]] = {}
    for rollout in kept:
        earned.setdefault(rollout.result.problem_id, set()).add(rollout.result.reward)
    return PrimeExport(
        lines=tuple(prime_lines(kept, [reward_of(rollout, {}, 0.0) for rollout in kept], temperature)),
        groups=len(earned),
        level_groups=sum(len(rewards) == 1 for rewards in earned.values()),
        left_out=dict(sorted(left_out.items())),
    )


def prime_lines(rollouts: Iterable[Rollout], rewards: Iterable[Reward], temperature: float) -> Iterator[bytes]:
    """JSON lines, groups in order of their problem; the baseline of a rollout is the mean of its group."""
    pairs = sorted(
        zip(rollouts, rewards, strict=True), key=lambda pair: (pair[0].result.problem_id, pair[0].result.sample)
    )
    for _, of_problem in groupby(pairs, key=lambda pair: pair[0].result.problem_id):
        group = list(of_problem)
        advantages = token_advantages([rollout for rollout, _ in group], [reward for _, reward in group])
        for (rollout, reward), row in zip(group, advantages, strict=True):
            if reward.value is None:
                continue
            before = len(rollout.prompt_ids)
            mask = (False,) * before + tuple(bool(bit) for bit in rollout.mask)
            sample = PrimeSample(
                token_ids=rollout.prompt_ids + rollout.completion_ids,
                mask=mask,
                logprobs=(0.0,) * before + rollout.logprobs,
                temperatures=(temperature,) * len(mask),
                env_name=ENV_NAME,
                advantages=(PrimeAdvantage(loss=LOSS, values=(0.0,) * before + tuple(row), mask=mask),),
                reward=reward.value,
            )
            yield msgspec.json.encode(sample) + b"\n"
