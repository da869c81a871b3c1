"""The terms of an index by name, found in the mapped file: no table of terms in memory.

Terms stand sorted, one a line. Every 64th is remembered with its place; a look-up bisects those and reads one block.
"""

from __future__ import annotations

import functools
import mmap
from bisect import bisect_right
from pathlib import Path

import numpy as np

from harness.catalogue.index import layout

_BLOCK = 64  # terms
_REMEMBERED = 1 << 16  # look-ups


class Vocabulary:
    """Term -> number. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        path = folder / layout.VOCABULARY
        self._firsts: list[bytes] = []
        self._places: list[int] = []  # where each block starts, and the end
        if path.stat().st_size:
            with path.open("rb") as stream:
                self._text = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            breaks = np.flatnonzero(np.frombuffer(self._text, np.uint8) == ord("\n"))
            self._places = [0, *(breaks[_BLOCK - 1 :: _BLOCK] + 1).tolist(), len(self._text) + 1]
            ends = np.append(breaks, len(self._text))[::_BLOCK].tolist()  # of the first term of each block
            self._firsts = [self._text[start:end] for start, end in zip(self._places[:-1], ends, strict=True)]
        self.number = functools.lru_cache(_REMEMBERED)(self._find)

    def _find(self, term: str) -> int | None:
        key = term.encode("utf-8", "surrogatepass")
        block = bisect_right(self._firsts, key) - 1
        if block < 0:
            return None
        terms = self._text[self._places[block] : self._places[block + 1] - 1].split(b"\n")
        return block * _BLOCK + terms.index(key) if key in terms else None
