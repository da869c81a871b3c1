"""Rows of a corpus whose thoughts were written afterwards, held against the records that they are of, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from arena.chain.keys import verify
from training.agents import distilled_prompt
from training.corpus.exports import export_shards, open_export
from training.corpus.model import CorpusRow, ExecutedTrace
from training.rewriting.writing import with_calls


class LiftedRows(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs could be lifted, how many rows and calls were compared, and how many of these differ."""

    driven: int  # successful runs of which code made the calls
    rows: int
    calls: int
    changed_calls: int  # another name, argument or result, or another place in the order
    changed_rows: int  # another request, answer, number of calls or system prompt, or a turn without a thought


def compare(export: Path, rows: Iterable[CorpusRow]) -> LiftedRows:
    """Every rewritten row against its record in `export`, by the place it names."""
    driven = {
        row.source.place: row
        for shard in export_shards(open_export(export, verify))
        for row in with_calls(shard)()
        if isinstance(row, ExecutedTrace) and row.facts.is_agentic is False and row.facts.is_success
    }
    compared = calls = changed_calls = changed_rows = 0
    for trace in (row.trace for row in rows if row.trace.provenance == "rewritten"):
        record = driven[trace.source.place]
        results = {message.call_id: message.content for message in trace.messages if message.role == "tool"}
        turns = [message for message in trace.messages if message.role == "assistant"]
        made = [(call.name, call.arguments, results[call.id]) for turn in turns for call in turn.calls]
        compared, calls = compared + 1, calls + len(record.executed)
        changed_calls += sum(one != other for one, other in zip(made, record.executed, strict=False))
        changed_calls += abs(len(made) - len(record.executed))
        changed_rows += not (
            len(turns) == len(made) == len(record.executed)
            and trace.query == record.query
            and trace.messages[1].content == record.query
            and trace.messages[0].content == distilled_prompt()
            and trace.facts.recommended == record.facts.recommended
            and all(turn.reasoning and not turn.content for turn in turns)
        )
    return LiftedRows(
        driven=len(driven), rows=compared, calls=calls, changed_calls=changed_calls, changed_rows=changed_rows
    )
