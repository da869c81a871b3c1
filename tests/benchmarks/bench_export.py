"""Exports: episodes of about 40 kB to JSONL and Parquet, against a plain COPY of the same compressed bodies.

The floor is what Postgres hands out when nobody looks: COPY of the bytea column to a file. Sizes come from the
environment (`BENCH_EXPORT_SIZES="1000 10000 100000"`); without it 1,000 and 10,000 episodes.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from arena.chain.keys import generate_signer, verify
from arena.chain.port import Signer
from arena.export.exporter import export_records
from arena.export.model import Format, Request
from arena.export.verification import verify_export
from arena.records.model import ReleasedProblem, ReleaseRecord
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, episode
from tests.benchmarks.row import Row

SIZES, BATCH, BODY_BYTES = (1_000, 10_000), 100, 40_000
COMMAND = "make bench ARGS=export"
FORMATS: tuple[tuple[Format, ...], ...] = (("jsonl",), ("parquet",))


def measure() -> Sequence[Row]:
    """Episodes (three records, one body) a second on a fresh embedded server, and this process's peak memory."""
    sizes = [int(word) for word in os.environ.get("BENCH_EXPORT_SIZES", "").split()] or list(SIZES)
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_embedded(state_dir)
    try:
        rows = [row for size in sizes for row in asyncio.run(_rates(server, size, state_dir))]
    finally:
        server.stop()
        shutil.rmtree(state_dir)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*rows, Row(name="export, peak memory of the process", value=peak_mb, unit="MB", baseline=500)]


async def _rates(server: EmbeddedServer, size: int, folder: Path) -> list[Row]:
    signer = generate_signer()
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    try:
        await _fill(store, signer, size)
        floor = size / await _plain_copy(server, signer.hotkey, folder / "plain")
        rows = [Row(name=f"plain COPY of {size:,} bodies", value=floor, unit="episodes/s", command=COMMAND)]
        for formats in FORMATS:
            out = folder / f"{formats[0]}-{size}"
            request = Request(validator=signer.hotkey, formats=formats)
            started = time.perf_counter()
            manifest = await export_records(
                store, request, out, verify_signature=verify, software="bench", signer=signer
            )
            rate = manifest.trajectories / (time.perf_counter() - started)
            rows.append(_rate(f"export of {size:,} to {formats[0]}", rate, floor))
            started = time.perf_counter()
            report = await asyncio.to_thread(verify_export, out, verify)
            if not report.is_ok:
                raise ValueError(f"the export just written does not verify: {report.wrong[0]}")
            rows.append(_rate(f"verify that export ({formats[0]})", size / (time.perf_counter() - started), None))
            shutil.rmtree(out)
        return rows
    finally:
        await store.close()


async def _fill(store: PostgresStore, signer: Signer, size: int) -> None:
    sequencer = Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    for first in range(0, size, BATCH):
        numbers = range(first, min(first + BATCH, size))
        batch = [episode(number, result_bytes=BODY_BYTES) for number in numbers]
        payloads = [payload for payloads, _ in batch for payload in payloads]
        await sequencer.append(payloads, [body for _, body in batch])
    problems = tuple(
        ReleasedProblem(problem_id=f"p{number:04d}", pool="train", cluster_id="aa") for number in range(size)
    )
    await sequencer.append([ReleaseRecord(race_id="r1", batch_sha256="77", problems=problems, salt="99" * 32)])


async def _plain_copy(server: EmbeddedServer, hotkey: str, path: Path) -> float:
    """Seconds the floor takes."""
    connection = await asyncpg.connect(server.owner_dsn)
    started = time.perf_counter()
    await connection.copy_from_query(
        "select content from arena.body where validator = $1", hotkey, output=str(path), format="binary"
    )
    elapsed_s = time.perf_counter() - started
    await connection.close()
    return elapsed_s


def _rate(name: str, value: float, baseline: float | None) -> Row:
    ratio = value / baseline if baseline else None
    return Row(name=name, value=value, unit="episodes/s", baseline=baseline, ratio=ratio, command=COMMAND)
