"""Sorting more than memory should hold: runs sorted in memory, put on disk, and merged.

`sorted_on_disk` gives pairs by key, then by value, whatever the order they came in; memory holds one run and a
buffer for each run on disk. `sorted_numbers` does the same for many small pairs: memory holds a few runs, however many
lie on disk. The files have no name and go with the process, however it ends; they lie in `folder`, else where the
system puts what is temporary.
"""

from __future__ import annotations

import heapq
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

RUN_BYTES = 8 << 20  # of keys and values, held in memory at a time

Pair = tuple[bytes, bytes]  # key, value
Numbers = NDArray[np.uint64]  # two rows: keys, values

_HEAD = struct.Struct("<II")
_PAIR_BYTES = 150  # what Python holds beside the bytes of a pair
_NUMBERS_BYTES = 16  # of a pair of numbers on disk
_BLOCK_PAIRS_MIN = 64  # of one run, read at a time
_KEY_MAX = np.uint64(2**64 - 1)


def sorted_on_disk(
    pairs: Iterable[tuple[bytes, bytes]], *, folder: Path | None = None, run_bytes: int = RUN_BYTES
) -> Iterator[tuple[bytes, bytes]]:
    """The pairs in order. Raises OSError when the disk does not take them."""

    def take_up(file: IO[bytes]) -> Iterator[Pair]:
        while head := file.read(_HEAD.size):
            key_bytes, value_bytes = _HEAD.unpack(head)
            yield file.read(key_bytes), file.read(value_bytes)

    run: list[Pair] = []
    runs: list[IO[bytes]] = []
    held_bytes = 0
    with ExitStack() as files:
        for pair in pairs:
            run.append(pair)
            held_bytes += len(pair[0]) + len(pair[1]) + _PAIR_BYTES
            if held_bytes >= run_bytes:
                run.sort()
                runs.append(files.enter_context(tempfile.TemporaryFile(dir=folder)))
                parts = ((_HEAD.pack(len(key), len(value)), key, value) for key, value in run)
                runs[-1].writelines(part for three in parts for part in three)
                runs[-1].seek(0)
                run, held_bytes = [], 0
        run.sort()
        yield from heapq.merge(run, *map(take_up, runs))


def sorted_numbers(
    batches: Iterable[Numbers], *, folder: Path | None = None, run_bytes: int = RUN_BYTES
) -> Iterator[Numbers]:
    """The pairs of all batches by key, in pieces no longer than a run; values of one key in any order.

    Memory: four runs. With more than `run_bytes` / 1,024 of them on disk, 1 kB for each. Raises OSError when the disk
    does not take them.
    """
    room = max(1, run_bytes // _NUMBERS_BYTES)
    run, held = np.empty((2, room), np.uint64), 0
    with tempfile.TemporaryFile(dir=folder) as file:
        for batch in batches:
            while batch.size:
                taken = batch[:, : room - held]
                batch = batch[:, taken.shape[1] :]
                run[:, held : held + taken.shape[1]] = taken
                held += taken.shape[1]
                if held == room:
                    file.write(run[:, run[0].argsort()].T.tobytes())
                    held = 0
        file.write(run[:, run[0, :held].argsort()].T.tobytes())
        file.flush()
        del run
        total = file.tell() // _NUMBERS_BYTES
        coming = [range(start, min(start + room, total)) for start in range(0, total, room)]
        block_pairs = max(_BLOCK_PAIRS_MIN, room // max(1, len(coming)))
        blocks = [np.empty((2, 0), np.uint64) for _ in coming]
        while True:
            for place, pairs in enumerate(coming):
                if pairs and not blocks[place].size:
                    now, coming[place] = pairs[:block_pairs], pairs[block_pairs:]
                    data = os.pread(file.fileno(), len(now) * _NUMBERS_BYTES, now.start * _NUMBERS_BYTES)
                    blocks[place] = np.frombuffer(data, np.uint64).reshape(-1, 2).T.copy()
            if not any(block.size for block in blocks):
                return
            # what is still on disk is not below the last key of its run's block
            limit = min((block[0, -1] for block, pairs in zip(blocks, coming, strict=True) if pairs), default=_KEY_MAX)
            cuts = [int(block[0].searchsorted(limit, "right")) for block in blocks]
            piece = np.concatenate([block[:, :cut] for block, cut in zip(blocks, cuts, strict=True)], axis=1)
            blocks = [block[:, cut:] for block, cut in zip(blocks, cuts, strict=True)]
            yield piece[:, piece[0].argsort()]
