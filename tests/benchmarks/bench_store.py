"""The log: appends one per commit and in batches, what they cost over plain inserts and COPY, and how that grows.

A record is an evaluation with its body of 30-60 kB (an episode adds a small attempt and a verdict record, measured
apart). The floors are the same compressed bodies put into a bare table by the bare driver: nothing signed, chained or
indexed. A disk's mood changes by the second: floors and appends take turns, and the median of the rounds counts. A new
server first has to make the files of its write-ahead log: that is over before anything is measured.
`BENCH_RECORDS=100000 make bench ARGS=store` lets the log grow further than to 10,000 records.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import asyncpg
import msgspec

from arena.chain.keys import generate_signer, verify
from arena.records.body import compress_bodies, encode_body
from arena.records.model import Payload, StoredBody, VerdictRecord
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.objects import BodyObjects, folder_location, open_objects
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, body, episode
from tests.benchmarks.row import Row

ROUNDS, SINGLE, BATCHES, BATCH = 5, 60, 4, 100  # of each round
WARM = 2_000
BODY_BYTES = range(30_000, 60_001, 2_000)
WINDOW = 1_000  # records over which a rate is taken while the log grows
GROWN = int(os.environ.get("BENCH_RECORDS", "10000"))
COMMAND = "make bench ARGS=store"

Episode = tuple[list[Payload], StoredBody]
Insert = Callable[[asyncpg.Connection, list[tuple[bytes]]], Awaitable[object]]


def measure() -> Sequence[Row]:
    """Rates in records a second on a fresh embedded server."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    started = time.perf_counter()
    server = start_embedded(state_dir)
    cold_s = time.perf_counter() - started
    try:
        rows = asyncio.run(_rates(server, open_objects(folder_location(state_dir / "bodies"))))
    finally:
        server.stop()
        started = time.perf_counter()
        start_embedded(state_dir).stop()
        warm_s = time.perf_counter() - started
        shutil.rmtree(state_dir)
    starts = [Row(name="embedded start, cold", value=cold_s, unit="s", command=COMMAND)]
    return [*rows, *starts, Row(name="embedded start and stop, warm", value=warm_s, unit="s", command=COMMAND)]


async def _rates(server: EmbeddedServer, folder: BodyObjects) -> list[Row]:
    count = SINGLE + BATCHES * BATCH
    rounds = [list(_episodes(number * count, count)) for number in range(ROUNDS)]
    evaluations = [[(payloads[1:2], stored) for payloads, stored in whole] for whole in rounds]
    async with _log(server) as (_, sequencer):
        await _append(sequencer, [(payloads[1:2], stored) for payloads, stored in _episodes(10**6, WARM)], BATCH)
    taken: dict[str, list[float]] = {}
    async with _log(server) as (_, inside), _log(server, folder) as (_, outside):
        for some in evaluations:
            single, many = some[:SINGLE], some[SINGLE:]
            for name, measured in (
                ("floor 1", _floor(server, single, 1, _insert)),
                ("append 1", _append(inside, single, 1)),
                ("folder 1", _append(outside, single, 1)),
                ("floor 100", _floor(server, many, BATCH, _insert)),
                ("copy 100", _floor(server, many, BATCH, _copy)),
                ("append 100", _append(inside, many, BATCH)),
                ("folder 100", _append(outside, many, BATCH)),
            ):
                taken.setdefault(name, []).append(await measured)
    rate = {name: statistics.median(values) for name, values in taken.items()}
    rows = [
        _rate("append, one per commit", rate["append 1"], rate["floor 1"]),
        _rate("append, 100 per commit", rate["append 100"], rate["floor 100"]),
        _rate("append, 100 per commit, over COPY", rate["append 100"], rate["copy 100"]),
        _rate("append, one per commit, bodies in a folder", rate["folder 1"], rate["append 1"]),
        _rate("append, 100 per commit, bodies in a folder", rate["folder 100"], rate["append 100"]),
    ]
    whole = rounds[0]
    async with _log(server) as (store, sequencer):
        rows.append(
            _rate(
                "append of an episode's three records, one per commit", 3 * await _append(sequencer, whole[:SINGLE], 1)
            )
        )
        rows.append(
            _rate(
                "append of episodes' records, 100 episodes per commit",
                3 * await _append(sequencer, whole[SINGLE:], BATCH),
            )
        )
        started = time.perf_counter()
        report = await verify_store(store, verify)
        rows.append(
            _rate("verify, every third record with a body", report.records / (time.perf_counter() - started), 5_000)
        )
    if not report.is_ok:
        raise ValueError(f"the log just written does not verify: {report.defects[0]}")
    return rows + await _growth(server)


async def _growth(server: EmbeddedServer) -> list[Row]:
    """Rates of a log's first thousand records and of its last, and of reading its leaves."""
    async with _log(server) as (store, sequencer):
        first = last = 0.0
        for begin in range(0, GROWN, WINDOW):
            window = [(payloads[1:2], stored) for payloads, stored in _episodes(begin, WINDOW)]
            last = await _append(sequencer, window, BATCH)
            first = first or last
        single = [(payloads[1:2], stored) for payloads, stored in _episodes(GROWN, SINGLE)]
        one = await _append(sequencer, single, 1)
        started = time.perf_counter()
        leaves = [leaf.seq async for leaf in store.leaves(store.validator)]
        leaf_rate = len(leaves) / (time.perf_counter() - started)
    return [
        _rate(f"append, 100 per commit, the last {WINDOW:,} of {GROWN:,} over the first", last, first),
        _rate(f"append, one per commit, in a log of {GROWN:,}", one),
        _rate(f"read leaves of a log of {GROWN:,}", leaf_rate),
    ]


@contextlib.asynccontextmanager
async def _log(
    server: EmbeddedServer, objects: BodyObjects | None = None
) -> AsyncIterator[tuple[PostgresStore, Sequencer]]:
    signer = generate_signer()
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey, objects=objects)
    try:
        yield store, Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    finally:
        await store.close()


def _episodes(first: int, count: int) -> Iterator[Episode]:
    """Episodes of as many different problems, whose texts are drawn from a few: made faster than they are appended."""
    texts = [body(number, result_bytes=size) for number, size in enumerate(BODY_BYTES)]
    dice = random.Random(first)
    for number in range(first, first + count):
        stored = encode_body(msgspec.structs.replace(dice.choice(texts), problem_id=f"p{number:04d}"))
        attempt, evaluation, verdict = episode(number)[0]
        assert isinstance(verdict, VerdictRecord)
        yield (
            [
                msgspec.structs.replace(attempt, body_sha256=stored.body_sha256),
                msgspec.structs.replace(evaluation, body_sha256=stored.body_sha256),
                msgspec.structs.replace(
                    verdict, verdict=msgspec.structs.replace(verdict.verdict, body_sha256=stored.body_sha256)
                ),
            ],
            stored,
        )


def _rate(name: str, value: float, baseline: float | None = None) -> Row:
    ratio = value / baseline if baseline else None
    return Row(name=name, value=value, unit="records/s", baseline=baseline, ratio=ratio, command=COMMAND)


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
