"""Parquet: one row a trajectory, a typed column for every fact, the conversation as nested columns. `<shard>.parquet`.

Equal rows give equal bytes with the pinned pyarrow, however they were handed over: fixed writer options, no
clock, row groups that end by count and size of the rows alone. Arguments are text, since Arrow would merge the keys of
different tools' arguments and fill them with nulls (`nested`). At most two row groups are held: one fills while the one
before is compressed on a thread of its own. Columns are those that `pyarrow.array` makes of the same values, put
together from their buffers: that function looks first whether it was given something of pandas, and imports it where it
is installed, a third of a second and forty megabytes in each process that writes a view.
"""

from __future__ import annotations

import types
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from arena.export.facts import EpisodeFacts, TrajectoryFacts, ViewContext
from arena.export.formats import nested
from arena.export.model import Manifest, ShardFile, Trajectory
from arena.export.row import ViewRow, row_of
from arena.export.writing.shards import describe

_GROUP_ROWS = 256
_GROUP_BYTES = 8 << 20
_PAGE_BYTES = 64 << 10  # pages of a megabyte, the default, take twice the time to compress and come out no smaller
_ZSTD_LEVEL = 1
_FACTS = tuple(field.name for field in msgspec.structs.fields(TrajectoryFacts))
_JSON_COLUMNS = ("messages", "tools", "completions", "other_messages", "calls", "opinions")  # up to version 2
_EPISODE = tuple(field.name for field in msgspec.structs.fields(EpisodeFacts))
_ENCODER = msgspec.json.Encoder()
_ARROW: dict[object, Any] = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


def text_column(values: Sequence[str | None]) -> Any:
    """A `string` array. Raises UnicodeEncodeError for text that has no UTF-8."""
    return _of_bytes([b"" if value is None else value.encode() for value in values], _present(values))


def utf8_column(values: Sequence[bytes]) -> Any:
    """A `string` array of text that is UTF-8 already."""
    return _of_bytes(values, None)


def integer_column(values: Sequence[int | None]) -> Any:
    """An `int64` array. Raises OverflowError for a number that is none."""
    numbers = array("q", [value or 0 for value in values])
    return pa.Array.from_buffers(pa.int64(), len(values), [_present(values), pa.py_buffer(numbers)])


def truth_column(values: Sequence[bool | None]) -> Any:
    """A `bool` array."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [_present(values), _bits(values)])


def _of_bytes(parts: Sequence[bytes], present: Any) -> Any:
    ends = array("i", accumulate(map(len, parts), initial=0))
    buffers = [present, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(parts), buffers)


def _present(values: Sequence[object]) -> Any:
    """The validity bitmap, None where every value is there."""
    return _bits([value is not None for value in values]) if None in values else None


def _bits(values: Sequence[bool | None]) -> Any:
    """A bitmap, the first value in the lowest bit."""
    digits = "".join("1" if value else "0" for value in reversed(values))
    return pa.py_buffer(int(digits or "0", 2).to_bytes((len(values) + 7) // 8, "little"))


def nested_column(values: Sequence[Any], kind: Any) -> Any:
    """An array of plain values: lists, which are never null, objects whose fields may be, and scalars."""
    if pa.types.is_list(kind):
        lists = [value or () for value in values]
        ends = array("i", accumulate(map(len, lists), initial=0))
        inner = nested_column([one for some in lists for one in some], kind.value_type)
        return pa.Array.from_buffers(kind, len(lists), [None, pa.py_buffer(ends)], children=[inner])
    if pa.types.is_struct(kind):
        fields = [nested_column([value.get(field.name) for value in values], field.type) for field in kind]
        return pa.Array.from_buffers(kind, len(values), [None], children=fields)
    return _MAKERS[kind](values)


def _repeated_column(values: Sequence[Any], kind: Any) -> Any:
    """The same array of values that are few objects, many times each: an object is made a column once."""
    few = {id(value): value for value in values}
    place_of = {name: place for place, name in enumerate(few)}
    made = nested_column(list(few.values()), kind)
    # not `take`: it imports pyarrow.compute, and takes seven times as long
    return pa.concat_arrays([made.slice(place_of[id(value)], 1) for value in values])


_MAKERS: dict[Any, Callable[[Any], Any]] = {
    pa.string(): text_column,
    pa.int64(): integer_column,
    pa.bool_(): truth_column,
}


class ParquetFile:
    """Rows into one Parquet file."""

    def __init__(self, path: Path, context: ViewContext) -> None:
        """The export's version says which columns there are, and of which types."""
        version = context.version
        self._context = context
        self.path, self.rows = path, 0
        self._schema = schema(version)
        names = self._schema.names
        self._columns: list[list[object]] = [[] for _ in names]
        self._held_bytes = 0
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            data_page_version="1.0",
            data_page_size=_PAGE_BYTES,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=[name for name in names if name in (*_FACTS, *_EPISODE)],
            write_statistics=[name for name in names if name not in (*_JSON_COLUMNS, "query")],
            store_schema=False,
        )

    def add(self, row: ViewRow) -> None:
        """Add one row; a full group is written."""
        talk = row.conversation
        parts: dict[str, Any] = {
            "completions": _ENCODER.encode(talk.completions),
            "other_messages": _ENCODER.encode(talk.other_messages),
            "opinions": _ENCODER.encode(row.opinions),
        }
        texts = {"messages": _ENCODER.encode(talk.messages), "calls": _ENCODER.encode(talk.calls)}
        texts["tools"] = row.tools.encode()
        self._held_bytes += sum(map(len, (*parts.values(), *texts.values())))
        if self._context.version > 2:
            as_objects = self._context.has_argument_objects
            parts["messages"] = nested.plain_messages(talk.messages, as_objects=as_objects)
            parts["calls"] = nested.plain_calls(talk.calls, as_objects=as_objects)
            parts["tools"] = nested.plain_tools(row.tools)
        else:
            parts |= texts
        episode = () if row.episode is None else msgspec.structs.astuple(row.episode)
        told = (parts[name] for name in _JSON_COLUMNS)
        values = (*msgspec.structs.astuple(row.facts), *episode, talk.prompt_length, *told)
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self.rows += 1
        if len(self._columns[0]) >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
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
        self._columns = [[] for _ in self._schema.names]
        self._held_bytes = 0

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, columns: Sequence[Sequence[Any]]) -> None:
        arrays = [
            _repeated_column(column, field.type)
            if field.name == "tools" and pa.types.is_nested(field.type)
            else nested_column(column, field.type)
            if pa.types.is_nested(field.type)
            else utf8_column(column)
            if field.name in _JSON_COLUMNS
            else _MAKERS[field.type](column)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=_GROUP_ROWS)


class ParquetWriter:
    """A `ViewWriter` of one Parquet file a shard."""

    def __init__(self, folder: Path, shard_number: int, context: ViewContext) -> None:
        self._folder, self._context = folder, context
        self._file = ParquetFile(folder / f"{shard_number:06d}.parquet", context)

    def write(self, rows: Sequence[Trajectory]) -> None:
        """Add trajectories."""
        for trajectory in rows:
            self._file.add(row_of(trajectory, self._context))

    def finish(self) -> tuple[ShardFile, ...]:
        """Complete the file."""
        self._file.close()
        return (describe(self._folder, self._file.path, self._file.rows),)


def open_writer(folder: Path, shard_number: int, context: ViewContext) -> ParquetWriter:
    """A writer of one shard."""
    return ParquetWriter(folder, shard_number, context)


def finish_export(folder: Path, manifest: Manifest) -> tuple[ShardFile, ...]:
    """Nothing: the files speak for themselves."""
    return ()


def schema(version: int) -> Any:
    """The Arrow schema of an export's version: facts by their Python types (from version 2 on, those of the episode,
    too), `prompt_length`, then the conversation: from version 3 on `messages`, `tools` and `calls` nested, the others
    (before version 3 all) as JSON text.

    Facts that are a str or Literal are text, `X | None` is nullable.
    """
    hints = get_type_hints(TrajectoryFacts) | get_type_hints(EpisodeFacts)
    fields = []
    for name in (*_FACTS, *(_EPISODE if version > 1 else ())):
        is_nullable = get_origin(hints[name]) in (Union, types.UnionType)
        kind = get_args(hints[name])[0] if is_nullable else hints[name]
        fields.append(pa.field(name, _ARROW.get(kind, pa.string()), nullable=is_nullable))
    fields.append(pa.field("prompt_length", pa.int64(), nullable=False))
    kinds = nested.TYPES if version > 2 else {}
    fields += [pa.field(name, kinds.get(name, pa.string()), nullable=False) for name in _JSON_COLUMNS]
    return pa.schema(fields)


def column_types(version: int) -> dict[str, Any]:
    """Arrow types by column."""
    return {field.name: field.type for field in schema(version)}
