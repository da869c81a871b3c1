"""A teacher's episodes: what a stronger policy does on the train pool, kept where it fully succeeds (stage 3, B.4).

The teacher works through the arena's own harness with the tools alone; its answers are scored
production-strict. Successes become step-wise rows, vouchers repeated by the recipe. Successes and failures together are
KTO's labels, and the successes GRPO's tool-match reference. Nothing of a problem's answer is shown to anyone.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.corpus.model import Trace, TraceFacts, TraceSource, assemble_trace
from training.model import ChatCodec
from training.recipe import Recipe
from training.rollouts.episode_file import EpisodeFile, EpisodeLine, RunJobs, collect
from training.rollouts.rewards import Step
from training.rollouts.rollout import jobs_of
from training.rollouts.token_rows import TokenRows, by_step, rows_of_traces
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
