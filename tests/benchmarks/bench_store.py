"""The log: appends one per commit and in batches, and what they cost over plain inserts and COPY.

A record is an evaluation with its body of 30-60 kB. The floors are the same compressed bodies put into a bare table by
the bare driver: nothing signed, chained or indexed. A disk's mood changes by the second: floors and appends take turns,
and the median of the rounds counts. A new server first has to make the files of its write-ahead log: that is over
before anything is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import asyncpg
import msgspec

from arena.chain.keys import generate_signer
from arena.records.body import compress_bodies, encode_body
from arena.records.model import Payload, StoredBody
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, body, episode
from tests.benchmarks.row import Row, held

ROUNDS, SINGLE, BATCHES, BATCH = 5, 60, 4, 100  # of each round
WARM = 2_000
BODY_BYTES = range(30_000, 60_001, 2_000)
_row = partial(held, command="make bench ARGS=store")

Episode = tuple[list[Payload], StoredBody]
Insert = Callable[[asyncpg.Connection, list[tuple[bytes]]], Awaitable[object]]


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
    return [*rows, _row("embedded start, cold", cold_s, "s"), _row("embedded start and stop, warm", warm_s, "s")]


async def _rates(server: EmbeddedServer) -> list[Row]:
    count = SINGLE + BATCHES * BATCH
    async with _log(server) as sequencer:
        await _append(sequencer, list(_episodes(10**6, WARM)), BATCH)
    taken: dict[str, list[float]] = {}
    async with _log(server) as sequencer:
        for number in range(ROUNDS):
            some = list(_episodes(number * count, count))
            single, many = some[:SINGLE], some[SINGLE:]
            for name, measured in (
                ("floor 1", _floor(server, single, 1, _insert)),
                ("append 1", _append(sequencer, single, 1)),
                ("floor 100", _floor(server, many, BATCH, _insert)),
                ("copy 100", _floor(server, many, BATCH, _copy)),
                ("append 100", _append(sequencer, many, BATCH)),
            ):
                taken.setdefault(name, []).append(await measured)
    rate = {name: statistics.median(values) for name, values in taken.items()}
    return [
        _row("append, one per commit", rate["append 1"], "records/s", rate["floor 1"]),
        _row("append, 100 per commit", rate["append 100"], "records/s", rate["floor 100"]),
        _row("append, 100 per commit, over COPY", rate["append 100"], "records/s", rate["copy 100"]),
    ]


@contextlib.asynccontextmanager
async def _log(server: EmbeddedServer) -> AsyncIterator[Sequencer]:
    signer = generate_signer()
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    try:
        yield Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    finally:
        await store.close()


def _episodes(first: int, count: int) -> Iterator[Episode]:
    """Episodes of as many different problems, whose texts are drawn from a few: made faster than they are appended."""
    texts = [body(number, result_bytes=size) for number, size in enumerate(BODY_BYTES)]
    dice = random.Random(first)
    for number in range(first, first + count):
        stored = encode_body(msgspec.structs.replace(dice.choice(texts), problem_id=f"p{number:04d}"))
        evaluation = episode(number)[0][1]
        yield [msgspec.structs.replace(evaluation, body_sha256=stored.body_sha256)], stored


async def _append(sequencer: Sequencer, episodes: Sequence[Episode], batch: int) -> float:
    """Episodes a second, `batch` of them in each commit."""
    started = time.perf_counter()
    for first in range(0, len(episodes), batch):
        some = episodes[first : first + batch]
        await sequencer.append(
            [payload for payloads, _ in some for payload in payloads], [stored for _, stored in some]
        )
    return len(episodes) / (time.perf_counter() - started)


async def _floor(server: EmbeddedServer, episodes: Sequence[Episode], batch: int, insert: Insert) -> float:
    """Bodies a second, compressed and put into a bare table, `batch` of them in each commit."""
    connection = await asyncpg.connect(server.owner_dsn)
    await connection.execute("create table public.plain (body bytea not null)")
    await connection.execute("alter table public.plain alter column body set storage external")
    started = time.perf_counter()
    for first in range(0, len(episodes), batch):
        frames = await compress_bodies([stored for _, stored in episodes[first : first + batch]])
        async with connection.transaction():
            await insert(connection, [(frame.content,) for frame in frames])
    rate = len(episodes) / (time.perf_counter() - started)
    await connection.execute("drop table public.plain")
    await connection.close()
    return rate


async def _insert(connection: asyncpg.Connection, rows: list[tuple[bytes]]) -> object:
    return await connection.executemany("insert into public.plain values ($1)", rows)


async def _copy(connection: asyncpg.Connection, rows: list[tuple[bytes]]) -> object:
    return await connection.copy_records_to_table("plain", schema_name="public", records=rows, columns=["body"])
