"""Reads a verified export as traces, one shard at a time.

Every trajectory of the export comes out once, in the order of the log, as a trace or as a quarantined row; the
same from whichever file it is read. The Parquet view is read where the export has one, for it takes a quarter of the
time (README), else the log itself. A shard is a picklable value that can be read in any process, and again: its memory
is bounded by a row group of the view or a line of the log. Nothing here decides what is worth training on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from arena.export.conversation import Conversation, ExecutedCall, Turn
from arena.export.elsewhere import ExportFiles
from arena.export.reading import shard_trajectories
from arena.export.row import row_of, tools_of
from arena.export.writing.shards import LOG, SCRUBBED, VIEWS, shard_name
from foundation.errors import ArenaError
from harness.chat import ChatMessage
from judge.verdict import Verdict
from training.corpus.model import ExecutedTrace, Quarantined, Trace
from training.corpus.sources.arena_rows import ROW_FACTS, row_place, trace_of_row
from training.corpus.sources.log_index import LogIndex, index_shards

if TYPE_CHECKING:
    from training.corpus.sources.verified import Export

PARQUET = "parquet"
_MESSAGES, _CALLS = tuple[ChatMessage, ...], tuple[ExecutedCall, ...]
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "messages": msgspec.json.Decoder(_MESSAGES),
    "other_messages": msgspec.json.Decoder(tuple[ChatMessage, ...]),
    "completions": msgspec.json.Decoder(tuple[Turn, ...]),
    "calls": msgspec.json.Decoder(_CALLS),
}
_COLUMNS = [*ROW_FACTS, *_DECODERS, "prompt_length", "tools", "tools_sha256"]


class ViewShard(msgspec.Struct, frozen=True, kw_only=True):
    """One row group of the Parquet view. Calling it reads it."""

    files: ExportFiles
    name: str
    group: int
    is_verified: bool
    keeps_calls: bool = False  # its traces are `ExecutedTrace`

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order."""
        import pyarrow.parquet as pq

        with self.files.here() as folder, pq.ParquetFile(folder / VIEWS / PARQUET / self.name) as file:
            table = file.read_row_group(self.group, columns=_COLUMNS, use_threads=False)
        plain = zip(*(table.column(name).to_pylist() for name in ROW_FACTS), strict=True)
        told = zip(*(_conversations(name, table.column(name)) for name in _DECODERS), strict=True)
        lengths, tools = table.column("prompt_length").to_pylist(), _tools(table)
        for values, parts, length, offered in zip(plain, told, lengths, tools, strict=True):
            facts = dict(zip(ROW_FACTS, values, strict=True))
            talk = Conversation(
                **dict(zip(_DECODERS, parts, strict=True)),
                prompt_length=length,
                is_linear=facts["is_linear"],
                is_model_written=facts["is_model_written"],
            )
            yield _converted(facts, talk, offered, is_verified=self.is_verified, keeps_calls=self.keeps_calls)


class LogShard(msgspec.Struct, frozen=True, kw_only=True):
    """One shard of the log, with what other rows of the export say about its own. Calling it reads it."""

    files: ExportFiles
    number: int
    index: LogIndex
    is_verified: bool
    keeps_calls: bool = False  # its traces are `ExecutedTrace`

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order. Raises ArenaError V2050 for a file that changed since it was verified."""
        with self.files.here() as folder:
            rows = shard_trajectories(folder, self.number, lambda _: (0, None), self.index.problem)
            for trajectory in rows:
                row, judged = row_of(trajectory), trajectory.verdict  # a scrubbed trajectory carries its own
                coefficient_e4 = (
                    judged.coefficient_e4
                    if isinstance(judged, Verdict)
                    else self.index.coefficient_e4(trajectory.evaluation.body_sha256)
                )
                values = {name: getattr(row.facts, name) for name in ROW_FACTS} | {"coefficient_e4": coefficient_e4}
                yield _converted(
                    values, row.conversation, row.tools, is_verified=self.is_verified, keeps_calls=self.keeps_calls
                )


def export_shards(export: Export, *, use_log: bool = False) -> tuple[ViewShard | LogShard, ...]:
    """An export in pieces, in the order of its log. `use_log`: from the log even where there is a view.

    Raises ArenaError V2050 for a log that can't be read.
    """
    import pyarrow.parquet as pq

    folder, named = Path(export.folder), {file.path for file in export.manifest.files}
    shards = range(sum(path.startswith(f"{LOG}/") for path in named))
    request = export.manifest.request
    if use_log or PARQUET not in request.forms:
        return tuple(
            LogShard(
                files=export.files(f"{LOG}/{shard_name(number)}", f"{SCRUBBED}/{shard_name(number)}"),
                number=number,
                index=index,
                is_verified=export.is_verified,
            )
            for number, index in enumerate(index_shards(folder, len(shards)))
        )
    names = [shard_name(number).removesuffix(".jsonl.zst") + ".parquet" for number in shards]
    return tuple(
        ViewShard(
            files=export.files(f"{VIEWS}/{PARQUET}/{name}"), name=name, group=group, is_verified=export.is_verified
        )
        for name in names
        if f"{VIEWS}/{PARQUET}/{name}" in named  # a shard of stubs has no view
        for group in range(pq.read_metadata(folder / VIEWS / PARQUET / name).num_row_groups)
    )


def _conversations(name: str, column: Any) -> Iterator[Any]:
    """The values of a column that holds a part of the conversation: JSON text, or nested."""
    import pyarrow as pa

    from arena.export.formats.parquet import values_of

    if pa.types.is_nested(column.type):
        kind = _MESSAGES if name == "messages" else _CALLS
        return (msgspec.convert(value, kind) for chunk in column.chunks for value in values_of(chunk))
    return (_DECODERS[name].decode(value.as_buffer()) for value in column)


def _tools(table: Any) -> list[str]:
    """The tools of each row as they stand in the log's views: in nested form they are those the record names."""
    import pyarrow as pa

    if not pa.types.is_nested(table.column("tools").type):
        texts: list[str] = table.column("tools").to_pylist()
        return texts
    named = zip(table.column("tool_profile").to_pylist(), table.column("tools_sha256").to_pylist(), strict=True)
    return [tools_of(profile, sha256) for profile, sha256 in named]


def _converted(
    facts: Mapping[str, Any], talk: Conversation, tools: str, *, is_verified: bool, keeps_calls: bool
) -> Trace | Quarantined:
    try:
        trace = trace_of_row(facts, talk, tools, is_verified=is_verified)
    except ArenaError as error:
        return Quarantined(place=row_place(facts), code=error.failure.code, detail=error.failure.detail)
    if not keeps_calls:
        return trace
    results = (call.result if call.message is None else talk.messages[call.message].content for call in talk.calls)
    executed = tuple((call.name, call.arguments, result) for call, result in zip(talk.calls, results, strict=True))
    return ExecutedTrace(executed=executed, **{name: getattr(trace, name) for name in Trace.__struct_fields__})
