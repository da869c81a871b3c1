"""Episodes that stages learn from, and their token rows.

Rejection draws K samples a problem and learns those of reward 1.0 as they were sampled (B.3). A teacher works through
the arena's own harness with the tools alone; its successes become step-wise rows (B.4), successes and failures together
KTO's labels, and the successes GRPO's reference for tool match. Problems are of the train pool only, and nothing of a
problem's answer is shown to anyone. A rollout's row is its tokens, unchanged; a trace's row is rendered once and its
mask is checked. What can't be a row is counted by its reason, never cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from training.corpus.mix import Mix, MixRow, mix
from training.corpus.model import Trace, TraceFacts, TraceSource, assemble_trace
from training.guards import require_context, require_exact_masks
from training.model import Rollout, TokenRow, UnfitRowError
from training.models.render import Qwen3Codec, mask_defect, masked_runs, run_defect
from training.recipe import Recipe
from training.rollouts.rewards import Step
from training.rollouts.rollout import EpisodeFile, EpisodeLine, RunJobs, collect, jobs_of
from training.run_context import RunContext


class TokenRows(msgspec.Struct, frozen=True, kw_only=True):
    """Token rows, and what was left out, by reason."""

    rows: tuple[TokenRow, ...]
    dropped: dict[str, int]


def rows_of_traces(traces: Sequence[Trace], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
    """Render traces. Raises GuardStopError when too many masks are inexact."""
    rows: list[TokenRow] = []
    defects: list[str] = []
    unfit = 0
    for trace in traces:
        try:
            row = codec.row(trace.trace_id, trace.messages, trace.tools, recipe.data.tokens_max)
        except UnfitRowError:
            unfit += 1
            continue
        defect = mask_defect(row, trace.messages, codec)
        if defect:
            defects.append(f"{trace.trace_id[:12]}: {defect}")
        else:
            rows.append(replace(row, bucket=trace.facts.bucket))
    require_exact_masks(len(rows) + len(defects), defects, recipe.guards)
    return TokenRows(rows=tuple(rows), dropped={"unfit": unfit, "mask": len(defects)})


def rows_of_rollouts(rollouts: Sequence[Rollout], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
    """The tokens of rollouts as rows. Raises GuardStopError when too many masks are inexact."""
    rows: list[TokenRow] = []
    dropped: Counter[str] = Counter()
    for rollout in rollouts:
        length = len(rollout.prompt_ids) + len(rollout.completion_ids)
        runs = masked_runs(rollout.completion_ids, rollout.mask)
        if length > recipe.data.tokens_max:
            dropped["unfit"] += 1
        elif not runs or any(run_defect(run, codec) for run in runs):
            dropped["mask"] += 1
        else:
            rows.append(
                TokenRow(
                    trace_id=rollout_id(rollout),
                    token_ids=rollout.prompt_ids + rollout.completion_ids,
                    mask=(0,) * len(rollout.prompt_ids) + rollout.mask,
                    prompt_length=len(rollout.prompt_ids),
                    bucket=rollout.result.bucket,
                )
            )
    require_exact_masks(len(rollouts), ["a turn holds the template's tokens"] * dropped["mask"], recipe.guards)
    return TokenRows(rows=tuple(rows), dropped=dict(dropped))


def rollout_id(rollout: Rollout) -> str:
    """Identity of a rollout's row: its recorded episode, and which sample of its problem it is."""
    return text_hash(f"{rollout.result.body_sha256}/{rollout.result.sample}")


def by_step(rows: TokenRows) -> TokenRows:
    """One row an assistant turn: everything before it as prompt, that turn alone to learn (paper B.4)."""
    steps: list[TokenRow] = []
    for row in rows.rows:
        last = 0
        for number, run in enumerate(masked_runs(row.token_ids, row.mask)):
            first = row.mask.index(1, last)
            last = first + len(run)
            steps.append(
                TokenRow(
                    trace_id=f"{row.trace_id}/{number}",
                    token_ids=row.token_ids[:last],
                    mask=(0,) * first + (1,) * len(run),
                    prompt_length=first,
                    bucket=row.bucket,
                )
            )
    return TokenRows(rows=tuple(steps), dropped=rows.dropped)


def blend(corpus: TokenRows, rollouts: TokenRows, recipe: Mix) -> TokenRows:
    """Rows of both parts in the recipe's shares and order (`training.corpus.mix`; paper B.3 and B.4).

    Raises ValueError when a part that is to have a share has no rows.
    """
    first, second = (
        [MixRow(key=f"{row.trace_id}/{place}", bucket=row.bucket) for place, row in enumerate(part.rows)]
        for part in (corpus, rollouts)
    )
    parts = {True: corpus.rows, False: rollouts.rows}
    return TokenRows(
        rows=tuple(parts[one.is_corpus][one.index] for one in mix(first, second, recipe)),
        dropped=dict(Counter(corpus.dropped) + Counter(rollouts.dropped)),
    )


def make_episodes(recipe: Recipe, file: EpisodeFile, run: RunJobs, bench: RunContext) -> None:
    """A rejection's samples of each problem, else one episode a problem, by `run`; those in the file are not run again.

    Raises GuardStopError for a problem outside the train pool, ArenaError U3001..U3004 when the teacher is away.
    """
    phase, samples = ("sample", recipe.samples) if recipe.stage == "rejection" else ("teacher", 1)
    jobs = jobs_of(bench.problems, samples, recipe.seed)
    bench.require_train(jobs)
    report = bench.progress
    collect(jobs, file, run, None if report is None else lambda done, of: report(phase, done, of))


def stepwise_rows(lines: Sequence[EpisodeLine], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
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


def keep_successes(lines: Sequence[EpisodeLine], codec: Qwen3Codec, recipe: Recipe) -> TokenRows:
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
