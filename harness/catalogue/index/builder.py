"""The index builder: a documents file in, one complete index folder out, or nothing at all.

Two passes and sorted runs, so memory grows with documents and vocabulary but not with postings. A run holds the
postings of one block of documents, sorted by term and ascending in document number; blocks come in document order, so
copying each term's slices one after the other keeps every list ascending. The folder is made beside its target and
renamed when the manifest is in place: a reader never meets half an index. `first_pass.py` says which documents are
usable.
"""

from __future__ import annotations

import shutil
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from foundation.canonical import content_hash
from foundation.errors import ArenaError
from foundation.progress import Progress, no_progress
from harness.catalogue.analysis.analyzer import analyzer_sha256, default_analyzer
from harness.catalogue.engines.bm25 import length_byte
from harness.catalogue.index import layout
from harness.catalogue.index.columns import write_columns
from harness.catalogue.index.first_pass import (
    STRIDE,
    LineFinding,
    lines_in_order,
    open_plain,
    read_intake,
)

BLOCK_DOCUMENTS = 100_000  # documents analysed before a sorted run is written
_CODES_MAX = 1 << 16  # a posting's pair is a uint16


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was built; `findings` holds the first hundred malformed lines."""

    manifest: layout.IndexManifest
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

    Raises ArenaError: V2013 when the source cannot be read, V2012 when the target is in the way or not writable, P4005
    for duplicate ids, for a file without a usable document, and for a malformed line when `is_strict`.
    """
    with layout.folder_in_the_making(target, layout.MANIFEST) as folder:
        work = folder / "work"
        work.mkdir()
        with open_plain(source, work) as plain:
            intake = read_intake(plain, is_strict=is_strict, progress=progress)
            order = intake.order(source)
            lines = lines_in_order(plain, intake, order)
            runs = _write_runs(lines, len(order), folder, block_documents, progress)
        merged = merge_runs(runs, folder, progress)
        id_bytes = write_columns(intake, order, folder)
        shutil.rmtree(work)
        content = layout.IndexContent(
            analyzer_sha256=analyzer_sha256(),
            documents=len(intake.ids),
            scored_documents=runs.scored_documents,
            total_terms=runs.total_terms,
            terms=merged.terms,
            postings=merged.postings,
            pairs=merged.pairs,
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


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the merged arrays."""

    terms: int
    postings: int
    pairs: int


class RunWriter:
    """Analyses documents in number order and writes a run at every `flush`."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.vocabulary: dict[str, int] = {}  # term -> provisional number, by first appearance
        self.runs = 0
        self.scored_documents = 0
        self.total_terms = 0
        self._analyse = default_analyzer().terms
        self._start_block()

    def _start_block(self) -> None:
        self._terms, self._documents, self._pairs = array("i"), array("i"), array("I")

    def add(self, number: int, contents: str) -> None:
        """Add the postings of document `number`; numbers ascend."""
        found = self._analyse(contents)
        if not found:
            return
        self.scored_documents += 1
        self.total_terms += len(found)
        norm, vocabulary = length_byte(len(found)), self.vocabulary
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


def merge_runs(writer: RunWriter, folder: Path, progress: Progress) -> Merged:
    """Write vocabulary, starts, pairs, documents and codes from the runs. Raises ArenaError P4005 when the documents
    have more distinct (count, length) pairs than a code can name."""
    names = sorted(writer.vocabulary)  # code point order is UTF-8 order
    final = np.empty(len(names), np.int64)
    for number, name in enumerate(names):
        final[writer.vocabulary[name]] = number
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
    return Merged(terms=len(names), postings=int(starts[-1]), pairs=len(pairs))


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
