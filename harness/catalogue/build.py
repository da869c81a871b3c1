"""The index builder: a documents file in, one complete index folder out, or nothing at all.

Two passes and sorted runs, so memory grows with documents and vocabulary but not with postings. A run holds the
postings of one block of documents, sorted by term and ascending in document number; blocks come in document order, so
copying each term's slices one after the other keeps every list ascending. The folder is made beside its target and
renamed when the manifest is in place: a reader never meets half an index.
Scores are computed as Lucene does, bit for bit in float32: k1 and b are Anserini's (0.9 / 0.4, not Lucene's 1.2 /
0.75), document lengths are lossy (SmallFloat.intToByte4), and a posting's score is `w - w / (1 + tf * inverse[norm])`
with `w = boost * idf`.
"""

from __future__ import annotations

import gzip
import itertools
import math
import os
import shutil
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from foundation.canonical import content_hash
from foundation.durable_files import coded, whole_folder
from foundation.errors import ArenaError
from foundation.long_work import Progress, no_progress
from harness.catalogue import layout
from harness.catalogue.analysis import analyzer_sha256, terms_of
from problems.model import SERVICES, Product, read_product

K1, B = np.float32(0.9), np.float32(0.4)
_EXACT_LENGTHS = 24  # lengths below this have a byte of their own; above, 4 significant bits


def _length(byte: int) -> int:
    """SmallFloat.byte4ToInt: the length a byte stands for, the least of those that share it. Exact up to 40."""
    if byte < _EXACT_LENGTHS:
        return byte
    rest = byte - _EXACT_LENGTHS
    shift = (rest >> 3) - 1
    return _EXACT_LENGTHS + ((rest & 7) if shift < 0 else ((rest & 7) | 8) << shift)


_LENGTHS = [_length(byte) for byte in range(256)]


def denominators(pairs: npt.NDArray[np.uint32], total_terms: int, scored_documents: int) -> npt.NDArray[np.float32]:
    """`1 + tf * inverse[norm]` for each pair, where a pair is `tf << 8 | length byte`.

    A catalogue without a single term has no pairs; its average length is taken as 1.
    """
    average = np.float32(total_terms / scored_documents if total_terms else 1)
    one = np.float32(1)
    inverse = one / (K1 * ((one - B) + B * np.array(_LENGTHS, np.float32) / average))
    out: npt.NDArray[np.float32] = one + (pairs >> 8).astype(np.float32) * inverse[pairs & 255]
    return out


def inverse_frequencies(frequency: npt.NDArray[np.int64], scored_documents: int) -> npt.NDArray[np.float32]:
    """idf of terms that occur in `frequency` documents: `ln(1 + (N - df + 0.5) / (df + 0.5))`, rounded once."""
    distinct, place = np.unique(frequency, return_inverse=True)
    values = [math.log(1 + (scored_documents - int(df) + 0.5) / (int(df) + 0.5)) for df in distinct]
    return np.array(values, np.float64).astype(np.float32)[place]


def posting_scores(idf: np.float32, boost: int, denominator: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Score of a term for every (tf, length) pair; a word repeated in the query is a boost."""
    weight = np.float32(boost) * idf
    out: npt.NDArray[np.float32] = weight - weight / denominator
    return out


BLOCK_DOCUMENTS = 100_000  # documents analysed before a sorted run is written
_CODES_MAX = 1 << 16  # a posting's pair is a uint16


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was built; `findings` holds the first hundred malformed lines."""

    manifest: layout.IndexManifest | layout.LuceneManifest
    findings: tuple[LineFinding, ...]


def build_index(
    source: Path,
    target: Path,
    *,
    is_strict: bool = False,
    block_documents: int = BLOCK_DOCUMENTS,
    progress: Progress = no_progress,
) -> BuildReport:
    """Build the index of `source` (`.jsonl` or `.jsonl.gz`) at `target`, replacing an index that is there.

    Raises ArenaError: V2027 when the source cannot be read, V2027 when the target is in the way or not writable, P4005
    for duplicate ids, for a file without a usable document, and for a malformed line when `is_strict`.
    """
    with whole_folder(target, replaced=layout.MANIFEST) as folder:
        work = folder / "work"
        work.mkdir()
        with open_plain(source, work) as plain:
            intake = read_intake(plain, is_strict=is_strict, progress=progress)
            order = intake.order(source)
            lines = lines_in_order(plain, intake, order)
            runs = _write_runs(lines, len(order), folder, block_documents, progress)
        postings, pairs = merge_runs(runs, folder, progress)
        id_bytes = write_columns(intake, order, folder)
        shutil.rmtree(work)
        content = layout.IndexContent(
            analyzer_sha256=analyzer_sha256(),
            documents=len(intake.ids),
            scored_documents=runs.scored_documents,
            total_terms=runs.total_terms,
            terms=len(runs.vocabulary),
            postings=postings,
            pairs=pairs,
            id_bytes=id_bytes,
            files=tuple(layout.describe_file(path) for path in sorted(folder.iterdir())),
        )
        manifest = layout.IndexManifest(
            content=content,
            content_sha256=content_hash(content),
            source=layout.describe_file(source),
            blank_dropped=intake.blank,
            malformed=intake.malformed,
        )
        layout.write_manifest(folder / layout.MANIFEST, manifest)
    return BuildReport(manifest=manifest, findings=tuple(intake.findings))


def _write_runs(
    lines: Iterator[bytes], total: int, folder: Path, block_documents: int, progress: Progress
) -> RunWriter:
    """Second pass, in document order: write the products, their places, and the runs in the folder's `work`."""
    writer = RunWriter(folder / "work")
    offsets = array("q", [0])
    with (folder / layout.PRODUCTS).open("wb", buffering=1 << 20) as products:
        for number, line in enumerate(lines):
            raw = orjson.loads(line)
            writer.add(number, raw["contents"])
            offsets.append(offsets[-1] + products.write(orjson.dumps(raw["product"]) + b"\n"))
            if (number + 1) % block_documents == 0:
                writer.flush()
            if number % STRIDE == 0:
                progress("analyse", number, total)
    writer.flush()
    progress("analyse", total, total)
    np.frombuffer(offsets, np.int64).astype("<i8").tofile(layout.array_path(folder, "offsets"))
    return writer


# -- sorted runs


class RunWriter:
    """Analyses documents in number order and writes a run at every `flush`."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.vocabulary: dict[str, int] = {}  # term -> provisional number, by first appearance
        self.runs = 0
        self.scored_documents = 0
        self.total_terms = 0
        self._start_block()

    def _start_block(self) -> None:
        self._terms, self._documents, self._pairs = array("i"), array("i"), array("I")

    def add(self, number: int, contents: str) -> None:
        """Add the postings of document `number`; numbers ascend."""
        found = terms_of(contents)
        if not found:
            return
        self.scored_documents += 1
        self.total_terms += len(found)
        norm, vocabulary = bisect_right(_LENGTHS, len(found)) - 1, self.vocabulary
        counts = Counter(found)
        self._terms.extend([vocabulary.setdefault(term, len(vocabulary)) for term in counts])
        self._documents.extend([number] * len(counts))
        self._pairs.extend([count << 8 | norm for count in counts.values()])

    def flush(self) -> None:
        """Write the block's postings as the next run."""
        if not self._terms:
            return
        terms = np.frombuffer(self._terms, np.int32)
        order = np.argsort(terms, kind="stable")
        columns = (terms, np.frombuffer(self._documents, np.int32), np.frombuffer(self._pairs, np.uint32))
        for name, column in zip(("terms", "documents", "pairs"), columns, strict=True):
            np.save(self._path(self.runs, name), column[order])
        self.runs += 1
        self._start_block()

    def load(self, run: int, column: str) -> npt.NDArray[np.int64]:
        """One column of a run, as written."""
        out: npt.NDArray[np.int64] = np.load(self._path(run, column))
        return out

    def _path(self, run: int, column: str) -> Path:
        return self.work / f"run-{run:05d}-{column}.npy"


def merge_runs(writer: RunWriter, folder: Path, progress: Progress) -> tuple[int, int]:
    """Write vocabulary, starts, pairs, documents and codes from the runs: how many postings and pairs.

    Raises ArenaError P4005 when the documents have more distinct (count, length) pairs than a code can name.
    """
    names = sorted(writer.vocabulary)  # code point order is UTF-8 order
    final = np.empty(len(names), np.int64)
    final[[writer.vocabulary[name] for name in names]] = np.arange(len(names))
    (folder / layout.VOCABULARY).write_bytes("\n".join(names).encode())
    frequency, pairs = np.zeros(len(names), np.int64), np.empty(0, np.uint32)
    for run in range(writer.runs):
        frequency += np.bincount(final[writer.load(run, "terms")], minlength=len(names))
        pairs = np.union1d(pairs, writer.load(run, "pairs").astype(np.uint32))
    if len(pairs) > _CODES_MAX:
        raise ArenaError("P4005", f"{len(pairs)} distinct (word count, length) pairs; at most {_CODES_MAX}")
    starts = np.concatenate([[0], np.cumsum(frequency)])
    starts.astype(layout.ARRAYS["starts"]).tofile(layout.array_path(folder, "starts"))
    pairs.astype(layout.ARRAYS["pairs"]).tofile(layout.array_path(folder, "pairs"))
    _scatter(writer, folder, final, starts, pairs, progress)
    return int(starts[-1]), len(pairs)


def _scatter(
    writer: RunWriter,
    folder: Path,
    final: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    pairs: npt.NDArray[np.uint32],
    progress: Progress,
) -> None:
    """Copy every run's slices to their terms' places."""
    places = [(layout.array_path(folder, name), layout.ARRAYS[name]) for name in ("documents", "codes")]
    if not writer.runs:  # numpy maps no empty file
        for path, _ in places:
            path.touch()
        return
    documents, codes = (np.memmap(path, dtype, mode="w+", shape=(int(starts[-1]),)) for path, dtype in places)
    cursor = starts[:-1].copy()
    for run in range(writer.runs):
        progress("merge", run, writer.runs)
        terms = final[writer.load(run, "terms")]
        is_first = np.concatenate([[True], terms[1:] != terms[:-1]])
        group = np.flatnonzero(is_first)
        rank = np.arange(len(terms)) - np.repeat(group, np.diff(np.append(group, len(terms))))
        place = cursor[terms] + rank
        documents[place] = writer.load(run, "documents")
        codes[place] = np.searchsorted(pairs, writer.load(run, "pairs"))
        cursor += np.bincount(terms, minlength=len(cursor))
    progress("merge", writer.runs, writer.runs)


class Columns:
    """Mapped columns of a folder whose ids are `id_bytes` wide. Read-only and shared."""

    def __init__(self, folder: Path, id_bytes: int) -> None:
        names = ("prices", "sold_counts", "services", "shops")
        self.prices, self.sold_counts, self.services, self.shops = (layout.map_array(folder, name) for name in names)
        self.ids = layout.map_array(folder, "ids", f"|S{id_bytes}")
        shops: list[str] = orjson.loads((folder / layout.SHOPS).read_bytes())
        self.shop_numbers = {shop: number for number, shop in enumerate(shops)}

    def product_ids(self) -> Iterator[str]:
        """Every id, in document order."""
        return (bytes(key).decode() for key in self.ids)

    def id_of(self, number: int) -> str:
        """The id of a document."""
        return bytes(self.ids[number]).decode()

    def number_of(self, product_id: str) -> int | None:
        """The document of that id, or None."""
        try:
            key = product_id.encode()
        except UnicodeEncodeError:
            return None
        if len(key) > self.ids.itemsize:  # numpy would copy the column, each id as wide as the key
            return None
        number = int(np.searchsorted(self.ids, np.bytes_(key)))
        return number if number < len(self.ids) and bytes(self.ids[number]) == key else None


def write_columns(intake: FirstPass, order: npt.NDArray[np.int64], folder: Path) -> int:
    """Write the columns of the documents of `intake` in that order; returns the width of an id in bytes."""

    def write(name: str, values: npt.NDArray[np.generic]) -> None:
        values[order].astype(layout.ARRAYS[name]).tofile(layout.array_path(folder, name))

    write("prices", np.frombuffer(intake.prices, np.float64))
    write("sold_counts", np.frombuffer(intake.sold_counts, np.int64))
    write("services", np.frombuffer(intake.services, np.uint8))
    shops = sorted(intake.shop_places)
    final = np.empty(len(shops), np.int32)
    final[[intake.shop_places[shop] for shop in shops]] = np.arange(len(shops))
    write("shops", final[np.frombuffer(intake.shops, np.int32)])
    (folder / layout.SHOPS).write_bytes(orjson.dumps(shops))
    ids = np.array([intake.ids[place].encode() for place in order.tolist()], "S")
    ids.tofile(layout.array_path(folder, "ids"))
    return ids.itemsize


FINDINGS_KEPT = 100
STRIDE = 500  # documents between two progress reports


class LineFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One line that was left out. `line` counts from 1."""

    line: int
    detail: str


class FirstPass(msgspec.Struct, kw_only=True):
    """What the first pass keeps of every usable document, in file order."""

    ids: list[str] = msgspec.field(default_factory=list)
    shop_places: dict[str, int] = msgspec.field(default_factory=dict)  # shop id -> number by first appearance
    shops: array[int] = msgspec.field(default_factory=lambda: array("i"))
    lines: array[int] = msgspec.field(default_factory=lambda: array("q"))  # line numbers, from 1
    positions: array[int] = msgspec.field(default_factory=lambda: array("q"))  # byte offsets in the file
    sizes: array[int] = msgspec.field(default_factory=lambda: array("i"))
    prices: array[float] = msgspec.field(default_factory=lambda: array("d"))
    sold_counts: array[int] = msgspec.field(default_factory=lambda: array("q"))
    services: array[int] = msgspec.field(default_factory=lambda: array("B"))
    findings: list[LineFinding] = msgspec.field(default_factory=list)
    malformed: int = 0
    blank: int = 0

    def add(self, product: Product, line: int, position: int, size: int) -> None:
        """Keep a usable document."""
        self.ids.append(product.product_id)
        self.shops.append(self.shop_places.setdefault(product.shop_id, len(self.shop_places)))
        self.lines.append(line)
        self.positions.append(position)
        self.sizes.append(size)
        self.prices.append(product.price)
        self.sold_counts.append(product.sold_count)
        self.services.append(sum(1 << bit for bit, name in enumerate(SERVICES) if name in product.service))

    def order(self, source: Path) -> npt.NDArray[np.int64]:
        """Places in file order, by id as a string: the reference's tie-break becomes "lower number first".

        Raises ArenaError P4005 for a file without a usable document and for two documents of one id.
        """
        if not self.ids:
            where = f"; line {self.findings[0].line}: {self.findings[0].detail}" if self.findings else ""
            raise ArenaError("P4005", f"{source}: no document can be indexed{where}")
        order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        for first, second in itertools.pairwise(order):
            if self.ids[first] == self.ids[second]:
                lines = f"lines {self.lines[first]} and {self.lines[second]}"
                raise ArenaError("P4005", f"{source}: {lines} have the same id {self.ids[first]!r}")
        return np.array(order, np.int64)


@contextmanager
def open_plain(source: Path, work: Path) -> Iterator[Path]:
    """The file itself, or its decompressed twin in `work`: the second pass reads documents in id order.

    Raises ArenaError V2027 when it cannot be read.
    """
    if not source.is_file():
        raise ArenaError("V2027", f"{source}: no such file")
    if source.suffix != ".gz":
        yield source
        return
    plain = work / "documents.jsonl"
    try:
        with gzip.open(source, "rb") as packed, plain.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except (OSError, EOFError) as error:
        raise ArenaError("V2027", f"{source}: {error}") from error
    try:
        yield plain
    finally:
        plain.unlink()


def read_intake(plain: Path, *, is_strict: bool, progress: Progress) -> FirstPass:
    """Type every line, keep what filters and sorting need.

    Raises ArenaError P4005 for an empty file, and naming the line when `is_strict`; V2027.
    """
    intake, total, position = FirstPass(), plain.stat().st_size, 0
    if total == 0:
        raise ArenaError("P4005", f"{plain}: the documents file is empty")
    with coded(plain, "V2027"), plain.open("rb", buffering=1 << 20) as stream:
        for number, line in enumerate(stream, start=1):
            if number % STRIDE == 0:
                progress("read", position, total)
            _take_line(intake, line, number, position, is_strict)
            position += len(line)
    progress("read", total, total)
    return intake


def _take_line(intake: FirstPass, line: bytes, number: int, position: int, is_strict: bool) -> None:
    try:
        document = read_line(line)
    except ArenaError as error:
        intake.malformed += 1
        if is_strict:
            raise ArenaError("P4005", f"line {number}: {error.failure.detail}") from error
        if len(intake.findings) < FINDINGS_KEPT:
            intake.findings.append(LineFinding(line=number, detail=error.failure.detail))
        return
    if document.contents.strip():
        intake.add(document.product, number, position, len(line))
    else:
        intake.blank += 1


def lines_in_order(plain: Path, intake: FirstPass, order: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """The usable lines by id. Read by place, not mapped: a mapping would keep the whole file resident."""
    with plain.open("rb") as stream:
        descriptor = stream.fileno()
        for place in order.tolist():
            yield os.pread(descriptor, intake.sizes[place], intake.positions[place])


class IndexLine(msgspec.Struct, frozen=True):
    """One document of the catalogue: its id, its searchable text and the product."""

    id: str
    contents: str
    product: Product


def contents_of(product: Product) -> str:
    """Title, distinct SKU option values, distinct attribute values; one line each.

    Values are in first-seen order: the reference's order is arbitrary, and BM25 does not see it.
    """
    options = dict.fromkeys(value for option in product.sku_options.values() for value in option.values())
    attributes = dict.fromkeys(value for values in product.attributes.values() for value in values)
    return "\n".join((product.title, " ".join(options), " ".join(attributes)))


def document_line(product: Product) -> bytes:
    """The product's line in the index line format, newline included."""
    document = {"id": product.product_id, "contents": contents_of(product), "product": msgspec.to_builtins(product)}
    return orjson.dumps(document) + b"\n"


def write_documents(
    products: Iterable[Product], stream: BinaryIO, on_written: Callable[[int], None] = lambda count: None
) -> None:
    """Write one line a product; `on_written` is called now and then with how many there are."""
    for count, product in enumerate(products, start=1):
        stream.write(document_line(product))
        if count % STRIDE == 0:
            on_written(count)


def read_line(line: bytes) -> IndexLine:
    """A typed document from one line. Raises ArenaError P4005 naming the field that is wrong."""
    try:
        raw = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ArenaError("P4005", f"not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ArenaError("P4005", "line is not an object")
    document_id, contents = raw.get("id"), raw.get("contents")
    if not isinstance(document_id, str) or not isinstance(contents, str):
        raise ArenaError("P4005", "`id` and `contents` must be strings")
    product = read_product(raw.get("product"))
    if product.product_id != document_id:
        raise ArenaError("P4005", f"id {document_id!r} is not the product's id {product.product_id!r}")
    # ids travel in comma-separated lists and are stripped there, so some strings could never be recommended
    if not document_id or not document_id.isprintable() or any(one.isspace() or one == "," for one in document_id):
        raise ArenaError("P4005", f"id {document_id!r} is empty or holds a comma, a blank or a control character")
    return IndexLine(document_id, contents, product)


def read_products(path: Path) -> Iterator[Product]:
    """Every product of a documents file, plain or compressed, in file order. Raises ArenaError P4005 naming the line,
    V2027."""
    with coded(path, "V2027"), gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                document = read_line(line)
            except ArenaError as error:
                raise ArenaError(error.failure.code, f"{path.name} line {number}: {error.failure.detail}") from error
            yield document.product
