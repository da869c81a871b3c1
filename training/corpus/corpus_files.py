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
whatever the size of the corpus.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from arena.export.forms import arrow_type
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from harness.chat import ChatMessage, chat_of, message_of
from training.corpus.duplicates import Spool, sorted_on_disk
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
from training.corpus.report import Funnel, render_card, render_page
from training.corpus.selection import Guard

DATA, CARD, LINEAGE, FUNNEL, REJECTED, PAGE = (
    "data/train.parquet",
    "README.md",
    "lineage.json",
    "funnel.json",
    "rejected.jsonl.zst",
    "report.html",
)
T = TypeVar("T")

_GROUP_ROWS = 256
_ZSTD_LEVEL = 9
_PLACE = struct.Struct(">Q")
_ENCODE = msgspec.json.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder(CorpusRow)
_CHAT = msgspec.json.Decoder(tuple[ChatMessage, ...])
_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_JSON: dict[str, msgspec.json.Decoder[Any]] = {  # columns of JSON text
    "recommended": _TEXTS,
    "surfaced": _TEXTS,
    "shape": _TEXTS,
    "missing": _TEXTS,
    "rebuilt": msgspec.json.Decoder(Rebuilt),
    "rewritten": msgspec.json.Decoder(Rewritten),
}


def _fields(kind: type[msgspec.Struct], *, nullable: bool) -> list[Any]:
    """A column for each field, text for lists."""
    hints = get_type_hints(kind).items()
    return [
        pa.field(name, pa.string() if name in _JSON else arrow_type(hint), nullable=nullable) for name, hint in hints
    ]


def _texts(*names: str, nullable: bool = False) -> list[Any]:
    return [pa.field(name, pa.string(), nullable=nullable) for name in names]


_SCHEMA = pa.schema(
    [
        *_texts("trace_id"),
        pa.field("rank", pa.int64(), nullable=False),
        pa.field("tokens", pa.int64()),
        *_fields(TraceFacts, nullable=True),
        *_texts("source_kind", "source_place", "source_sha256"),
        pa.field("is_verified", pa.bool_(), nullable=False),
        *_fields(Signals, nullable=False),
        *_texts("missing", "provenance"),
        *_texts("rebuilt", "rewritten", nullable=True),
        *_texts("query", "tools", "messages"),
    ]
)
_SCALARS = [name for name in _SCHEMA.names if name not in (*_JSON, "query", "tools", "messages")]


def columns_of(row: CorpusRow) -> dict[str, Any]:
    """The values of a row by column."""
    trace, source = row.trace, row.trace.source
    values = {
        "trace_id": trace.trace_id,
        "rank": row.rank,
        "tokens": row.tokens,
        **msgspec.structs.asdict(trace.facts),
        "source_kind": source.kind,
        "source_place": source.place,
        "source_sha256": source.sha256,
        "is_verified": source.is_verified,
        **msgspec.structs.asdict(row.signals),
        "missing": trace.missing,
        "provenance": trace.provenance,
        "rebuilt": trace.rebuilt,
        "rewritten": trace.rewritten,
        "query": trace.query,
        "tools": trace.tools,
        "messages": _ENCODE([chat_of(message) for message in trace.messages]).decode(),  # OpenAI chat
    }
    known = {name: values[name] for name in _JSON if values[name] is not None}
    return values | dict.fromkeys(_JSON) | {name: _ENCODE(value).decode() for name, value in known.items()}


def row_of(columns: Mapping[str, Any]) -> CorpusRow:
    """The row of a file's columns. Raises msgspec.ValidationError or ArenaError V2097 for values that no row has."""
    values = dict(columns)
    values |= {name: decoder.decode(values[name]) for name, decoder in _JSON.items() if values[name] is not None}
    trace = Trace(
        trace_id=values["trace_id"],
        source=TraceSource(
            kind=values["source_kind"],
            place=values["source_place"],
            sha256=values["source_sha256"],
            is_verified=values["is_verified"],
        ),
        messages=tuple(message_of(chat) for chat in _CHAT.decode(values["messages"])),
        tools=values["tools"],
        query=values["query"],
        facts=msgspec.convert({name: values[name] for name in TraceFacts.__struct_fields__}, TraceFacts),
        missing=values["missing"],
        rebuilt=values["rebuilt"],
        rewritten=values["rewritten"],
    )
    signals = Signals(**{name: values[name] for name in Signals.__struct_fields__})
    return CorpusRow(trace=trace, signals=signals, tokens=values["tokens"], rank=values["rank"])


def write_corpus(
    folder: Path,
    rows: Iterable[CorpusRow],
    *,
    lineage: Lineage,
    funnel: Funnel,
    rejected: Iterable[Rejection],
    guard: Guard,
) -> Lineage:
    """Write into `folder`, which holds nothing yet; the lineage as written, with `rows_sha256` filled in (what is given
    for it is not read). Raises ArenaError V2099 when the guard rejects a row, OSError, sqlite3.Error.
    """
    digest, count = hashlib.sha256(), 0

    def checked() -> Iterator[dict[str, Any]]:
        nonlocal count
        for row in _in_order(rows):
            if codes := guard(row.trace):
                raise ArenaError("V2099", f"{row.trace.source.place}: {', '.join(codes)}")
            digest.update(_line(row))
            count += 1
            yield columns_of(row)

    (folder / DATA).parent.mkdir(parents=True)
    _write_table(folder / DATA, checked())
    written = msgspec.structs.replace(lineage, rows_sha256=digest.hexdigest())
    with (folder / REJECTED).open("wb") as file, zstandard.ZstdCompressor(_ZSTD_LEVEL).stream_writer(file) as stream:
        lines = ((_key(one.place, one.trace_id), msgspec.json.encode(one) + b"\n") for one in rejected)
        for _, line in sorted_on_disk(lines):
            stream.write(line)
    (folder / LINEAGE).write_bytes(canonical_bytes(written) + b"\n")
    (folder / FUNNEL).write_bytes(canonical_bytes(funnel) + b"\n")
    features = [(field.name, str(field.type)) for field in _SCHEMA]
    (folder / CARD).write_text(render_card(written, funnel, count, features), "utf-8")
    (folder / PAGE).write_text(render_page(written, funnel), "utf-8")
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
    except (OSError, pa.ArrowException, msgspec.ValidationError, KeyError, ArenaError) as wrong:
        raise ArenaError("V2027", f"{folder / DATA}: {wrong}") from None
    if digest.hexdigest() != read_lineage(folder).rows_sha256:
        raise ArenaError("V2027", f"{folder / DATA}: the rows are not those of the lineage")


def _in_order(rows: Iterable[CorpusRow]) -> Iterator[CorpusRow]:
    """The rows sorted by trace id and place, by way of a file."""
    spool = Spool()

    def spooled() -> Iterator[tuple[bytes, bytes]]:
        for number, row in enumerate(rows):
            spool.add(msgspec.msgpack.encode(row))
            yield _key(row.trace.trace_id, row.trace.source.place), _PLACE.pack(number)

    for _, place in sorted_on_disk(spooled()):
        yield _UNPACK.decode(spool.get(*_PLACE.unpack(place)))


def _key(first: str, second: str) -> bytes:
    return f"{first}\0{second}".encode("utf-8", "surrogatepass")


def _line(row: CorpusRow) -> bytes:
    """What the hash of the rows is taken over: independent of Parquet and of any library's version."""
    return canonical_bytes(row) + b"\n"


def _write_table(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with pq.ParquetWriter(
        path,
        _SCHEMA,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=_SCALARS,
        write_statistics=_SCALARS,
        store_schema=False,
    ) as writer:
        while group := list(itertools.islice(rows, _GROUP_ROWS)):
            writer.write_table(pa.Table.from_pylist(group, _SCHEMA), row_group_size=_GROUP_ROWS)
