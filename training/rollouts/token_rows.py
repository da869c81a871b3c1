"""Token rows for the supervised stages: from traces, from rollouts as they were sampled, and step by step.

A rollout's row is its tokens, unchanged; a trace's row is rendered once and its mask is checked. What can't be
a row is counted by its reason, never cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from foundation.canonical import text_hash
from problems.model import Bucket
from training.corpus.mix import Mix, MixRow, mix
from training.corpus.model import Trace
from training.guards import require_exact_masks
from training.model import ChatCodec, Rollout, TokenRow, UnfitRowError
from training.models.render import mask_defect, masked_runs, run_defect
from training.recipe import Recipe


class TokenRows(msgspec.Struct, frozen=True, kw_only=True):
    """Token rows with their buckets, and what was left out, by reason."""

    rows: tuple[TokenRow, ...]
    buckets: tuple[Bucket | None, ...]
    dropped: dict[str, int]


def rows_of_traces(traces: Sequence[Trace], codec: ChatCodec, recipe: Recipe) -> TokenRows:
    """Render traces. Raises GuardStopError when too many masks are inexact."""
    rows: list[TokenRow] = []
    buckets: list[Bucket | None] = []
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
            rows.append(row)
            buckets.append(trace.facts.bucket)
    require_exact_masks(len(rows) + len(defects), defects, recipe.guards)
    return TokenRows(rows=tuple(rows), buckets=tuple(buckets), dropped={"unfit": unfit, "mask": len(defects)})


def rows_of_rollouts(rollouts: Sequence[Rollout], codec: ChatCodec, recipe: Recipe) -> TokenRows:
    """The tokens of rollouts as rows. Raises GuardStopError when too many masks are inexact."""
    rows: list[TokenRow] = []
    buckets: list[Bucket | None] = []
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
                )
            )
            buckets.append(rollout.result.bucket)
    require_exact_masks(len(rollouts), ["a turn holds the template's tokens"] * dropped["mask"], recipe.guards)
    return TokenRows(rows=tuple(rows), buckets=tuple(buckets), dropped=dict(dropped))


def rollout_id(rollout: Rollout) -> str:
    """Identity of a rollout's row: its recorded episode, and which sample of its problem it is."""
    return text_hash(f"{rollout.result.body_sha256}/{rollout.result.sample}")


def by_step(rows: TokenRows) -> TokenRows:
    """One row an assistant turn: everything before it as prompt, that turn alone to learn (paper B.4)."""
    steps: list[TokenRow] = []
    buckets: list[Bucket | None] = []
    for row, bucket in zip(rows.rows, rows.buckets, strict=True):
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
                )
            )
            buckets.append(bucket)
    return TokenRows(rows=tuple(steps), buckets=tuple(buckets), dropped=rows.dropped)


def blend(corpus: TokenRows, rollouts: TokenRows, recipe: Mix) -> TokenRows:
    """Rows of both parts in the recipe's shares and order (`training.corpus.mix`; paper B.3 and B.4).

    Raises ValueError when a part that is to have a share has no rows.
    """
    drawn = mix(_keyed(corpus), _keyed(rollouts), recipe)
    parts = {True: corpus, False: rollouts}
    return TokenRows(
        rows=tuple(parts[one.is_corpus].rows[one.index] for one in drawn),
        buckets=tuple(parts[one.is_corpus].buckets[one.index] for one in drawn),
        dropped=dict(Counter(corpus.dropped) + Counter(rollouts.dropped)),
    )


def _keyed(rows: TokenRows) -> list[MixRow]:
    return [
        MixRow(key=f"{row.trace_id}/{place}", bucket=bucket)
        for place, (row, bucket) in enumerate(zip(rows.rows, rows.buckets, strict=True))
    ]
