"""Exports of a log in Postgres and their verification: rates, how they grow, peak memory, beside a plain COPY.

An episode is three records and one body of about 40 kB. Each figure is taken in a fresh process that does only that,
its start not included, verification with as many processes beside it as the command would use; memory is the highest
sum over all of them, looked at every few hundredths of a second. The floor is what Postgres hands out when nobody
looks: COPY of the same compressed bodies to a file, in the same run. Sizes in records: `BENCH_RECORDS=100000 make bench
ARGS=export` lets the log grow further.
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
from functools import partial
from pathlib import Path

import asyncpg
import msgspec

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Signer
from arena.export.exporter import export_records
from arena.export.model import Format, Request
from arena.export.verification import verify_export
from arena.records.model import ReleasedProblem, ReleaseRecord
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.postgres import PostgresStore
from foundation.executors.processes import executor_of
from neurons.cluster.ray_executor import processes_for
from tests.arena.log_stand import HOST, episode
from tests.benchmarks.apart import run_apart
from tests.benchmarks.row import Row, held

BODY_BYTES, BATCH = 40_000, 100
EPISODES_TARGET, RECORDS_TARGET, MEMORY_MB = 1_000, 5_000, 500
GROWN = int(os.environ.get("BENCH_RECORDS", "10000"))
SIZES = [size for size in (1_000, 10_000, 100_000) if size <= GROWN]
FORMATS: tuple[Format, ...] = ("jsonl", "parquet")
_row = partial(held, command="make bench ARGS=export")


class Measured(msgspec.Struct):
    """One export or verification in a process of its own. `cpu_s`: of it and of all it started."""

    records: int
    episodes: int
    seconds: float
    cpu_s: float
    peak_mb: float = 0.0


def measure() -> Sequence[Row]:
    """Rates on a fresh embedded server."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_embedded(state_dir)
    try:
        return [row for size in SIZES for row in _measure(server, size, state_dir)]
    finally:
        server.stop()
        shutil.rmtree(state_dir)


def _measure(server: EmbeddedServer, size: int, folder: Path) -> list[Row]:
    """Export and verify one log of about `size` records in each format."""
    uri = f"//export-{size}"
    signer, episodes = keypair_signer(uri), size // 3
    asyncio.run(_fill(server, signer, episodes))
    floor = episodes / asyncio.run(_plain_copy(server, signer.hotkey, folder / "plain"))
    (folder / "plain").unlink()
    rows = [_row(f"plain COPY of {episodes:,} bodies", floor, "episodes/s", None)]
    for name in FORMATS:
        out = folder / f"{name}-{size}"
        made = _apart("export", str(out), server.dsn_for(signer.hotkey), uri, name)
        rate = made.episodes / made.seconds
        rows.append(_row(f"export to {name}, log of {size:,}", rate, "episodes/s", EPISODES_TARGET))
        rows.append(_row(f"that, against plain COPY, log of {size:,}, {name}", rate, "episodes/s", floor))
        rows.append(_row(f"processor time of it, log of {size:,}, {name}", _cpu_us(made, made.episodes), "us", None))
        rows.append(_row(f"peak memory of it, log of {size:,}, {name}", made.peak_mb, "MB", MEMORY_MB))
        seen = _apart("verify", str(out), str(processes_for(size)))
        rows.append(
            _row(f"verify a {name} export, log of {size:,}", seen.records / seen.seconds, "records/s", RECORDS_TARGET)
        )
        rows.append(_row(f"processor time of that, log of {size:,}, {name}", _cpu_us(seen, seen.records), "us", None))
        rows.append(_row(f"peak memory of that, log of {size:,}, {name}", seen.peak_mb, "MB", MEMORY_MB))
        shutil.rmtree(out)
    return rows


async def _fill(server: EmbeddedServer, signer: Signer, episodes: int) -> None:
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    sequencer = Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    for first in range(0, episodes, BATCH):
        batch = [episode(number, result_bytes=BODY_BYTES) for number in range(first, min(first + BATCH, episodes))]
        payloads = [payload for payloads, _ in batch for payload in payloads]
        await sequencer.append(payloads, [body for _, body in batch])
    problems = tuple(
        ReleasedProblem(problem_id=f"p{number:04d}", pool="train", cluster_id="aa") for number in range(episodes)
    )
    await sequencer.append([ReleaseRecord(race_id="r1", batch_sha256="77", problems=problems, salt="99" * 32)])
    await store.close()


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


def _apart(*arguments: str) -> Measured:
    """One run, as a process that does nothing else."""
    printed, peak_mb = run_apart(f"import {__name__} as bench; bench.run_alone()", *arguments)
    return msgspec.structs.replace(msgspec.json.decode(printed, type=Measured), peak_mb=peak_mb)


def run_alone() -> None:
    """The program of that process: what to do from its arguments, the result as JSON."""
    what, out, *arguments = sys.argv[1:]
    if what == "export":
        measured = asyncio.run(_export(Path(out), *arguments))
    else:
        measured = _verify(Path(out), int(arguments[0]))
    sys.stdout.write(msgspec.json.encode(measured).decode())


async def _export(out: Path, dsn: str, uri: str, view: Format) -> Measured:
    signer = keypair_signer(uri)
    store = await PostgresStore.open(dsn, signer.hotkey)
    started = time.perf_counter()
    manifest = await export_records(
        store,
        Request(validator=signer.hotkey, formats=(view,)),
        out,
        verify_signature=verify,
        software="bench",
        signer=signer,
        now_ms=0,
    )
    seconds = time.perf_counter() - started
    await store.close()
    return _measured(manifest.log.last_seq, manifest.trajectories, seconds)


def _verify(out: Path, processes: int) -> Measured:
    started = time.perf_counter()
    report = verify_export(out, verify, executor=executor_of(processes))
    seconds = time.perf_counter() - started
    if not report.is_ok:
        raise ValueError(f"the export just written does not verify: {report.wrong[0]}")
    return _measured(report.last_seq, report.trajectories, seconds)


def _measured(records: int, episodes: int, seconds: float) -> Measured:
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime
    return Measured(records=records, episodes=episodes, seconds=seconds, cpu_s=cpu_s)


def _cpu_us(measured: Measured, count: int) -> float:
    """Processor time of one episode or record, start included."""
    return measured.cpu_s * 1e6 / count
