"""Episodes that stages learn from: a policy's own successes (rejection, B.3) and a teacher's (B.4), kept as they end.

Rejection draws K samples a problem and learns those of reward 1.0 as they were sampled. A teacher works through the
arena's own harness with the tools alone; its successes become step-wise rows, successes and failures together KTO's
labels, and the successes GRPO's reference for tool match. Problems are of the train pool only, and nothing of a
problem's answer is shown to anyone.
"""

from __future__ import annotations

from collections.abc import Sequence

from foundation.errors import ArenaError
from training.corpus.model import Trace, TraceFacts, TraceSource
from training.corpus.sources.assembly import assemble_trace
from training.guards import require_context
from training.model import ChatCodec
from training.recipe import Recipe
from training.rollouts.rewards import Step
from training.rollouts.rollout import EpisodeFile, EpisodeLine, RunJobs, collect, jobs_of
from training.rollouts.token_rows import TokenRows, by_step, rows_of_rollouts, rows_of_traces
from training.run_context import RunContext


def ask_teacher(recipe: Recipe, file: EpisodeFile, run: RunJobs, bench: RunContext) -> tuple[EpisodeLine, ...]:
    """One episode a problem, by `run`; those that are in the file already are not asked for again.

    Raises GuardStopError for a problem outside the train pool, ArenaError U3001..U3004 when the teacher is away.
    """
    jobs = jobs_of(bench.problems, 1, recipe.seed)
    bench.require_train(jobs)
    report = bench.progress
    collect(jobs, file, run, None if report is None else lambda done, of: report("teacher", done, of))
    return file.lines()


def stepwise_rows(lines: Sequence[EpisodeLine], codec: ChatCodec, recipe: Recipe) -> TokenRows:
    """One row a step of every full success. Raises GuardStopError when too many masks are inexact."""
    return by_step(rows_of_traces([trace_of(line) for line in lines if line.result.is_success], codec, recipe))


def trace_of(line: EpisodeLine) -> Trace:
    """An episode as a canonical trace."""
    result = line.result
    place = f"{result.problem_id}/{result.sample}"
    return assemble_trace(
        TraceSource(kind="arena", place=place, sha256=result.body_sha256, is_verified=True),
        line.messages,
        tools=line.tools,
        query=line.query,
        facts=TraceFacts(problem_id=result.problem_id, bucket=result.bucket, is_success=result.is_success),
    )


def reference_steps(lines: Sequence[EpisodeLine]) -> dict[str, tuple[Step, ...]]:
    """Of every problem the teacher solved, the calls of each of its turns: what tool match compares with."""
    return {
        line.result.problem_id: tuple(
            tuple((call.name, call.arguments) for call in message.calls)
            for message in line.messages
            if message.role == "assistant"
        )
        for line in lines
        if line.result.is_success
    }


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
