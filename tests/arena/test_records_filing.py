"""How a record is filed follows from its content alone, and is what the append function of the schema makes of it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg
import pytest

from arena.records.body import encode_content
from arena.records.model import Filing, Payload, RecordContent, filing_of
from arena.store.embedded import EmbeddedServer
from tests.arena.log_stand import HOST, START_MS, attempt, episode, release, settlement
from tests.arena.test_store_append import MINE, SHA, Log, content

PAYLOADS, STORED = episode(1)
NAME = STORED.body_sha256
SAMPLES = 250
MISSING = object()
RACES = (MISSING, None, "", "r1", "ü ✓", "a\0b", "\\u0000", 5)
BODIES = (MISSING, None, "", SHA.hex(), SHA.hex().upper(), "zz")
FIELDS = {
    "kind": ("attempt", "verdict", "rebuttal"),
    "race_id": RACES,
    "body_sha256": BODIES,
    "context": (MISSING, None, {}, [1], "x", *({"race_id": race} for race in RACES[1:])),
    "verdict": (MISSING, None, {}, [1], *({"body_sha256": body} for body in BODIES[1:])),
}


@pytest.mark.parametrize(
    ("payload", "filing"),
    [
        (PAYLOADS[0], Filing("attempt", "r1", NAME)),
        (PAYLOADS[1], Filing("evaluation", "r1", NAME)),
        (PAYLOADS[2], Filing("verdict", "r1", NAME)),
        (attempt(1), Filing("attempt", "r1", "")),
        (settlement("r7"), Filing("settlement", "r7", "")),
        (release("r8"), Filing("release", "r8", "")),
    ],
)
def test_each_kind_is_filed_under_its_race_and_the_body_it_is_about(payload: Payload, filing: Filing) -> None:
    assert filing_of(encode_content(RecordContent(recorded_ms=START_MS, host=HOST, payload=payload))) == filing


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff", b"{}", b'{"payload":[]}', b'{"payload":{"kind":5}}'])
def test_bytes_that_are_no_record_are_filed_nowhere(content: bytes) -> None:
    assert filing_of(content) is None


async def test_rows_are_filed_as_their_contents_say(store, sequencer) -> None:
    await sequencer.append(PAYLOADS, [STORED])
    await sequencer.append([attempt(2), settlement("r7"), release("r8")])
    rows = [row async for row in store.filed_records(store.validator)]
    assert [row.filing for row in rows] == [filing_of(row.content) for row in rows]
    assert all(row.is_dated for row in rows)
    paged = [row async for row in store.filed_records(store.validator, after_seq=1, page=2)]
    assert [row.seq for row in paged] == [2, 3, 4, 5, 6]


async def test_the_server_files_whatever_it_takes_as_its_bytes_are_read_here(postgres: EmbeddedServer) -> None:
    rng, contents = random.Random(5), list[bytes]()
    connection = await asyncpg.connect(await asyncio.to_thread(postgres.dsn_for, MINE))
    whole = connection.transaction()
    await whole.start()
    log = Log(connection)
    for _ in range(SAMPLES):
        drawn: dict[str, Any] = {name: rng.choice(values) for name, values in FIELDS.items()}
        made = content(**{name: value for name, value in drawn.items() if value is not MISSING})
        one = connection.transaction()
        await one.start()
        if (await log.call(contents=[made]))[0] == "refused":
            await one.rollback()
        else:
            await one.commit()
            contents.append(made)
    rows = await connection.fetch("select kind, race_id, body_sha256 from arena.record order by seq")
    await whole.rollback()
    await connection.close()
    filed = [Filing(row["kind"], row["race_id"], (row["body_sha256"] or b"").hex()) for row in rows]
    read = [filing_of(made) for made in contents]
    assert len(filed) == len(read) > SAMPLES // 3
    assert sum(filing is not None for filing in read) > SAMPLES // 4
    assert [pair for pair in zip(filed, read, strict=True) if pair[1] is not None and pair[0] != pair[1]] == []
