"""The log: what appends in batches cost over a COPY of the same compressed bodies into a bare table.

A record is an evaluation with its body of 30-60 kB. A disk's mood changes by the second: floor and appends take turns,
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
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import asyncpg
import msgspec

from arena.records.body import compress_bodies, encode_body
from arena.records.model import Payload, StoredBody
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, body, episode
from tests.benchmarks.row import Row
from tests.keys import generate_signer

ROUNDS, EPISODES, BATCH, WARM = 5, 400, 100, 2_000
BODY_BYTES = range(30_000, 60_001, 2_000)

Episode = tuple[Payload, StoredBody]


def measure() -> Sequence[Row]:
    """Records a second on a fresh embedded server."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_embedded(state_dir)
    try:
        appended, copied = asyncio.run(_rates(server))
    finally:
        server.stop()
        shutil.rmtree(state_dir)
    name = "append, 100 per commit, over COPY"
    return [Row(name=name, value=appended, unit="records/s", baseline=copied, command="make bench ARGS=store")]


async def _rates(server: EmbeddedServer) -> tuple[float, float]:
    """Appended and copied bodies a second."""
    async with _log(server) as sequencer:
        await _append(sequencer, list(_episodes(10**6, WARM)))
    appended, copied = [], []
    async with _log(server) as sequencer:
        for number in range(ROUNDS):
            some = list(_episodes(number * EPISODES, EPISODES))
            copied.append(await _copy(server, some))
            appended.append(await _append(sequencer, some))
    return statistics.median(appended), statistics.median(copied)


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
        yield msgspec.structs.replace(episode(number)[0][1], body_sha256=stored.body_sha256), stored


async def _append(sequencer: Sequencer, episodes: Sequence[Episode]) -> float:
    started = time.perf_counter()
    for first in range(0, len(episodes), BATCH):
        payloads, bodies = zip(*episodes[first : first + BATCH], strict=True)
        await sequencer.append(payloads, bodies)
    return len(episodes) / (time.perf_counter() - started)


async def _copy(server: EmbeddedServer, episodes: Sequence[Episode]) -> float:
    """Bodies a second, compressed and copied into a bare table by the bare driver: nothing signed or indexed."""
    connection = await asyncpg.connect(server.owner_dsn)
    await connection.execute("create table public.plain (body bytea not null)")
    await connection.execute("alter table public.plain alter column body set storage external")
    started = time.perf_counter()
    for first in range(0, len(episodes), BATCH):
        frames = await compress_bodies([stored for _, stored in episodes[first : first + BATCH]])
        rows = [(frame.content,) for frame in frames]
        await connection.copy_records_to_table("plain", schema_name="public", records=rows, columns=["body"])
    rate = len(episodes) / (time.perf_counter() - started)
    await connection.execute("drop table public.plain")
    await connection.close()
    return rate
