"""Rejection sampling: the policy's own full successes, as more rows to learn (paper section 6 stage 2, B.3).

K samples a problem under the recipe's decoding, problems of the train pool only; what is kept has reward 1.0
and is learnt as it was sampled. Episodes stand on disk as they end.
"""

from __future__ import annotations

from collections.abc import Sequence

from foundation.errors import ArenaError
from training.guards import require_context
from training.model import ChatCodec
from training.recipe import Recipe
from training.rollouts.episode_file import EpisodeFile, EpisodeLine, RunJobs, collect
from training.rollouts.rollout import jobs_of
from training.rollouts.token_rows import TokenRows, rows_of_rollouts
from training.run_context import RunContext

EPISODES = "episodes.jsonl"


def sample_rejection(recipe: Recipe, file: EpisodeFile, run: RunJobs, bench: RunContext) -> tuple[EpisodeLine, ...]:
    """All episodes of the stage, by `run`; those that are in the file already are not run again.

    Raises GuardStopError for a problem outside the train pool.
    """
    jobs = jobs_of(bench.problems, recipe.samples, recipe.seed)
    bench.require_train(jobs)
    report = bench.progress
    collect(jobs, file, run, None if report is None else lambda done, of: report("sample", done, of))
    return file.lines()


def keep_successes(lines: Sequence[EpisodeLine], codec: ChatCodec, recipe: Recipe) -> TokenRows:
    """Rows of the rollouts with full reward.

    Raises ArenaError V2124 when there is none to learn from, GuardStopError when too many masks are inexact or too many
    conversations outgrew the context.
    """
    require_context(sum(line.result.is_overflow for line in lines), len(lines))
    kept = [line.rollout for line in lines if line.rollout is not None and line.result.reward == 1.0]
    rows = rows_of_rollouts(kept, codec, recipe)
    if not rows.rows:
        best = max((line.result.reward or 0.0 for line in lines), default=0.0)
        raise ArenaError(
            "V2124",
            f"none of {len(lines)} rollouts can be learnt from: {len(kept)} have full reward, the best has {best:.2f}, "
            f"{rows.dropped.get('unfit', 0)} are over {recipe.data.tokens_max} tokens; train the parent further, or "
            "raise `samples`",
        )
    return rows
