"""Parquet: one row a trajectory, a typed column for every fact, the conversation nested. `<shard>.parquet`.

It is the view that every other form is made from. Equal rows give equal bytes with the pinned pyarrow, however they
were handed over: fixed writer options, no clock, row groups that end by count and size of the rows alone. Arguments
and a tool's parameters stay JSON text, since Arrow would merge the keys of different tools and fill them with nulls. At
most two row groups are held: one fills while the one before is compressed on a thread of its own.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from arena.export.conversation import Conversation, ExecutedCall, Turn
from arena.export.row import TrajectoryFacts, ViewRow, tools_of
from harness.chat import ChatMessage
from judge.verdict import Opinion

_GROUP_ROWS = 256
_GROUP_CHARS = 8 << 20
_PAGE_BYTES = 64 << 10  # pages of a megabyte, the default, take twice the time to compress and come out no smaller
_ZSTD_LEVEL = 1
_FACTS = tuple(field.name for field in msgspec.structs.fields(TrajectoryFacts))
_LISTS_OF_MESSAGE = ("tool_calls", "echoed_tool_calls", "agent_tool_calls")
_ENCODER = msgspec.json.Encoder()

_TEXT, _NUMBER = pa.string(), pa.int64()
_ARROW: dict[object, Any] = {str: _TEXT, int: _NUMBER, bool: pa.bool_()}
_FUNCTION = pa.struct([("name", _TEXT), ("arguments", _TEXT)])
_CALLS = pa.list_(pa.struct([("id", _TEXT), ("type", _TEXT), ("function", _FUNCTION)]))
_MESSAGE = [("role", _TEXT), ("content", _TEXT), ("reasoning_content", _TEXT), ("tool_calls", _CALLS)]
_MESSAGE += [("tool_call_id", _TEXT), ("origin", _TEXT), ("weight", _NUMBER)]
_MESSAGE += [("echoed_tool_calls", _CALLS), ("agent_tool_calls", _CALLS)]
_TOOL = pa.struct([("name", _TEXT), ("description", _TEXT), ("parameters", _TEXT)])
_CALL = [("index", _NUMBER), ("step", _NUMBER), ("name", _TEXT), ("arguments", _TEXT), ("emitter", _TEXT)]
_CALL += [("call_id", _TEXT), ("message", _NUMBER), ("result", _TEXT), ("failure", _TEXT)]
_CALL += [("surfaced", pa.list_(pa.struct([("product_id", _TEXT), ("rank", _NUMBER)])))]
_CALL += [("ignored_parameters", pa.list_(_TEXT))]
_TALK: dict[str, Any] = {
    "prompt_length": _NUMBER,
    "messages": pa.list_(pa.struct(_MESSAGE)),
    "tools": pa.list_(pa.struct([("type", _TEXT), ("function", _TOOL)])),
    "completions": _TEXT,
    "other_messages": _TEXT,
    "calls": pa.list_(pa.struct(_CALL)),
    "opinions": _TEXT,
}  # in the order of the columns; what is text among them, the number aside, is JSON
_JSON: dict[str, msgspec.json.Decoder[Any]] = {
    "completions": msgspec.json.Decoder(tuple[Turn, ...]),
    "other_messages": msgspec.json.Decoder(tuple[ChatMessage, ...]),
    "opinions": msgspec.json.Decoder(tuple[Opinion, ...]),
}


@functools.cache
def schema() -> Any:
    """The Arrow schema: facts by their Python types, then the conversation.

    Facts that are a str or Literal are text, `X | None` is nullable.
    """
    hints = get_type_hints(TrajectoryFacts)
    fields = []
    for name in _FACTS:
        is_nullable = get_origin(hints[name]) in (Union, types.UnionType)
        kind = get_args(hints[name])[0] if is_nullable else hints[name]
        fields.append(pa.field(name, _ARROW.get(kind, _TEXT), nullable=is_nullable))
    return pa.schema([*fields, *(pa.field(name, kind, nullable=False) for name, kind in _TALK.items())])


class ParquetFile:
    """Rows into one Parquet file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.rows = path, 0
        self._columns: list[list[object]] = [[] for _ in schema().names]
        self._held_chars = 0
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None
        self._writer = pq.ParquetWriter(
            path,
            schema(),
            version="2.6",
            data_page_version="1.0",
            data_page_size=_PAGE_BYTES,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=list(_FACTS),
            write_statistics=[name for name in (*_FACTS, "prompt_length") if name != "query"],
            store_schema=False,
        )

    def add(self, row: ViewRow) -> None:
        """Add one row; a full group is written."""
        talk = row.conversation
        texts = [_ENCODER.encode(one).decode() for one in (talk.completions, talk.other_messages, row.opinions)]
        self._held_chars += sum(map(len, texts)) + sum(len(one.content) for one in talk.messages)
        self._held_chars += sum(len(call.arguments) + len(call.result or "") for call in talk.calls)
        facts = (*msgspec.structs.astuple(row.facts), talk.prompt_length)
        parts = (_plain_messages(talk.messages), _plain_tools(row.tools), texts[0], texts[1], _plain_calls(talk.calls))
        for column, value in zip(self._columns, (*facts, *parts, texts[2]), strict=True):
            column.append(value)
        self.rows += 1
        if len(self._columns[0]) >= _GROUP_ROWS or self._held_chars >= _GROUP_CHARS:
            self._write_group()

    def close(self) -> None:
        """Complete the file."""
        if self._columns[0]:
            self._write_group()
        self._wait()
        self._thread.shutdown()
        self._writer.close()

    def _write_group(self) -> None:
        """Hand the rows so far to the thread, once it is done with the group before."""
        self._wait()
        self._writing = self._thread.submit(self._write, self._columns)
        self._columns = [[] for _ in schema().names]
        self._held_chars = 0

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, columns: Sequence[Sequence[object]]) -> None:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema(), strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=schema()), row_group_size=_GROUP_ROWS)


def read_rows(path: Path, group: int | None = None) -> Iterator[ViewRow]:
    """The rows of a file that `ParquetFile` wrote, a row group at a time; of one row group where it is given."""
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups) if group is None else (group,):
            table = file.read_row_group(number, use_threads=False)
            columns = {
                name: [value for chunk in table.column(name).chunks for value in values_of(chunk)]
                for name in table.column_names
            }
            for place in range(table.num_rows):
                yield _row({name: values[place] for name, values in columns.items()})


def values_of(column: Any) -> list[Any]:
    """The plain values of an Arrow array, nested or not; fields that are null are left out."""
    kind = column.type
    if pa.types.is_list(kind):
        ends, flat = column.offsets.to_pylist(), values_of(column.flatten())
        base = ends[0] if ends else 0
        return [flat[start - base : end - base] for start, end in pairwise(ends)]
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = zip(*map(values_of, column.flatten()), strict=True)
        return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in fields]
    values: list[Any] = column.to_pylist()
    return values


def _row(values: dict[str, Any]) -> ViewRow:
    told = {name: decoder.decode(values[name]) for name, decoder in _JSON.items()}
    return ViewRow(
        facts=msgspec.convert({name: values[name] for name in _FACTS}, TrajectoryFacts),
        conversation=Conversation(
            messages=msgspec.convert(values["messages"], tuple[ChatMessage, ...]),
            other_messages=told["other_messages"],
            completions=told["completions"],
            calls=msgspec.convert(values["calls"], tuple[ExecutedCall, ...]),
            prompt_length=values["prompt_length"],
            is_linear=values["is_linear"],
            is_model_written=values["is_model_written"],
        ),
        tools=tools_of(values["tool_profile"], values["tools_sha256"]),
        opinions=told["opinions"],
    )


def _plain_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = msgspec.to_builtins(messages)
    for message in plain:
        for name in _LISTS_OF_MESSAGE:
            message.setdefault(name, [])
    return plain


def _plain_calls(calls: Sequence[ExecutedCall]) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = msgspec.to_builtins(calls)
    for call in plain:
        call.setdefault("surfaced", [])
        call.setdefault("ignored_parameters", [])
    return plain


@functools.lru_cache(maxsize=64)  # as many as `tools_of` remembers
def _plain_tools(tools: str) -> list[dict[str, Any]]:
    """A `tools` array with parameters as text. Equal texts give one list, which nobody may change."""
    plain: list[dict[str, Any]] = msgspec.json.decode(tools)
    for tool in plain:
        function = tool["function"]
        tool["function"] = function | {"parameters": msgspec.json.encode(function.get("parameters", {})).decode()}
    return plain
