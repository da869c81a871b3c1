"""Verification of a whole log in Postgres, on two processes: episodes, evaluations alone, and how it grows.

A body is about 40 kB; in an episode every third record has one. Each figure is taken in a fresh process that only
verifies, its start included; memory is the peak of that process and both it starts, added up. The floor is the
signatures alone, one after another. `BENCH_RECORDS=100000 make bench ARGS=verify` lets the log grow further.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from arena.chain.keys import generate_signer, verify
from arena.chain.port import Signer
from arena.records.log import signing_message
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.postgres import PostgresStore
from foundation.executors.processes import executor_of
from tests.arena.log_stand import HOST, episode
from tests.benchmarks.apart import run_apart
from tests.benchmarks.row import Row, held

BODY_BYTES, BATCH, PROCESSES, TARGET, MEMORY_MB = 40_000, 100, 2, 5_000, 500
GROWN = int(os.environ.get("BENCH_RECORDS", "10000"))
SIZES = [size for size in (1_000, 10_000, 100_000) if size <= GROWN]
EVALUATIONS, SIGNATURES = 27_000, 2_000  # a subnet's day
_row = partial(held, command="make bench ARGS=verify")


class Measured(msgspec.Struct):
    """One verification in a process of its own."""

    records: int
    seconds: float
    peak_mb: float
    is_ok: bool


def measure() -> Sequence[Row]:
    """Rates in records a second on a fresh embedded server."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_embedded(state_dir)
    try:
        return asyncio.run(_rates(server))
    finally:
        server.stop()
        shutil.rmtree(state_dir)


async def _rates(server: EmbeddedServer) -> list[Row]:
    rows, floor = [], _signatures()
    async with _log(server) as (store, signer):
        filled = 0
        for size in SIZES:
            await _fill(store, signer, range(filled, size // 3), slice(None))
            filled = size // 3
            found = _verified(server, signer.hotkey)
            if not found.is_ok:
                raise ValueError("the log just written does not verify")
            name = f"verify, 2 processes, every third record with a body, log of {size}"
            rows.append(_row(name, found.records / found.seconds, "records/s", TARGET))
            rows.append(_row(f"peak memory of that, log of {size}", found.peak_mb, "MB", MEMORY_MB))
    async with _log(server) as (store, signer):
        await _fill(store, signer, range(EVALUATIONS), slice(1, 2))
        found = _verified(server, signer.hotkey)
        rows.append(
            _row("verify, 2 processes, every record with a body", found.records / found.seconds, "records/s", floor)
        )
    return rows


@contextlib.asynccontextmanager
async def _log(server: EmbeddedServer) -> AsyncIterator[tuple[PostgresStore, Signer]]:
    signer = generate_signer()
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    try:
        yield store, signer
    finally:
        await store.close()


async def _fill(store: PostgresStore, signer: Signer, numbers: range, kinds: slice) -> None:
    """Append records of these episodes. An evaluation alone lacks its attempt, which is reported and costs nothing."""
    sequencer = Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    for first in range(numbers.start, numbers.stop, BATCH):
        batch = [episode(number, result_bytes=BODY_BYTES) for number in range(first, min(first + BATCH, numbers.stop))]
        await sequencer.append([one for payloads, _ in batch for one in payloads[kinds]], [body for _, body in batch])


def _verified(server: EmbeddedServer, hotkey: str) -> Measured:
    """One verification, as a process that does nothing else."""
    program = f"import {__name__} as bench; bench.verify_alone()"
    printed, peak_mb = run_apart(program, server.dsn_for(hotkey))
    return msgspec.structs.replace(msgspec.json.decode(printed, type=Measured), peak_mb=peak_mb)


def verify_alone() -> None:
    """The program of that process: the DSN from its arguments, the result as JSON."""
    measured = asyncio.run(_verify_dsn(*sys.argv[1:]))
    sys.stdout.write(msgspec.json.encode(measured).decode())


async def _verify_dsn(dsn: str) -> Measured:
    store = await PostgresStore.open(dsn)
    started = time.perf_counter()
    report = await verify_store(store, verify, executor=executor_of(PROCESSES))
    seconds = time.perf_counter() - started
    await store.close()
    return Measured(records=report.records, seconds=seconds, peak_mb=0.0, is_ok=report.is_ok)


def _signatures() -> float:
    """Signatures of records checked a second, one after another."""
    signer = generate_signer()
    message = signing_message(signer.hotkey, 1, "00" * 32, "11" * 32)
    signature = signer.sign(message)
    started = time.perf_counter()
    for _ in range(SIGNATURES):
        verify(signer.hotkey, message, signature)
    return SIGNATURES / (time.perf_counter() - started)
