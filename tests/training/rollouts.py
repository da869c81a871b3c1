"""Rollouts made by hand: each turn is two sampled tokens, followed by one token of the environment."""

from __future__ import annotations

from collections.abc import Sequence

from training.model import EpisodeResult, Rollout, RolloutTurn
from training.rollouts.rollout import EpisodeLine

TURN, BETWEEN = 2, 1


def make_line(
    calls: Sequence[tuple[str, str] | None] = (None,),
    *,
    reward: float | None,
    problem_id: str = "p",
    sample: int = 0,
    seed: int = 0,
) -> EpisodeLine:
    """An episode whose rollout has one turn for each of `calls` (None: a turn without a call)."""
    ids: list[int] = []
    mask: list[int] = []
    turns: list[RolloutTurn] = []
    for place, call in enumerate(calls):
        if place:
            ids += [9] * BETWEEN
            mask += [0] * BETWEEN
        turns.append(RolloutTurn(first=len(ids), last=len(ids) + TURN, tools=(call,) if call else ()))
        ids += [5] * TURN
        mask += [1] * TURN
    rollout = Rollout(
        prompt_ids=(1, 2, 3),
        completion_ids=tuple(ids),
        mask=tuple(mask),
        logprobs=tuple(-1.0 * bit for bit in mask),
        turns=tuple(turns),
    )
    result = make_result(problem_id=problem_id, sample=sample, seed=seed, reward=reward)
    return EpisodeLine(result=result, query="", messages=(), tools="[]", rollout=rollout)


def make_result(*, problem_id: str = "p", sample: int = 0, seed: int = 0, reward: float | None = 0.0) -> EpisodeResult:
    """An episode's result; a success where the reward is 1."""
    return EpisodeResult(
        problem_id=problem_id,
        bucket="product",
        sample=sample,
        seed=seed,
        version="v",
        stop="terminate",
        steps=2,
        is_recommending=True,
        reward=reward,
        is_success=None if reward is None else reward == 1.0,
        is_gt_exact=None if reward is None else False,
        rule=reward,
        axes={} if reward is None else {"title": (int(reward == 1.0), 1)},
    )
