"""A corpus as a folder: Parquet, dataset card, lineage, funnel. Written whole or not at all.

```
data/train.parquet   the rows, in the order of their trace ids: a hash, so any stretch is a fair sample
README.md            dataset card; `datasets.load_dataset(folder)` reads it
lineage.json         what it was made from and by; `content_hash(lineage)` is the corpus' identity
funnel.json          how many traces fell where
rejected.jsonl.zst   every trace left out, with its codes
report.html          the funnel as a page, where the caller draws one
```

The same rows, lineage and funnel give the same bytes with the pinned pyarrow and zstandard. The guard is asked
again of every row on its way into the file. A folder appears under its name when it is complete, and is never changed:
an existing one is refused. Rows and rejections are sorted on disk, so memory holds a row group and a run of the sort,
whatever the size of the corpus. What a killed writer leaves begins with `.NAME.part-`.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from foundation.canonical import canonical_bytes
from foundation.durable_files import move_into_place
from foundation.errors import ArenaError
from training.corpus.corpus_card import render_card
from training.corpus.corpus_rows import JSON, columns, columns_of, row_of
from training.corpus.disk_sort import Pair, sorted_on_disk
from training.corpus.filter.funnel import Funnel
from training.corpus.filter.trace_features import Guard
from training.corpus.model import CorpusRow, Lineage, Rejection

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
    draw: Callable[[Lineage, Funnel], str] | None = None,
) -> Lineage:
    """Write `folder`; the lineage as written, with `rows_sha256` filled in (what is given for it is not read).

    `draw` makes the page; none is written without it. Raises ArenaError V2144 when the folder exists, V2099 when the
    guard rejects a row, V2027 when it can't be written.
    """
    if folder.exists():
        raise ArenaError("V2144", str(folder))
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
        (partial / CARD).write_text(render_card(written, funnel, count), "utf-8")
        if draw is not None:
            (partial / PAGE).write_text(draw(written, funnel), "utf-8")
        partial.chmod(0o755)
        move_into_place(partial, folder)
    except OSError as wrong:
        raise ArenaError("V2027", f"{folder}: {wrong.strerror}") from None
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

    def spooled() -> Iterator[Pair]:
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


class _Parquet:
    """One Parquet file while rows are put into it."""

    def __init__(self, path: Path) -> None:
        self._schema = pa.schema(
            [pa.field(name, _ARROW[kind], nullable=is_nullable) for name, kind, is_nullable in columns()]
        )
        texts = [name for name, kind, _ in columns() if kind == JSON or name == "query"]
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
