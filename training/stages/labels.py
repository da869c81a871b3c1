"""What KTO learns from: episodes as rows with their labels (paper section 6 stage 4, B.5).

An episode that was sampled token by token is learnt as it was sampled, malformed calls and cut turns too; only
one of an endpoint without tokens is rendered from its messages. An episode that failed by a fault of ours has no label
and is left out; what can't be a row, and repetitions, are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from training.model import ChatCodec, TokenRow
from training.recipe import Recipe
from training.rollouts.episode_file import EpisodeLine
from training.rollouts.token_rows import rollout_id, rows_of_rollouts, rows_of_traces
from training.stages.teacher import trace_of


class LabelledRow(msgspec.Struct, frozen=True, kw_only=True):
    """A token row, and whether such a trace is wanted."""

    row: TokenRow
    is_wanted: bool


def labelled_rows(
    lines: Sequence[EpisodeLine], codec: ChatCodec, recipe: Recipe
) -> tuple[list[LabelledRow], dict[str, int]]:
    """Rows of the scored episodes, wanted where they fully succeeded, and what was left out, by reason.

    Raises GuardStopError when too many masks are inexact.
    """
    scored = [line for line in lines if line.result.is_success is not None]
    rollouts = [line.rollout for line in scored if line.rollout is not None]
    traces = [trace_of(line) for line in scored if line.rollout is None]
    wanted = {rollout_id(rollout): bool(rollout.result.is_success) for rollout in rollouts}
    wanted |= {trace.trace_id: bool(trace.facts.is_success) for trace in traces}
    found = [
        rows_of_rollouts(rollouts, codec, recipe),
        rows_of_traces(list({trace.trace_id: trace for trace in traces}.values()), codec, recipe),
    ]
    rows = [LabelledRow(row=row, is_wanted=wanted[row.trace_id]) for part in found for row in part.rows]
    left_out = Counter(unscored=len(lines) - len(scored), repeated=len(scored) - len(wanted))
    for part in found:
        left_out.update(part.dropped)
    return rows, dict(left_out)
