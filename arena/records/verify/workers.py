"""Where records are inspected: on a thread of this process, or in processes of their own.

Both run `arena.records.verify.inspection.inspect` on the same entries and give the same findings in the same
order; a process that dies ends the verification with V2052, and nothing is skipped. Entries go to a process as stored
(frames still compressed), and what comes back is small. Processes end with their parent, however it ends.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from arena.chain.port import Verifier
from arena.records.verify.inspection import Entry, RecordFinding, inspect
from foundation.errors import ArenaError
from foundation.executors.processes import begin_process

_ENCODER = msgspec.msgpack.Encoder()
_ENTRIES = msgspec.msgpack.Decoder(list[Entry])
_FINDINGS = msgspec.msgpack.Decoder(list[RecordFinding])


class Inspector(Protocol):
    """Whoever inspects records. `depth`: how many batches may be with it at a time, so that it never waits."""

    @property
    def depth(self) -> int: ...

    async def inspect(self, entries: Sequence[Entry]) -> list[RecordFinding]:
        """One finding per entry, in order. Raises ArenaError V2052 when a process died."""
        ...


class ThreadInspector:
    """Inspects beside the event loop, on one thread."""

    depth = 2

    def __init__(self, verify_signature: Verifier) -> None:
        self._verify_signature = verify_signature

    async def inspect(self, entries: Sequence[Entry]) -> list[RecordFinding]:
        """One finding per entry, in order."""
        return await asyncio.to_thread(_inspect_all, self._verify_signature, entries)


class ProcessInspector:
    """Inspects in a pool of processes. `verify_signature` is a function of a module, so that they can import it."""

    def __init__(self, pool: ProcessPoolExecutor, processes: int, verify_signature: Verifier) -> None:
        self._pool = pool
        self._verify_signature = verify_signature
        self.depth = 2 * processes

    async def inspect(self, entries: Sequence[Entry]) -> list[RecordFinding]:
        """One finding per entry, in order. Raises ArenaError V2052 when a process died."""
        packed = _ENCODER.encode(entries)
        try:
            running = asyncio.get_running_loop().run_in_executor(
                self._pool, inspect_packed, self._verify_signature, packed
            )
            findings = _FINDINGS.decode(await running)
        except BrokenProcessPool as error:
            raise ArenaError("V2052", str(error)) from error
        if len(findings) != len(entries):
            raise ArenaError("V2052", f"{len(findings)} of {len(entries)} records came back")
        return findings


@asynccontextmanager
async def open_inspector(verify_signature: Verifier, processes: int = 0) -> AsyncIterator[Inspector]:
    """An inspector for the length of the block: `processes` of them, or this one's threads where that is 0."""
    if processes <= 0:
        yield ThreadInspector(verify_signature)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=begin_process)
    try:
        yield ProcessInspector(pool, processes, verify_signature)
    finally:
        await asyncio.to_thread(pool.shutdown, cancel_futures=True)


def inspect_packed(verify_signature: Verifier, packed: bytes) -> bytes:
    """What a process does: entries in, findings out, both as MessagePack."""
    return _ENCODER.encode(_inspect_all(verify_signature, _ENTRIES.decode(packed)))


def _inspect_all(verify_signature: Verifier, entries: Sequence[Entry]) -> list[RecordFinding]:
    return [inspect(entry, verify_signature) for entry in entries]
