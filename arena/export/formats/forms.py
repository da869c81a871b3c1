"""The other forms of a shard, each made from its Parquet file alone: same rows, same bytes.

`messages` is OpenAI chat, one JSON object a line, `{messages, tools, metadata}`, in `<shard>.jsonl.zst`: arguments are
text (objects where the export was asked for them), turns the model did not write have `weight` 0, and one `jq` filter
on `is_agentic`, `is_linear` and `is_model_written` leaves clean rows only. `datasets` is the same Parquet by pool, in
`data/<pool>-<shard>.parquet`, which the export's card declares as splits. `inspect` and `verifiers` are modules beside
this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from arena.export.formats.inspect import write_eval_log
from arena.export.formats.parquet import ParquetFile, read_rows
from arena.export.formats.verifiers import write_episodes
from arena.export.model import Format
from arena.export.row import TrajectoryFacts, ViewRow
from arena.export.writing.lines import LinesFile
from harness.chat import ChatMessage
from problems.model import POOLS

Written = Sequence[tuple[Path, int]]  # files, and how many rows are in each
UNREAD = "_text"  # of arguments as objects: the key of text that is no object
_ENCODER = msgspec.json.Encoder()


class ChatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `messages`."""

    messages: tuple[ChatMessage, ...]
    tools: msgspec.Raw
    metadata: TrajectoryFacts


def convert(
    form: Format, rows: Path, folder: Path, shard_number: int, arguments: Literal["text", "object"] = "text"
) -> Written:
    """Write a form of the Parquet file `rows` into the form's own `folder`. Raises ValueError for `jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{shard_number:06d}"
    match form:
        case "messages":
            return _write_messages(rows, folder / f"{name}.jsonl.zst", arguments)
        case "datasets":
            return _write_pools(rows, folder / "data", name)
        case "inspect":
            return [(folder / f"{name}.eval", write_eval_log(read_rows(rows), folder / f"{name}.eval", name))]
        case "verifiers":
            path = folder / name / "traces.jsonl"
            return [(path, write_episodes(read_rows(rows), path))]
    raise ValueError(f"{form} is not made from Parquet")


def _write_messages(rows: Path, path: Path, arguments: Literal["text", "object"]) -> Written:
    with LinesFile(path) as lines:
        for row in read_rows(rows):
            lines.write([_ENCODER.encode(_with_objects(chat_row(row)) if arguments == "object" else chat_row(row))])
    return [(path, lines.rows)]


def chat_row(row: ViewRow) -> ChatRow:
    """A row as a line of `messages`."""
    return ChatRow(messages=row.conversation.messages, tools=msgspec.Raw(row.tools.encode()), metadata=row.facts)


def _with_objects(line: ChatRow) -> dict[str, Any]:
    """The line with each call's arguments as an object."""
    messages = msgspec.to_builtins(line.messages)
    for message in messages:
        for key in ("tool_calls", "echoed_tool_calls", "agent_tool_calls"):
            for call in message.get(key, ()):
                call["function"]["arguments"] = _object_of(call["function"]["arguments"])
    return {"messages": messages, "tools": line.tools, "metadata": line.metadata}


def _object_of(arguments: str) -> dict[str, Any]:
    """Arguments as the object they say; text that says none under `UNREAD`."""
    try:
        said = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {UNREAD: arguments}


def _write_pools(rows: Path, folder: Path, name: str) -> Written:
    files: dict[str, ParquetFile] = {}
    for row in read_rows(rows):
        pool = row.facts.pool
        if pool not in files:
            files[pool] = ParquetFile(folder / f"{pool}-{name}.parquet")
        files[pool].add(row)
    for file in files.values():
        file.close()
    return [(files[pool].path, files[pool].rows) for pool in POOLS if pool in files]
