"""Where records are inspected: on a thread of this process, or in processes of their own.

Both run `arena.records.verify.inspection.inspect` on the same entries and give the same findings in the same
order; a process that dies ends the verification with V2052, and nothing is skipped. Entries go to a process as stored
(frames still compressed), and what comes back is small (`arena.records.verify.handover`). Processes end with their
parent, however it ends.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from typing import Protocol

from arena.chain.port import Verifier
from arena.records.verify.handover import MemoryFile, begin, inspect_batch, make_memory_files, read_findings
from arena.records.verify.inspection import Entry, RecordFinding, inspect
from foundation.errors import ArenaError


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
    """Inspects in a pool of processes that began with these files. `verify_signature` is a function of a module, so
    that they can import it."""

    def __init__(self, pool: ProcessPoolExecutor, files: Sequence[MemoryFile], verify_signature: Verifier) -> None:
        self._pool = pool
        self._files = files
        self._free = list(range(len(files)))
        self._verify_signature = verify_signature
        self.depth = len(files)

    async def inspect(self, entries: Sequence[Entry]) -> list[RecordFinding]:
        """One finding per entry, in order. At most `depth` at a time. Raises ArenaError V2052 when a process died."""
        number = self._free.pop()
        try:
            size = self._files[number].put(entries)
            running = asyncio.get_running_loop().run_in_executor(
                self._pool, inspect_batch, self._verify_signature, number, size
            )
            findings = read_findings(await running)
        except BrokenProcessPool as error:
            raise ArenaError("V2052", str(error)) from error
        finally:
            self._free.append(number)
        if len(findings) != len(entries):
            raise ArenaError("V2052", f"{len(findings)} of {len(entries)} records came back")
        return findings


@asynccontextmanager
async def open_inspector(verify_signature: Verifier, processes: int = 0) -> AsyncIterator[Inspector]:
    """An inspector for the length of the block: `processes` of them, or this one's threads where that is 0."""
    if processes <= 0:
        yield ThreadInspector(verify_signature)
        return
    files = make_memory_files(2 * processes)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=begin, initargs=(files,))
    try:
        yield ProcessInspector(pool, files, verify_signature)
    finally:
        await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        for file in files:
            file.close()


def _inspect_all(verify_signature: Verifier, entries: Sequence[Entry]) -> list[RecordFinding]:
    return [inspect(entry, verify_signature) for entry in entries]
