"""The index builder: a documents file in, one complete index folder out, or nothing at all.

Two passes and sorted runs, so memory grows with documents and vocabulary but not with postings (search notes, section
5). The folder is made beside its target and renamed when the manifest is in place: a reader never meets half an index.
Malformed lines are left out, counted and reported by line number; `is_strict` stops at the first. Ids must be unique.
"""

from __future__ import annotations

import gzip
import itertools
import mmap
import secrets
import shutil
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from harness.catalogue import layout
from harness.catalogue.analyzer import analyzer_sha256
from harness.catalogue.documents import read_line
from harness.catalogue.runs import RunWriter, merge_runs
from problems.canonical import content_hash
from problems.errors import ArenaError
from problems.product import SERVICES, Product

BLOCK_DOCUMENTS = 100_000  # documents analysed before a sorted run is written
_FINDINGS_KEPT = 100
_STRIDE = 500  # documents between two progress reports

Progress = Callable[[str, int, int], None]  # phase, done, total


class LineFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One line that was left out. `line` counts from 1."""

    line: int
    detail: str


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was built; `findings` holds the first hundred malformed lines."""

    manifest: layout.Manifest
    findings: tuple[LineFinding, ...]


class _Columns(msgspec.Struct, kw_only=True):
    """What the first pass keeps of every indexed document, in file order."""

    ids: list[str] = msgspec.field(default_factory=list)
    shops: list[str] = msgspec.field(default_factory=list)
    lines: array[int] = msgspec.field(default_factory=lambda: array("q"))  # line numbers, from 1
    positions: array[int] = msgspec.field(default_factory=lambda: array("q"))  # byte offsets in the file
    sizes: array[int] = msgspec.field(default_factory=lambda: array("i"))
    prices: array[float] = msgspec.field(default_factory=lambda: array("d"))
    sold_counts: array[int] = msgspec.field(default_factory=lambda: array("q"))
    services: array[int] = msgspec.field(default_factory=lambda: array("B"))
    findings: list[LineFinding] = msgspec.field(default_factory=list)
    malformed: int = 0
    blank: int = 0


def build_index(
    source: Path,
    target: Path,
    *,
    is_strict: bool = False,
    block_documents: int = BLOCK_DOCUMENTS,
    progress: Progress = lambda phase, done, total: None,
) -> BuildReport:
    """Build the index of `source` (`.jsonl` or `.jsonl.gz`) at `target`, replacing an index that stands there.

    Raises ArenaError: V2013 when the source cannot be read, V2012 when the target is in the way or not writable, P4005
    for duplicate ids, for a file without a usable document, and for a malformed line when `is_strict`.
    """
    if not source.is_file():
        raise ArenaError("V2013", f"{source}: no such file")
    with _folder_in_the_making(target) as folder:
        work = folder / "work"
        work.mkdir()
        plain = _unpack(source, work)
        with _mapped(plain) as lines:
            columns = _read_columns(lines, is_strict, progress)
            order = _document_order(columns, source)
            counts = _write_postings(lines, columns, order, folder, block_documents, progress)
        _write_columns(columns, order, folder)
        shutil.rmtree(work)
        manifest = _describe(folder, source, columns, counts)
        layout.write_manifest(folder, manifest)
    return BuildReport(manifest=manifest, findings=tuple(columns.findings))


@contextmanager
def _folder_in_the_making(target: Path) -> Iterator[Path]:
    """A fresh folder beside `target` that takes its place on success and vanishes on failure."""
    if target.exists() and not (target / layout.MANIFEST).is_file() and not _is_empty_folder(target):
        raise ArenaError("V2012", f"{target} exists and is not an index; choose another folder")
    mark = secrets.token_hex(4)
    making = target.with_name(f".{target.name}.{mark}.making")
    try:
        making.mkdir(parents=True)
    except OSError as error:
        raise ArenaError("V2012", f"{making.parent}: {error.strerror or error}") from error
    try:
        yield making
        if target.exists():
            retired = target.with_name(f".{target.name}.{mark}.retired")
            target.rename(retired)
            making.rename(target)
            shutil.rmtree(retired)
        else:
            making.rename(target)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _unpack(source: Path, work: Path) -> Path:
    """The file itself, or its decompressed twin: the second pass reads documents in id order."""
    if source.suffix != ".gz":
        return source
    plain = work / "documents.jsonl"
    try:
        with gzip.open(source, "rb") as packed, plain.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except (OSError, EOFError) as error:
        raise ArenaError("V2013", f"{source}: {error}") from error
    return plain


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    if path.stat().st_size == 0:
        raise ArenaError("P4005", f"{path}: the documents file is empty")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield mapped


def _read_columns(lines: mmap.mmap, is_strict: bool, progress: Progress) -> _Columns:
    """First pass: type every line, keep what filters and sorting need."""
    columns, total = _Columns(), len(lines)
    for number, line in enumerate(iter(lines.readline, b""), start=1):
        position = lines.tell() - len(line)
        if number % _STRIDE == 0:
            progress("read", position, total)
        try:
            document = read_line(line)
        except ArenaError as error:
            columns.malformed += 1
            if is_strict:
                raise ArenaError("P4005", f"line {number}: {error.failure.detail}") from error
            if len(columns.findings) < _FINDINGS_KEPT:
                columns.findings.append(LineFinding(line=number, detail=error.failure.detail))
            continue
        if not document.contents.strip():
            columns.blank += 1
            continue
        _append(columns, document.product, number, position, len(line))
    progress("read", total, total)
    return columns


def _append(columns: _Columns, product: Product, number: int, position: int, size: int) -> None:
    columns.ids.append(product.product_id)
    columns.shops.append(product.shop_id)
    columns.lines.append(number)
    columns.positions.append(position)
    columns.sizes.append(size)
    columns.prices.append(product.price)
    columns.sold_counts.append(product.sold_count)
    columns.services.append(sum(1 << bit for bit, name in enumerate(SERVICES) if name in product.service))


def _document_order(columns: _Columns, source: Path) -> npt.NDArray[np.int64]:
    """Places in file order, by id as a string: the reference's tie-break becomes "lower number first"."""
    if not columns.ids:
        where = f"; line {columns.findings[0].line}: {columns.findings[0].detail}" if columns.findings else ""
        raise ArenaError("P4005", f"{source}: no document can be indexed{where}")
    order = sorted(range(len(columns.ids)), key=columns.ids.__getitem__)
    for first, second in itertools.pairwise(order):
        if columns.ids[first] == columns.ids[second]:
            lines = f"lines {columns.lines[first]} and {columns.lines[second]}"
            raise ArenaError("P4005", f"{source}: {lines} have the same id {columns.ids[first]!r}")
    return np.array(order, np.int64)


class _Counts(msgspec.Struct, frozen=True, kw_only=True):
    scored_documents: int
    total_terms: int
    terms: int
    postings: int
    pairs: int


def _write_postings(
    lines: mmap.mmap,
    columns: _Columns,
    order: npt.NDArray[np.int64],
    folder: Path,
    block_documents: int,
    progress: Progress,
) -> _Counts:
    """Second pass, in document order: write the products and the runs, then merge the runs into postings."""
    writer = RunWriter(folder / "work")
    offsets = array("q", [0])
    with (folder / layout.PRODUCTS).open("wb") as products:
        for number, place in enumerate(order.tolist()):
            position = columns.positions[place]
            raw = orjson.loads(lines[position : position + columns.sizes[place]])
            writer.add(number, raw["contents"])
            offsets.append(offsets[-1] + products.write(orjson.dumps(raw["product"]) + b"\n"))
            if (number + 1) % block_documents == 0:
                writer.flush()
            if number % _STRIDE == 0:
                progress("analyse", number, len(order))
    writer.flush()
    progress("analyse", len(order), len(order))
    np.frombuffer(offsets, np.int64).astype("<i8").tofile(layout.array_path(folder, "offsets"))
    merged = merge_runs(writer, folder, progress)
    return _Counts(
        scored_documents=writer.scored_documents,
        total_terms=writer.total_terms,
        terms=merged.terms,
        postings=merged.postings,
        pairs=merged.pairs,
    )


def _write_columns(columns: _Columns, order: npt.NDArray[np.int64], folder: Path) -> None:
    """Ids, shops and the filter columns, in document order."""

    def write(name: str, values: npt.ArrayLike) -> None:
        np.asarray(values).astype(layout.ARRAYS[name]).tofile(layout.array_path(folder, name))

    write("prices", np.frombuffer(columns.prices, np.float64)[order])
    write("sold_counts", np.frombuffer(columns.sold_counts, np.int64)[order])
    write("services", np.frombuffer(columns.services, np.uint8)[order])
    shops = sorted(set(columns.shops))
    place = {shop: number for number, shop in enumerate(shops)}
    write("shops", [place[columns.shops[number]] for number in order.tolist()])
    (folder / layout.SHOPS).write_bytes(orjson.dumps(shops))
    ids = np.array([columns.ids[number].encode() for number in order.tolist()], "S")
    ids.tofile(layout.array_path(folder, "ids"))


def _describe(folder: Path, source: Path, columns: _Columns, counts: _Counts) -> layout.Manifest:
    files = tuple(layout.describe_file(path) for path in sorted(folder.iterdir()))
    content = layout.Content(
        analyzer_sha256=analyzer_sha256(),
        documents=len(columns.ids),
        scored_documents=counts.scored_documents,
        total_terms=counts.total_terms,
        terms=counts.terms,
        postings=counts.postings,
        pairs=counts.pairs,
        id_bytes=max(len(product_id.encode()) for product_id in columns.ids),
        files=files,
    )
    origin = layout.Source(name=source.name, size=source.stat().st_size, sha256=layout.file_sha256(source))
    return layout.Manifest(
        content=content,
        content_sha256=content_hash(content),
        source=origin,
        blank_dropped=columns.blank,
        malformed=columns.malformed,
    )
