"""Summing postings into scores: one rule, written for numpy and for numba, the same results from both.

Scores are summed in double in the order of the query's terms and rounded to float32 once, as Lucene does. Every
contribution is positive, so a sum of 0 means "not met yet". numba takes a second to import and compile, so it is chosen
only for large catalogues; it is imported nowhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Kernel = Literal["auto", "numpy", "numba"]
Numbers = npt.NDArray[np.int32]  # document numbers
Codes = npt.NDArray[np.uint16]  # places in a score table, one a posting
Places = npt.NDArray[np.int64]  # of postings, one a term
Scores = npt.NDArray[np.float32]
Sums = npt.NDArray[np.float64]  # one cell a document, all 0 between calls

# documents[P], codes[P], starts[T], ends[T], tables[T, G], sums[N] -> documents met, each once, and their scores
Accumulate = Callable[[Numbers, Codes, Places, Places, Scores, Sums], tuple[Numbers, Scores]]

COMPILED_FROM = 200_000  # documents; below, numpy answers within a few milliseconds and starts at once


def choose_accumulate(kernel: Kernel, documents: int) -> Accumulate:
    """The implementation for a catalogue of this size. Raises ImportError when numba is asked for and is missing."""
    if kernel == "numpy" or (kernel == "auto" and documents < COMPILED_FROM):
        return accumulate
    try:
        return compiled_accumulate()
    except ImportError:
        if kernel == "numba":
            raise
        return accumulate


def accumulate(
    documents: Numbers, codes: Codes, starts: Places, ends: Places, tables: Scores, sums: Sums
) -> tuple[Numbers, Scores]:
    """In numpy. A document occurs once in a term's list, so plain indexed addition is right. Leaves `sums` at 0."""
    lists = []
    for start, end, table in zip(starts.tolist(), ends.tolist(), tables, strict=True):
        matches = documents[start:end]
        sums[matches] += table.take(codes[start:end])
        lists.append(matches)
    met, scores = [], []
    for matches in lists:  # a sum is taken where its document is met first and is 0 from then on
        found = sums[matches]
        sums[matches] = 0
        is_first = found > 0
        met.append(matches[is_first])
        scores.append(found[is_first].astype(np.float32))
    return np.concatenate(met), np.concatenate(scores)


@functools.cache
def compiled_accumulate() -> Accumulate:
    """In machine code, without the interpreter lock. Raises ImportError when numba is missing."""
    from numba import njit, types

    documents = types.Array(types.int32, 1, "C", readonly=True)  # read-only types take mapped files too
    codes = types.Array(types.uint16, 1, "C", readonly=True)
    places, met, sums = types.int64[::1], types.int32[::1], types.float64[::1]
    add_signature = types.int64(documents, codes, places, places, types.float32[:, ::1], sums, met)
    take_signature = types.void(met, sums, types.float32[::1])

    def compile_kernel(function: Callable[..., Any], signature: object) -> Callable[..., Any]:
        try:
            compiled: Callable[..., Any] = njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:  # a read-only installation without a home: nowhere to keep the compiled code
            compiled = njit(signature, nogil=True)(function)
        return compiled

    add, take = compile_kernel(_add_postings, add_signature), compile_kernel(_take_scores, take_signature)

    def run(
        documents: Numbers, codes: Codes, starts: Places, ends: Places, tables: Scores, sums: Sums
    ) -> tuple[Numbers, Scores]:
        met = np.empty(min(len(sums), int((ends - starts).sum())), np.int32)
        met = met[: add(documents, codes, starts, ends, tables, sums, met)]
        scores = np.empty(len(met), np.float32)
        take(met, sums, scores)
        return met, scores

    return run


def _add_postings(
    documents: Numbers, codes: Codes, starts: Places, ends: Places, tables: Scores, sums: Sums, met: Numbers
) -> int:
    """Add every posting to its document's sum; write each document to `met` once and return how many. Compiled."""
    count = 0
    for term in range(starts.shape[0]):
        for place in range(starts[term], ends[term]):
            document = documents[place]
            before = sums[document]
            if before == 0.0:
                met[count] = document
                count += 1
            sums[document] = before + tables[term, codes[place]]
    return count


def _take_scores(met: Numbers, sums: Sums, scores: Scores) -> None:
    """Round the sums of `met` to float32 and set them back to 0. Compiled."""
    for place in range(met.shape[0]):
        scores[place] = sums[met[place]]
        sums[met[place]] = 0.0
