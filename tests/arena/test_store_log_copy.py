"""A store behind the copy of its log takes it from there, or says which record is missing; no work is done twice."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.chain.port import Signer
from arena.records.body import compress_bodies, decode_content
from arena.records.log import sign_checkpoint
from arena.records.model import StoredCheckpoint
from arena.records.port import Requeue
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.log_copy import read_events, take_copy, write_copy
from arena.store.objects import BodyObjects, folder_location, open_objects, prefix_of
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError, Failure
from tests.arena.conftest import running_server
from tests.arena.log_stand import HOST, START_MS, Clock, attempt, episode, item
from tests.arena.test_store_objects import entries

RACE, PROBLEMS = "r1", range(1, 9)
OWNERS = {item(1, RACE).subject.miner_hotkey: "cold"}
take = partial(take_copy, owners_of=lambda race, events: OWNERS if (race, events) == (RACE, ["e"]) else {})


@pytest.fixture
def objects(tmp_path: Path) -> BodyObjects:
    return open_objects(folder_location(tmp_path / "objects"))


@pytest.fixture
async def store(open_store, signer: Signer, objects: BodyObjects) -> PostgresStore:
    return await open_store(signer.hotkey, objects=objects)


@pytest.fixture
async def behind(signer: Signer, objects: BodyObjects) -> AsyncIterator[PostgresStore]:
    """A store on another server: what a restored backup is."""
    with running_server() as server:
        store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey, objects=objects)
        yield store
        await store.close()


async def sign(store: PostgresStore, signer: Signer) -> None:
    """Sign the log as it is, copied first, as a node does."""
    point, before = (await verify_store(store, verify)).logs[0].checkpoint, await store.checkpoints()
    note = sign_checkpoint(point, signer)
    made = StoredCheckpoint(validator=signer.hotkey, size=point.size, note=note, signed_ms=point.size)
    await write_copy(store, made, before[-1].size if before else 0, await read_events(store, {}))
    await store.put_checkpoint(made)


async def run(store: PostgresStore, sequencer: Sequencer, count: int) -> None:
    for lease in await store.claim(count, 60_000):
        number = int(lease.item.context.problem_id[1:])
        payloads, body = episode(number, race_id=RACE, attempt_id=lease.attempt_id)
        await sequencer.append(payloads, [body], finish=lease)


async def a_day(store: PostgresStore, signer: Signer, behind: PostgresStore, now_ms: int = START_MS) -> None:
    """A log of six episodes and a fault, of which `behind` knows two episodes, and a third that was running."""
    sequencer = Sequencer(store, signer, Clock(now_ms), HOST)
    await store.enqueue([item(problem, RACE) for problem in PROBLEMS])
    await store.put_event(f"race/{RACE}", 0, "e")
    await run(store, sequencer, 2)
    await sign(store, signer)
    await behind.enqueue([item(problem, RACE) for problem in PROBLEMS[2:5]], OWNERS)
    frames = await compress_bodies([episode(n, race_id=RACE)[1] for n in (1, 2)])
    await behind.append([one async for one in store.records()], frames)
    await behind.claim(1, 1)
    await run(store, sequencer, 3)
    await sign(store, signer)
    (lease,) = await store.claim(1, 60_000)
    about = {"attempt_id": lease.attempt_id, "subject": lease.item.subject, "failure": Failure(code="V2001")}
    fault = replace(attempt(6, ended="faulted"), **about)
    await sequencer.abandon(lease, fault, Requeue(is_fault=True, is_counted=True))
    await run(store, sequencer, 1)
    await sign(store, signer)


@pytest.mark.parametrize("age_s", [60, 2 * 86_400])  # what an agent used counts for a day
async def test_a_store_behind_its_copy_goes_on_and_does_no_work_twice(
    store, signer, objects, behind, age_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.store.log_copy.APPENDED_AT_ONCE", 1)  # an attempt before its evaluation
    await a_day(store, signer, behind, 1_000 * (int(time.time()) - age_s))
    assert await take(behind, verify) == 13
    assert await entries(behind) == await entries(store)
    assert [point.size for point in await behind.checkpoints()] == [6, 15, 19]
    report = await verify_store(behind, verify)
    assert report.is_ok, report.defects
    assert await take(behind, verify) == 0 and not await behind.expired()
    assert await behind.enqueue([item(problem, RACE) for problem in PROBLEMS], OWNERS) == 3  # 1 and 2 are the backup's
    left = await behind.claim(9, 60_000)
    tries = {lease.item.context.problem_id: (lease.faults, lease.counted) for lease in left}
    assert (tries["p0006"], tries["p0008"]) == ((1, 1), (0, 0)) and "p0007" not in tries
    used = sum(len(episode(number, race_id=RACE)[1].content) for number in (3, 4, 5, 7))
    assert {(lease.owner, lease.body_bytes) for lease in left} == {("cold", used if age_s < 86_400 else 0)}
    last = [entry async for entry in store.records(kinds=["attempt"])][-1]
    fence = int(decode_content(last.content).payload.attempt_id.rpartition(":")[2])
    assert all(lease.fence > fence for lease in left)


async def test_a_gap_a_strangers_record_or_a_lost_body_is_refused_by_name(store, signer, objects, behind) -> None:
    await a_day(store, signer, behind)
    folder = objects.folder / prefix_of(signer.hotkey)
    parts = sorted((folder / "log").iterdir())
    whole = [part.read_bytes() for part in parts]
    with pytest.raises(ArenaError, match=r"V2080.*is not signed by"):
        await take(behind, lambda *_: False)
    parts[1].write_bytes(whole[1][:-9])
    with pytest.raises(ArenaError, match=r"V2080.*damaged"):
        await take(behind, verify)
    parts[1].unlink()
    with pytest.raises(ArenaError, match=r"V2080.*does not go on from record 6 to 19"):
        await take(behind, verify)
    parts[1].write_bytes(whole[1])
    body = episode(4, race_id=RACE)[1].body_sha256
    (folder / body[:2] / f"{body}.zst").unlink()
    with pytest.raises(ArenaError, match=f"V2080.*body {body} is not in"):
        await take(behind, verify)
    assert (await behind.head()).seq == 6


async def test_a_long_copy_lies_in_parts_that_lead_to_its_checkpoint(
    store, sequencer, signer, objects, behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.store.log_copy.PART_BYTES", 4_000)
    for number in PROBLEMS:
        payloads, body = episode(number, race_id=RACE)
        await sequencer.append(payloads, [body])
    await sign(store, signer)
    assert len(await objects.log_parts(signer.hotkey, 0)) > 3
    assert await take(behind, verify) == 3 * len(PROBLEMS)
    assert (await behind.head(), await behind.checkpoints()) == (await store.head(), await store.checkpoints())
