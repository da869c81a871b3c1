"""Rollouts in prime-rl's sample form: tokens, masks, logprobs and advantages, one JSON object a line.

Promise: lossless for what that trainer reads; ids are those that were sampled. Rollouts that teach nothing (no reward)
are left out. prime-rl itself is never a dependency: its pins can't live beside ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from training.credit import token_advantages
from training.model import Rollout
from training.rewards import Reward


class PrimeSample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample. `completion_mask` is True on sampled tokens; `advantages` has one number a completion token."""

    prompt_ids: tuple[int, ...]
    prompt_mask: tuple[bool, ...]
    completion_ids: tuple[int, ...]
    completion_mask: tuple[bool, ...]
    completion_logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    reward: float
    group: str


def prime_lines(rollouts: Iterable[Rollout], rewards: Iterable[Reward]) -> Iterator[bytes]:
    """JSON lines, groups in order of their problem."""
    pairs = sorted(zip(rollouts, rewards, strict=True), key=lambda pair: _place(pair[0]))
    for problem_id, group in groupby(pairs, key=lambda pair: pair[0].result.problem_id):
        for sample in _samples(problem_id, list(group)):
            yield msgspec.json.encode(sample) + b"\n"


def _samples(problem_id: str, group: Sequence[tuple[Rollout, Reward]]) -> Iterator[PrimeSample]:
    advantages = token_advantages([rollout for rollout, _ in group], [reward for _, reward in group])
    for (rollout, reward), row in zip(group, advantages, strict=True):
        if reward.value is not None:
            yield PrimeSample(
                prompt_ids=rollout.prompt_ids,
                prompt_mask=(False,) * len(rollout.prompt_ids),
                completion_ids=rollout.completion_ids,
                completion_mask=tuple(bool(bit) for bit in rollout.mask),
                completion_logprobs=rollout.logprobs,
                advantages=tuple(row),
                reward=reward.value,
                group=problem_id,
            )


def _place(rollout: Rollout) -> tuple[str, int]:
    return rollout.result.problem_id, rollout.result.sample
