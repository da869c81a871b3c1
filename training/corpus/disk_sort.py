"""Sorting more than memory should hold: runs sorted in memory, put on disk, and merged.

Promise: pairs come out by key, then by value, whatever the order they came in; memory holds one run and a buffer for
each run on disk. The files have no name and go with the process, however it ends.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO

RUN_BYTES = 8 << 20  # of keys and values, held in memory at a time

Pair = tuple[bytes, bytes]  # key, value

_HEAD = struct.Struct("<II")
_PAIR_BYTES = 150  # what Python holds beside the bytes of a pair


def sorted_on_disk(
    pairs: Iterable[tuple[bytes, bytes]], *, run_bytes: int = RUN_BYTES
) -> Iterator[tuple[bytes, bytes]]:
    """The pairs in order. Raises OSError when the disk does not take them."""
    run: list[Pair] = []
    runs: list[IO[bytes]] = []
    held_bytes = 0
    with ExitStack() as files:
        for pair in pairs:
            run.append(pair)
            held_bytes += len(pair[0]) + len(pair[1]) + _PAIR_BYTES
            if held_bytes >= run_bytes:
                run.sort()
                runs.append(files.enter_context(tempfile.TemporaryFile()))
                parts = ((_HEAD.pack(len(key), len(value)), key, value) for key, value in run)
                runs[-1].writelines(part for three in parts for part in three)
                runs[-1].seek(0)
                run, held_bytes = [], 0
        run.sort()
        yield from heapq.merge(run, *map(_take_up, runs))


def _take_up(file: IO[bytes]) -> Iterator[Pair]:
    while head := file.read(_HEAD.size):
        key_bytes, value_bytes = _HEAD.unpack(head)
        yield file.read(key_bytes), file.read(value_bytes)
