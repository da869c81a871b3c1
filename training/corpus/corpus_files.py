"""A corpus as a folder: Parquet, dataset card, lineage, funnel. Written whole or not at all.

```
data/train.parquet   the rows, in the order of their trace ids: a hash, so any stretch is a fair sample
README.md            dataset card; `datasets.load_dataset(folder)` reads it
lineage.json         what it was made from and by; `content_hash(lineage)` is the corpus' identity
funnel.json          how many traces fell where
rejected.jsonl.zst   every trace left out, with its codes
report.html          the funnel as a page
```

The same rows, lineage and funnel give the same bytes with the pinned pyarrow and zstandard. The guard is asked
again of every row on its way into the file. A folder appears under its name when it is complete, and is never changed:
an existing one is refused. Rows and rejections are sorted on disk, so memory holds a row group and a run of the sort,
whatever the size of the corpus. What a killed writer leaves begins with `.NAME.part-`.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import struct
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from foundation.canonical import canonical_bytes
from foundation.durable_files import move_into_place
from foundation.errors import ArenaError
from harness.chat import ChatMessage, Message, chat_of, message_of
from training.corpus.appraisal import Guard
from training.corpus.disk import sorted_on_disk
from training.corpus.funnel import Funnel
from training.corpus.model import (
    CorpusRow,
    Lineage,
    Rebuilt,
    Rejection,
    Rewritten,
    Signals,
    Trace,
    TraceFacts,
    TraceSource,
)
from training.corpus.report import render_card, render_page

JSON = "json"

_FACT_HINTS = get_type_hints(TraceFacts)
_FACTS = tuple(field.name for field in msgspec.structs.fields(TraceFacts))
_LIST_FACTS = frozenset(name for name in _FACTS if get_origin(get_args(_FACT_HINTS[name])[0]) is tuple)
_SIGNALS = ("depth", "reformulations", "has_verification", "longest_repeat")
_ENCODE = msgspec.json.Encoder().encode


_CHAT = msgspec.json.Decoder(tuple[ChatMessage, ...])
_REBUILT, _REWRITTEN = msgspec.json.Decoder(Rebuilt), msgspec.json.Decoder(Rewritten)
_TEXTS = msgspec.json.Decoder(tuple[str, ...])


def _text(value: object) -> str | None:
    """JSON text; None for what is not known."""
    return None if value is None else _ENCODE(value).decode()


def _scalar(hint: object) -> type:
    """int, bool or str: what a fact is when it is known; a Literal is text."""
    known = get_args(hint)[0] if get_origin(hint) in (Union, types.UnionType) else hint
    return next((kind for kind in (int, bool) if known is kind), str)


def _fact(name: str) -> Callable[[CorpusRow], Any]:
    """How a fact is read: as it is, a list as JSON text."""
    read = attrgetter(f"trace.facts.{name}")
    return (lambda row: _text(read(row))) if name in _LIST_FACTS else read


_COLUMNS: tuple[tuple[str, type | str, bool, Callable[[CorpusRow], Any]], ...] = (
    ("trace_id", str, False, attrgetter("trace.trace_id")),
    ("rank", int, False, attrgetter("rank")),
    ("tokens", int, True, attrgetter("tokens")),
    *((name, JSON if name in _LIST_FACTS else _scalar(_FACT_HINTS[name]), True, _fact(name)) for name in _FACTS),
    ("source_kind", str, False, attrgetter("trace.source.kind")),
    ("source_place", str, False, attrgetter("trace.source.place")),
    ("source_sha256", str, False, attrgetter("trace.source.sha256")),
    ("is_verified", bool, False, attrgetter("trace.source.is_verified")),
    ("depth", int, False, attrgetter("signals.depth")),
    ("reformulations", int, False, attrgetter("signals.reformulations")),
    ("has_verification", bool, False, attrgetter("signals.has_verification")),
    ("longest_repeat", int, False, attrgetter("signals.longest_repeat")),
    ("shape", JSON, False, lambda row: _text(row.signals.shape)),
    ("missing", JSON, False, lambda row: _text(row.trace.missing)),
    ("provenance", str, False, attrgetter("trace.provenance")),
    ("rebuilt", JSON, True, lambda row: _text(row.trace.rebuilt)),
    ("rewritten", JSON, True, lambda row: _text(row.trace.rewritten)),
    ("query", str, False, attrgetter("trace.query")),
    ("tools", JSON, False, attrgetter("trace.tools")),
    ("messages", JSON, False, lambda row: chat_json(row.trace.messages)),
)


def columns_of(row: CorpusRow) -> dict[str, Any]:
    """The values of a row by column."""
    return {name: read(row) for name, _, _, read in _COLUMNS}


def row_of(values: Mapping[str, Any]) -> CorpusRow:
    """The row of a file's columns. Raises msgspec.ValidationError for values that no row has."""
    facts = {name: values[name] for name in _FACTS}
    for name in _LIST_FACTS:
        facts[name] = None if facts[name] is None else _TEXTS.decode(facts[name])
    trace = Trace(
        trace_id=values["trace_id"],
        source=TraceSource(
            kind=values["source_kind"],
            place=values["source_place"],
            sha256=values["source_sha256"],
            is_verified=values["is_verified"],
        ),
        messages=messages_of(values["messages"]),
        tools=values["tools"],
        query=values["query"],
        facts=msgspec.convert(facts, TraceFacts),
        missing=_TEXTS.decode(values["missing"]),
        rebuilt=_REBUILT.decode(values["rebuilt"]) if values["rebuilt"] else None,
        rewritten=_REWRITTEN.decode(values["rewritten"]) if values["rewritten"] else None,
    )
    signals = Signals(shape=_TEXTS.decode(values["shape"]), **{name: values[name] for name in _SIGNALS})
    return CorpusRow(trace=trace, signals=signals, tokens=values["tokens"], rank=values["rank"])


def chat_json(messages: Sequence[Message]) -> str:
    """Messages as OpenAI chat, JSON text."""
    return _ENCODE([chat_of(message) for message in messages]).decode()


def messages_of(text: str) -> tuple[Message, ...]:
    """The messages of `chat_json`. Raises msgspec.ValidationError for what is none."""
    return tuple(message_of(chat) for chat in _CHAT.decode(text))


DATA, CARD, LINEAGE, FUNNEL, REJECTED, PAGE = (
    "data/train.parquet",
    "README.md",
    "lineage.json",
    "funnel.json",
    "rejected.jsonl.zst",
    "report.html",
)

PART = ".part-"  # in the name of a folder that is not finished

_PLACE = struct.Struct(">QI")
T = TypeVar("T")

_GROUP_ROWS = 256
_ZSTD_LEVEL = 9
_DTYPE: dict[type | str, str] = {str: "string", int: "int64", bool: "bool", JSON: "string"}
_ARROW: dict[type | str, Any] = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), JSON: pa.string()}
_UNPACK = msgspec.msgpack.Decoder(CorpusRow)


def write_corpus(
    folder: Path,
    rows: Iterable[CorpusRow],
    *,
    lineage: Lineage,
    funnel: Funnel,
    rejected: Iterable[Rejection],
    guard: Guard,
) -> Lineage:
    """Write `folder`; the lineage as written, with `rows_sha256` filled in (what is given for it is not read).

    Raises ArenaError V2027 when the folder exists, V2099 when the
    guard rejects a row, V2027 when it can't be written.
    """
    if folder.exists():
        raise ArenaError("V2027", f"{folder} exists already; a corpus is never changed, choose another --out")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}{PART}"))
    except OSError as wrong:
        raise ArenaError("V2027", f"{folder}: {wrong.strerror}") from None
    try:
        digest, count = hashlib.sha256(), 0
        (partial / "data").mkdir()
        with tempfile.TemporaryFile(dir=partial) as spool, _Parquet(partial / DATA) as parquet:
            for row in _in_order(rows, spool):
                if codes := guard(row.trace):
                    raise ArenaError("V2099", f"{row.trace.source.place}: {', '.join(codes)}")
                digest.update(_line(row))
                parquet.add(row)
                count += 1
        written = msgspec.structs.replace(lineage, rows_sha256=digest.hexdigest())
        compressor = zstandard.ZstdCompressor(_ZSTD_LEVEL)
        with (partial / REJECTED).open("wb") as file, compressor.stream_writer(file) as stream:
            lines = ((_key(one.place, one.trace_id), msgspec.json.encode(one) + b"\n") for one in rejected)
            for _, line in sorted_on_disk(lines):
                stream.write(line)
        (partial / LINEAGE).write_bytes(canonical_bytes(written) + b"\n")
        (partial / FUNNEL).write_bytes(canonical_bytes(funnel) + b"\n")
        (partial / CARD).write_text(render_card(written, funnel, count, _features()), "utf-8")
        (partial / PAGE).write_text(render_page(written, funnel), "utf-8")
        partial.chmod(0o755)
        move_into_place(partial, folder)
    except (OSError, sqlite3.Error) as wrong:
        raise ArenaError("V2027", f"{folder}: {wrong}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return written


def read_lineage(folder: Path) -> Lineage:
    """The lineage of a corpus. Raises ArenaError V2027 when there is none that can be read."""
    return _read(folder / LINEAGE, Lineage)


def read_funnel(folder: Path) -> Funnel:
    """The funnel of a corpus. Raises ArenaError V2027 when there is none that can be read."""
    return _read(folder / FUNNEL, Funnel)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as wrong:
        raise ArenaError("V2027", f"{path}: {wrong}") from None


def read_rows(folder: Path) -> Iterator[CorpusRow]:
    """The rows of a corpus, in order. Raises ArenaError V2027 when they are not those its lineage names, at the end."""
    digest = hashlib.sha256()
    try:
        file = pq.ParquetFile(folder / DATA)
        for group in range(file.num_row_groups):
            for values in file.read_row_group(group).to_pylist():
                row = row_of(values)
                digest.update(_line(row))
                yield row
    except (OSError, pa.ArrowException, msgspec.ValidationError, KeyError) as wrong:
        raise ArenaError("V2027", f"{folder / DATA}: {wrong}") from None
    if digest.hexdigest() != read_lineage(folder).rows_sha256:
        raise ArenaError("V2027", f"{folder / DATA}: the rows are not those of the lineage")


def _in_order(rows: Iterable[CorpusRow], spool: IO[bytes]) -> Iterator[CorpusRow]:
    """The rows sorted by trace id and place, by way of a file."""

    def spooled() -> Iterator[tuple[bytes, bytes]]:
        offset = 0
        for row in rows:
            packed = msgspec.msgpack.encode(row)
            spool.write(packed)
            yield _key(row.trace.trace_id, row.trace.source.place), _PLACE.pack(offset, len(packed))
            offset += len(packed)

    for _, place in sorted_on_disk(spooled()):
        start, length = _PLACE.unpack(place)
        spool.seek(start)
        yield _UNPACK.decode(spool.read(length))


def _key(first: str, second: str) -> bytes:
    return f"{first}\0{second}".encode("utf-8", "surrogatepass")


def _line(row: CorpusRow) -> bytes:
    """What the hash of the rows is taken over: independent of Parquet and of any library's version."""
    return canonical_bytes(row) + b"\n"


def _features() -> list[tuple[str, str]]:
    """The columns by name, as the card of a data set names their types."""
    return [(name, _DTYPE[kind]) for name, kind, *_ in _COLUMNS]


class _Parquet:
    """One Parquet file while rows are put into it."""

    def __init__(self, path: Path) -> None:
        self._schema = pa.schema(
            [pa.field(name, _ARROW[kind], nullable=is_nullable) for name, kind, is_nullable, _ in _COLUMNS]
        )
        texts = [name for name, kind, *_ in _COLUMNS if kind == JSON or name == "query"]
        scalars = [name for name in self._schema.names if name not in texts]
        self._rows: list[dict[str, Any]] = []
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=scalars,
            write_statistics=scalars,
            store_schema=False,
        )

    def __enter__(self) -> _Parquet:
        return self

    def __exit__(self, *_: object) -> None:
        self._write_group()
        self._writer.close()

    def add(self, row: CorpusRow) -> None:
        """Add a row; a full group is written."""
        self._rows.append(columns_of(row))
        if len(self._rows) == _GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema), row_group_size=_GROUP_ROWS)
            self._rows = []
