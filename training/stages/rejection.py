"""Rejection sampling: the policy's own full successes, as more rows to learn (paper section 6 stage 2, B.3).

Promise: k samples a problem under the recipe's decoding, problems of the train pool only; what is kept has reward 1.0
and is learnt as it was sampled. Episodes stand on disk as they end.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.episode_file import EpisodeFile, EpisodeLine
from training.model import ChatCodec, Sampler
from training.recipe import Recipe
from training.rollout import jobs_of
from training.token_rows import Rows, rows_of_rollouts
from training.workbench import Workbench

EPISODES = "episodes.jsonl"


def sample_rejection(
    recipe: Recipe, file: EpisodeFile, sampler: Sampler, codec: ChatCodec, bench: Workbench
) -> tuple[EpisodeLine, ...]:
    """All episodes of the stage; those that stand in the file already are not run again.

    Raises GuardStopError for a problem outside the train pool.
    """
    jobs = jobs_of(bench.problems, recipe.samples, recipe.seed)
    bench.require_train(jobs)
    missing = file.missing(jobs)
    for start in range(0, len(missing), recipe.parallel):
        part = missing[start : start + recipe.parallel]
        for line in bench.sample(part, sampler, codec, recipe.decode, recipe.parallel):
            file.add(line)
        if bench.progress:
            bench.progress("sample", len(jobs) - len(missing) + start + len(part), len(jobs))
    return file.lines()


def keep_successes(lines: Sequence[EpisodeLine], codec: ChatCodec, tokens_max: int) -> Rows:
    """Rows of the rollouts with full reward."""
    kept = [line.rollout for line in lines if line.rollout is not None and line.result.reward == 1.0]
    return rows_of_rollouts(kept, codec, tokens_max)
