"""Old days in the object store: what a reader of the log sees is what it was; what a live rule reads has not moved.

The copy of a whole log does the same for a store that is behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.chain.port import Signer
from arena.records.body import decode_content
from arena.records.log import sign_checkpoint
from arena.records.model import Entry, StoredCheckpoint
from arena.records.port import Requeue
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.archive import archive
from arena.store.log_copy import take_copy, write_copy
from arena.store.objects import BodyObjects, folder_location, open_objects, prefix_of
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from tests.arena.conftest import running_server
from tests.arena.log_stand import HOST, Clock, attempt, episode, item, release, settlement
from tests.arena.test_store_roles import as_owner

# -- the copy of a log: a store behind it takes what it lacks from there, or says which record is missing
RACE, PROBLEMS = "r1", range(1, 9)


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
    await write_copy(store, made, before[-1].size if before else 0)
    await store.put_checkpoint(made)


async def run(store: PostgresStore, sequencer: Sequencer, count: int) -> None:
    for lease in await store.claim(count, 60_000):
        number = int(lease.item.context.problem_id[1:])
        payloads, body = episode(number, race_id=RACE, attempt_id=lease.attempt_id)
        await sequencer.append(payloads, [body], finish=lease)


async def a_day(store: PostgresStore, signer: Signer, behind: PostgresStore) -> None:
    """A log of six episodes and a fault, of which `behind` knows two episodes, and a third that was running."""
    sequencer = Sequencer(store, signer, Clock(), HOST)
    await store.enqueue([item(problem, RACE) for problem in PROBLEMS])
    await run(store, sequencer, 2)
    await sign(store, signer)
    await behind.enqueue([item(problem, RACE) for problem in PROBLEMS[2:5]])
    await behind.append([one async for one in store.records()], [episode(n, race_id=RACE)[1] for n in (1, 2)])
    await behind.claim(1, 1)
    await run(store, sequencer, 3)
    await sign(store, signer)
    (lease,) = await store.claim(1, 60_000)
    fault = replace(attempt(6), attempt_id=lease.attempt_id, subject=lease.item.subject)
    await sequencer.abandon(lease, fault, Requeue())
    await run(store, sequencer, 1)
    await sign(store, signer)


async def log_of(store: PostgresStore) -> list[Entry]:
    return [replace(entry, filing=None) async for entry in store.filed_records(store.validator)]


async def test_a_store_behind_its_copy_goes_on_and_does_no_work_twice(store, signer, objects, behind) -> None:
    await a_day(store, signer, behind)
    assert await take_copy(behind, verify) == 13
    assert await log_of(behind) == await log_of(store)
    assert [point.size for point in await behind.checkpoints()] == [6, 15, 19]
    report = await verify_store(behind, verify)
    assert report.is_ok, report.defects
    assert await take_copy(behind, verify) == 0 and not await behind.expired()
    assert await behind.enqueue([item(problem, RACE) for problem in PROBLEMS]) == 2 + 2  # 1 and 2 are the backup's
    left = await behind.claim(9, 60_000)
    assert {lease.item.context.problem_id for lease in left} >= {"p0007", "p0008"}
    last = [entry async for entry in store.records(kinds=["attempt"])][-1]
    fence = int(decode_content(last.content).payload.attempt_id.rpartition(":")[2])
    assert all(lease.fence > fence for lease in left)


async def test_a_gap_a_strangers_record_or_a_lost_body_is_refused_by_name(store, signer, objects, behind) -> None:
    await a_day(store, signer, behind)
    folder = objects.folder / prefix_of(signer.hotkey)
    parts = sorted((folder / "log").iterdir())
    whole = [part.read_bytes() for part in parts]
    parts[1].unlink()
    with pytest.raises(ArenaError, match=r"V2080.*does not go on from record 6 to 19"):
        await take_copy(behind, verify)
    parts[1].write_bytes(whole[1])
    with pytest.raises(ArenaError, match=r"V2080.*is not signed by"):
        await take_copy(behind, lambda *_: False)
    parts[1].write_bytes(whole[1][:-9])
    with pytest.raises(ArenaError, match=r"V2080.*damaged"):
        await take_copy(behind, verify)
    parts[1].write_bytes(whole[1])
    body = episode(4, race_id=RACE)[1].body_sha256
    (folder / body[:2] / f"{body}.zst").unlink()
    with pytest.raises(ArenaError, match=f"V2080.*body {body} is not in"):
        await take_copy(behind, verify)
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
    assert await take_copy(behind, verify) == 3 * len(PROBLEMS)
    assert (await behind.head(), await behind.checkpoints()) == (await store.head(), await store.checkpoints())


# -- old days
DAY = datetime(2026, 3, 1, tzinfo=UTC).date()
BODY = [episode(1, result_bytes=3_000)[1].body_sha256]
BEFORE, TODAY = DAY + timedelta(days=1), DAY + timedelta(days=30)


async def filled(store: PostgresStore, sequencer: Sequencer) -> None:
    """Two races, of which one is released, with their work, all of it on one old day."""
    await store.enqueue([item(problem, race) for race in ("r1", "r2") for problem in (1, 2)])
    for lease in await store.claim(4, 60_000):
        about = lease.item.context
        number = int(about.problem_id[1:])
        payloads, body = episode(number, race_id=about.race_id, result_bytes=3_000, attempt_id=lease.attempt_id)
        await sequencer.append(payloads, [body], finish=lease)
    await sequencer.append([settlement("r1"), release("r1", (1, 2))])


async def age(postgres, validator: str) -> None:
    """Turn what arrived today into what arrived on `DAY`."""
    today = f"{datetime.now(UTC).date():%Y%m%d}"
    columns = "validator, seq, appended_at, kind, race_id, body_sha256, prev, sha256, signature, content"
    moved = ["begin", "set local role arena_owner", f"select arena.add_day('{DAY}')"]
    for table, names in (("record", columns), ("body", "validator, sha256, size, content")):
        values = names.replace("appended_at", f"timestamptz '{DAY} 12:00+00'")
        mine = f"from arena.{table}_{today} where validator = '{validator}'"
        moved += [
            f"alter table arena.{table} disable trigger no_change",
            f"insert into arena.{table} (day, {names}) select date '{DAY}', {values} {mine}",
            f"delete {mine}",
            f"alter table arena.{table} enable trigger no_change",
        ]
    await as_owner(postgres, *moved, "commit")


async def entries(store: PostgresStore) -> list[Entry]:
    return [entry async for entry in store.filed_records(store.validator)]


async def in_place(postgres, validator: str) -> dict[str, int]:
    """Records of each kind whose content is in the database."""
    rows = await as_owner(
        postgres,
        f"select kind, race_id, count(content) from arena.record where validator = '{validator}' group by 1, 2",
    )
    return {f"{kind} {race_id}": count for kind, race_id, count in rows}


async def test_an_archived_day_reads_verifies_and_pages_as_before(
    open_store, signer, sequencer, postgres, tmp_path: Path
) -> None:
    objects = open_objects(folder_location(tmp_path / "objects"))
    store = await open_store(signer.hotkey)
    await filled(store, sequencer)
    await age(postgres, signer.hotkey)
    before, report = await entries(store), await verify_store(store, verify)
    assert report.is_ok, report.defects
    verdicts = await store.verdicts_on(BODY)

    done = await archive(postgres.owner_dsn, BEFORE, objects, today=TODAY)
    assert (done.days, done.records, done.bodies) == ((str(DAY),), 6, 2)  # bodies of both races are equal
    assert await in_place(postgres, signer.hotkey) == {
        **{f"{kind} r1": 0 for kind in ("attempt", "evaluation", "verdict")},
        **{f"{kind} r2": 2 for kind in ("attempt", "evaluation", "verdict")},
        "settlement r1": 1,
        "release r1": 1,
    }
    assert {count.race_id for count in await store.item_counts("a1" * 32)} == {"r2"}
    assert (await archive(postgres.owner_dsn, BEFORE, objects, today=TODAY)).days == ()

    with pytest.raises(ArenaError, match="V2029"):  # a store that was opened without it says so
        await entries(store)
    after = await open_store(signer.hotkey, objects=objects)
    assert await entries(after) == before
    assert await after.verdicts_on(BODY) == verdicts
    assert await verify_store(after, verify) == report
    assert (await store.size()).bytes > 1 << 20


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "changed"])
async def test_a_spoilt_archive_is_named_by_verification(
    is_gone: bool, open_store, signer, sequencer, postgres, tmp_path: Path
) -> None:
    objects = open_objects(folder_location(tmp_path / "objects"))
    store = await open_store(signer.hotkey, objects=objects)
    await filled(store, sequencer)
    await age(postgres, signer.hotkey)
    await archive(postgres.owner_dsn, BEFORE, objects, today=TODAY)
    ((name,),) = await as_owner(
        postgres,
        "select distinct encode(archive_sha256, 'hex') from arena.record"
        f" where validator = '{signer.hotkey}' and archive_sha256 is not null",
    )
    (path,) = (tmp_path / "objects").rglob(f"{name}.zst")
    if is_gone:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
    defects = (await verify_store(store, verify)).defects
    assert {(defect.rule, defect.seq) for defect in defects if defect.rule == "content"} == {
        ("content", entry.seq) for entry in await entries(store) if entry.content == b""
    }


async def test_a_day_that_is_in_use_and_an_object_store_that_forgets_move_nothing(
    open_store, signer, sequencer, postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = open_objects(folder_location(tmp_path / "objects"))
    store = await open_store(signer.hotkey)
    await filled(store, sequencer)
    await age(postgres, signer.hotkey)
    before = await entries(store)
    with pytest.raises(ArenaError, match="still in use"):
        await archive(postgres.owner_dsn, TODAY, objects, today=TODAY)

    async def forgets(validator: str, names: list[str]) -> dict[str, bytes]:
        return {}

    monkeypatch.setattr(objects, "get", forgets)
    with pytest.raises(ArenaError, match="V2056"):
        await archive(postgres.owner_dsn, BEFORE, objects, today=TODAY)
    assert await entries(store) == before
