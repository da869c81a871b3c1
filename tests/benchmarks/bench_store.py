"""The log: appends one per commit and in batches, against plain inserts of the same bytes, and verification.

A record is an evaluation with its body of about 40 kB (an episode adds a small attempt and a verdict record, measured
apart). The floor is the same compressed bodies inserted into a bare table by the bare driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg

from arena.chain.keys import generate_signer, verify
from arena.records.model import Payload
from arena.records.sequencer import Sequencer
from arena.records.verify import verify_records
from arena.store.bodies import compress_bodies
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.port import StoredBody
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, episode
from tests.benchmarks.row import Row

ONE_BY_ONE, BATCHES, BATCH, BODY_BYTES = 300, 10, 100, 40_000
COMMAND = "make bench ARGS=store"

Episode = tuple[list[Payload], StoredBody]


def measure() -> Sequence[Row]:
    """Rates in records a second on a fresh embedded server."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    started = time.perf_counter()
    server = start_embedded(state_dir)
    cold_s = time.perf_counter() - started
    try:
        rows = asyncio.run(_rates(server))
    finally:
        server.stop()
        started = time.perf_counter()
        start_embedded(state_dir).stop()
        warm_s = time.perf_counter() - started
        shutil.rmtree(state_dir)
    starts = [Row(name="embedded start, cold", value=cold_s, unit="s", command=COMMAND)]
    return [*rows, *starts, Row(name="embedded start and stop, warm", value=warm_s, unit="s", command=COMMAND)]


async def _rates(server: EmbeddedServer) -> list[Row]:
    episodes = [episode(number, result_bytes=BODY_BYTES) for number in range(ONE_BY_ONE + BATCHES * BATCH)]
    evaluations = [(payloads[1:2], body) for payloads, body in episodes]
    plain_one = await _plain_inserts(server, episodes[:ONE_BY_ONE])
    plain_batch = await _plain_batches(server, episodes[ONE_BY_ONE:])
    async with _log(server) as (_, sequencer):
        one = await _append_singly(sequencer, evaluations[:ONE_BY_ONE])
        many = await _append_batches(sequencer, evaluations[ONE_BY_ONE:])
    async with _log(server) as (store, sequencer):
        whole_one = await _append_singly(sequencer, episodes[:ONE_BY_ONE])
        whole_many = await _append_batches(sequencer, episodes[ONE_BY_ONE:])
        started = time.perf_counter()
        report = await verify_records(store.records(store.validator), verify_signature=verify, bodies_of=store.bodies)
        verified = report.records / (time.perf_counter() - started)
    if not report.is_ok:
        raise ValueError(f"the log just written does not verify: {report.defects[0]}")
    return [
        _rate("append, one per commit", one, plain_one),
        _rate(f"append, {BATCH} per commit", many, plain_batch),
        _rate("append of an episode's three records, one per commit", whole_one * 3, None),
        _rate(f"append of episodes' records, {BATCH} episodes per commit", whole_many * 3, None),
        _rate("verify, every third record with a body", verified, 5_000),
    ]


@contextlib.asynccontextmanager
async def _log(server: EmbeddedServer) -> AsyncIterator[tuple[PostgresStore, Sequencer]]:
    signer = generate_signer()
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    try:
        yield store, Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    finally:
        await store.close()


def _rate(name: str, value: float, baseline: float | None) -> Row:
    ratio = value / baseline if baseline else None
    return Row(name=name, value=value, unit="records/s", baseline=baseline, ratio=ratio, command=COMMAND)


async def _append_singly(sequencer: Sequencer, episodes: Sequence[Episode]) -> float:
    started = time.perf_counter()
    for payloads, body in episodes:
        await sequencer.append(payloads, [body])
    return len(episodes) / (time.perf_counter() - started)


async def _append_batches(sequencer: Sequencer, episodes: Sequence[Episode]) -> float:
    started = time.perf_counter()
    for first in range(0, len(episodes), BATCH):
        batch = episodes[first : first + BATCH]
        payloads = [payload for payloads, _ in batch for payload in payloads]
        await sequencer.append(payloads, [body for _, body in batch])
    return len(episodes) / (time.perf_counter() - started)


async def _plain_inserts(server: EmbeddedServer, episodes: Sequence[Episode]) -> float:
    """The floor: compress and insert the body, nothing signed or chained."""
    connection = await asyncpg.connect(server.owner_dsn)
    await connection.execute("create table public.plain (body bytea not null)")
    await connection.execute("alter table public.plain alter column body set storage external")
    started = time.perf_counter()
    for _, body in episodes:
        await connection.execute("insert into public.plain values ($1)", (await compress_bodies([body]))[0].content)
    rate = len(episodes) / (time.perf_counter() - started)
    await connection.close()
    return rate


async def _plain_batches(server: EmbeddedServer, episodes: Sequence[Episode]) -> float:
    connection = await asyncpg.connect(server.owner_dsn)
    started = time.perf_counter()
    for first in range(0, len(episodes), BATCH):
        bodies = [body for _, body in episodes[first : first + BATCH]]
        rows = [(frame.content,) for frame in await compress_bodies(bodies)]
        await connection.executemany("insert into public.plain values ($1)", rows)
    rate = len(episodes) / (time.perf_counter() - started)
    await connection.close()
    return rate
