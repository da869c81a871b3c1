"""Hashed n-grams of words that a letter shift doesn't change: one pass finds a text in plain and under every rotation.

A letter is hashed by its distance to the letter before it (modulo 26) and by whether it starts a word; a Caesar shift
changes neither. Only ASCII letters count, so digits, punctuation, case and line breaks make no difference.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2**64
_LETTERS = np.uint8(26)
_INVERSE = pow(_BASE, -1, 1 << 64)


def text_grams(data: bytes, words: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Hashes of all runs of `words` consecutive words of `data`, and the byte offset where each begins."""
    text = np.frombuffer(data.lower(), dtype=np.uint8)
    is_letter = text - np.uint8(ord("a")) < _LETTERS
    is_first = is_letter.copy()
    is_first[1:] &= ~is_letter[:-1]
    letters, is_start = text[is_letter], is_first[is_letter]
    starts = np.flatnonzero(is_start)
    if len(starts) < words:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    symbols = np.zeros(len(letters), dtype=np.uint64)
    symbols[1:] = (letters[1:] + _LETTERS - letters[:-1]) % _LETTERS + np.uint8(1) + is_start[1:] * np.uint8(27)
    begins = starts[: len(starts) - words + 1]
    ends = np.append(starts, len(letters))[words:]
    # polynomial hash (modulo 2**64) of the symbols behind each first letter, by prefix sums
    sums = np.zeros(len(symbols) + 1, dtype=np.uint64)
    np.cumsum(symbols * _powers(_BASE, len(symbols)), out=sums[1:])
    firsts = begins + 1
    return (sums[ends] - sums[firsts]) * _powers(_INVERSE, len(symbols) + 1)[firsts], np.flatnonzero(is_first)[
        : len(begins)
    ]


def _powers(base: int, count: int) -> npt.NDArray[np.uint64]:
    factors = np.full(count, base, dtype=np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)
