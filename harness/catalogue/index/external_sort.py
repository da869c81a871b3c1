"""Sorted runs of postings: blocks of analysed documents on disk, merged into the index's posting arrays.

A run holds the postings of one block, sorted by term and ascending in document number; blocks come in document order,
so copying each term's slices one after the other keeps every list ascending. Peak memory is one run, not the index.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from foundation.errors import ArenaError
from harness.catalogue.analysis.analyzer import default_analyzer
from harness.catalogue.engines.bm25 import length_byte
from harness.catalogue.index import layout

_CODES_MAX = 1 << 16  # a posting's pair is a uint16


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


def merge_runs(writer: RunWriter, folder: Path, progress: Callable[[str, int, int], None]) -> Merged:
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
    progress: Callable[[str, int, int], None],
) -> None:
    """Copy every run's slices to their terms' places."""
    postings = int(starts[-1])
    documents, codes = (_writable(folder, name, postings) for name in ("documents", "codes"))
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


def _writable(folder: Path, name: str, count: int) -> npt.NDArray[np.int64]:
    """A mapped array to fill; numpy cannot map an empty file."""
    path, dtype = layout.array_path(folder, name), layout.ARRAYS[name]
    if count == 0:
        path.write_bytes(b"")
        return np.empty(0, np.int64)
    mapped: npt.NDArray[np.int64] = np.memmap(path, dtype, mode="w+", shape=(count,))
    return mapped
