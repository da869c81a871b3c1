"""BM25 as Lucene computes it, bit for bit in float32: pure functions over arrays.

k1 and b are Anserini's (0.9 / 0.4, not Lucene's 1.2 / 0.75), document lengths are lossy (SmallFloat.intToByte4), and a
posting's score is `w - w / (1 + tf * inverse[norm])` with `w = boost * idf`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

K1, B = np.float32(0.9), np.float32(0.4)
_EXACT_LENGTHS = 24  # lengths below this have a byte of their own; above, 4 significant bits


def length_byte(length: int) -> int:
    """SmallFloat.intToByte4: the byte that stands for a document of `length` terms. Exact up to 40."""
    if length < _EXACT_LENGTHS:
        return length
    rest = length - _EXACT_LENGTHS
    bits = rest.bit_length()
    if bits < 4:
        return _EXACT_LENGTHS + rest
    shift = bits - 4
    return _EXACT_LENGTHS + (((rest >> shift) & 7) | ((shift + 1) << 3))


def byte_length(byte: int) -> int:
    """SmallFloat.byte4ToInt: the length a byte stands for, the least of those that share it."""
    if byte < _EXACT_LENGTHS:
        return byte
    rest = byte - _EXACT_LENGTHS
    shift = (rest >> 3) - 1
    return _EXACT_LENGTHS + ((rest & 7) if shift < 0 else ((rest & 7) | 8) << shift)


def denominators(pairs: npt.NDArray[np.uint32], total_terms: int, scored_documents: int) -> npt.NDArray[np.float32]:
    """`1 + tf * inverse[norm]` for each pair, where a pair is `tf << 8 | length byte`.

    A catalogue without a single term has no pairs; its average length is taken as 1.
    """
    average = np.float32(total_terms / scored_documents if total_terms else 1)
    one = np.float32(1)
    lengths = np.array([byte_length(byte) for byte in range(256)], np.float32)
    inverse = one / (K1 * ((one - B) + B * lengths / average))
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
