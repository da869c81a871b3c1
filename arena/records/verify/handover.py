"""What goes between a verification and its processes: batches of entries there, findings back.

A batch of some megabytes lies in a file that is only in memory and that the processes inherit: written once and read
once, where a pipe would have it copied and handed on in pieces. Findings are small and come back as they are.
This module is what such a process imports: it stays light, since each of them starts with it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from multiprocessing.reduction import DupFd
from typing import Any

import msgspec

from arena.chain.port import Verifier
from arena.records.verify.inspection import Entry, RecordFinding, inspect
from foundation.executors.processes import begin_process

_ENCODER = msgspec.msgpack.Encoder()
_ENTRIES = msgspec.msgpack.Decoder(list[Entry])
_FINDINGS = msgspec.msgpack.Decoder(list[RecordFinding])

_files: Sequence[MemoryFile] = ()  # of a process that was started with them


class MemoryFile:
    """Room for one batch at a time, as large as that is. Its maker and the processes it starts share it."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, ...]:
        """Only towards a process that is being started: it inherits the file."""
        return _inherited, (DupFd(self._file),)

    def put(self, entries: Sequence[Entry]) -> int:
        """Write a batch over the one before; returns its bytes."""
        packed = memoryview(_ENCODER.encode(entries))
        os.ftruncate(self._file, len(packed))
        written = 0
        while written < len(packed):  # one call writes 2 GB at most
            written += os.pwrite(self._file, packed[written:], written)
        return written

    def take(self, size: int) -> list[Entry]:
        """The batch of so many bytes that was written last."""
        with mmap.mmap(self._file, size, access=mmap.ACCESS_READ) as packed:
            return _ENTRIES.decode(packed)

    def close(self) -> None:
        """Give the memory back. Call once, where it was made."""
        os.close(self._file)


def make_memory_files(count: int) -> list[MemoryFile]:
    """So many empty ones."""
    return [MemoryFile(os.memfd_create("arena-verify")) for _ in range(count)]


def begin(files: Sequence[MemoryFile]) -> None:
    """What a process starts with."""
    global _files
    begin_process()
    _files = files


def inspect_batch(verify_signature: Verifier, number: int, size: int) -> bytes:
    """What a process does: the entries of a file in, findings out as MessagePack."""
    return _ENCODER.encode([inspect(entry, verify_signature) for entry in _files[number].take(size)])


def read_findings(packed: bytes) -> list[RecordFinding]:
    """What came back."""
    return _FINDINGS.decode(packed)


def _inherited(file: Any) -> MemoryFile:
    return MemoryFile(file.detach())
