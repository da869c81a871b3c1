"""A log in Postgres read whole: its verification on two processes, and its export to Parquet.

A body is about 40 kB. Each figure is taken in a fresh process that does only that, its start not included; memory is
the highest sum over it and all it starts. The floors are signatures alone, one after another, for verification, and a
COPY of the compressed bodies to a file, for exports. `BENCH_RECORDS=100000 make bench ARGS=log` lets the log grow.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import msgspec

from arena.chain.keys import keypair_signer, verify
from arena.export.exporter import export_records
from arena.export.model import Request
from arena.records.log import message_of
from arena.records.model import Envelope, ReleasedProblem, ReleaseRecord
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.postgres import PostgresStore
from foundation.executors import ProcessExecutor
from tests.arena.log_stand import HOST, episode
from tests.benchmarks.apart import run_apart
from tests.benchmarks.row import Row

BODY_BYTES, BATCH, PROCESSES, MEMORY_MB = 40_000, 100, 2, 500
SIZES = [size for size in (1_000, 10_000, 100_000) if size <= int(os.environ.get("BENCH_RECORDS", "10000"))]
SIGNATURES = 2_000
EXPORTER, EVALUATOR = "//export", "//evaluate"


class Measured(msgspec.Struct):
    """One piece of work in a process of its own. `cpu_s`: of it and of all it started."""

    count: int
    seconds: float
    cpu_s: float


def measure() -> Sequence[Row]:
    """Rates on a fresh embedded server."""
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_embedded(folder)
    try:
        return [*(row for size in SIZES for row in _export_rows(server, size, folder)), *_verify_rows(server)]
    finally:
        server.stop()
        shutil.rmtree(folder)


def _export_rows(server: EmbeddedServer, size: int, folder: Path) -> list[Row]:
    """Export a log of about `size` records: an episode is three, with one body."""
    uri, episodes = f"{EXPORTER}{size}", size // 3
    asyncio.run(_fill(server, uri, episodes, slice(None)))
    floor = episodes / asyncio.run(_copied_s(server, uri, folder / "plain"))
    made, peak_mb = _apart("export", server, uri, str(folder / f"export-{size}"))
    rate, cpu_us = made.count / made.seconds, made.cpu_s * 1e6 / made.count
    return [
        _row(f"export to Parquet against COPY, log of {size:,}", rate, "episodes/s", floor),
        _row(f"processor time of an episode, log of {size:,}", cpu_us, "us", None),
        _row(f"peak memory of the export, log of {size:,}", peak_mb, "MB", MEMORY_MB),
    ]


def _verify_rows(server: EmbeddedServer) -> list[Row]:
    """Verify evaluations alone, each with a body: a subnet's day of them beside a log of 10,000."""
    asyncio.run(_fill(server, EVALUATOR, 27 * SIZES[-1] // 10, slice(1, 2)))
    found, peak_mb = _apart("verify", server, EVALUATOR, "")
    return [
        _row("verify, 2 processes, every record with a body", found.count / found.seconds, "records/s", _signatures()),
        _row("peak memory of that", peak_mb, "MB", MEMORY_MB),
    ]


def _row(name: str, value: float, unit: str, baseline: float | None) -> Row:
    return Row(name=name, value=value, unit=unit, baseline=baseline, command="make bench ARGS=log")


async def _fill(server: EmbeddedServer, uri: str, episodes: int, kinds: slice) -> None:
    """Append records of so many episodes and their release. An evaluation alone lacks its attempt, which is reported
    and costs nothing."""
    signer = keypair_signer(uri)
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    sequencer = Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    for first in range(0, episodes, BATCH):
        batch = [episode(number, result_bytes=BODY_BYTES) for number in range(first, min(first + BATCH, episodes))]
        await sequencer.append([one for payloads, _ in batch for one in payloads[kinds]], [body for _, body in batch])
    problems = tuple(
        ReleasedProblem(problem_id=f"p{number:04d}", pool="train", cluster_id="aa") for number in range(episodes)
    )
    await sequencer.append([ReleaseRecord(race_id="r1", batch_sha256="77", problems=problems, salt="99" * 32)])
    await store.close()


async def _copied_s(server: EmbeddedServer, uri: str, path: Path) -> float:
    """Seconds that the floor of an export takes."""
    connection, bodies = await asyncpg.connect(server.owner_dsn), "select content from arena.body where validator = $1"
    started = time.perf_counter()
    await connection.copy_from_query(bodies, keypair_signer(uri).hotkey, output=str(path), format="binary")
    elapsed_s = time.perf_counter() - started
    await connection.close()
    return elapsed_s


def _signatures() -> float:
    """Signatures of records checked a second, one after another."""
    signer = keypair_signer(EVALUATOR)
    fields = {"validator": signer.hotkey, "seq": 1, "prev": "00" * 32, "content_sha256": "11" * 32}
    message = message_of(Envelope(**fields, signature=""))
    signature = signer.sign(message)
    started = time.perf_counter()
    for _ in range(SIGNATURES):
        verify(signer.hotkey, message, signature)
    return SIGNATURES / (time.perf_counter() - started)


def _apart(what: str, server: EmbeddedServer, uri: str, out: str) -> tuple[Measured, float]:
    """One run, as a process that does nothing else, and its peak memory in MB."""
    program = f"import {__name__} as bench; bench.run_alone()"
    printed, peak_mb = run_apart(program, what, server.dsn_for(keypair_signer(uri).hotkey), uri, out)
    return msgspec.json.decode(printed, type=Measured), peak_mb


class NoPandas:
    """As in a validator's install: pyarrow imports it where it finds it, at the first array."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Finds nothing, and nobody after it finds pandas."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def run_alone() -> None:
    """The program of that process: what to do from its arguments, the result as JSON."""
    sys.meta_path.insert(0, NoPandas)
    what, dsn, uri, out = sys.argv[1:]
    count, seconds = asyncio.run(_export(dsn, uri, Path(out)) if what == "export" else _verify(dsn))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
    sys.stdout.write(msgspec.json.encode(Measured(count=count, seconds=seconds, cpu_s=cpu_s)).decode())


async def _export(dsn: str, uri: str, out: Path) -> tuple[int, float]:
    signer = keypair_signer(uri)
    store = await PostgresStore.open(dsn, signer.hotkey)
    started, request = time.perf_counter(), Request(validator=signer.hotkey, formats=("parquet",))
    manifest = await export_records(
        store, request, out, verify_signature=verify, software="bench", signer=signer, now_ms=0
    )
    seconds = time.perf_counter() - started
    await store.close()
    return manifest.trajectories, seconds


async def _verify(dsn: str) -> tuple[int, float]:
    store = await PostgresStore.open(dsn)
    started = time.perf_counter()
    report = await verify_store(store, verify, executor=ProcessExecutor(PROCESSES))
    seconds = time.perf_counter() - started
    await store.close()
    return report.records, seconds
