"""The contract of bodies at rest, wherever they lie: in Postgres, in a folder, in an S3 bucket."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore

from arena.chain.keys import verify
from arena.records.body import restore_frame
from arena.records.model import Entry
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.archive import archive
from arena.store.objects import BodyObjects, folder_location, open_objects, prefix_of
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, episode, item, release, settlement
from tests.arena.test_store_roles import as_owner

Place = str
PLACES = ("postgres", "folder", "bucket")


@pytest.fixture
def place() -> Place:
    """Where a test doesn't say it."""
    return "postgres"


@pytest.fixture
def objects(place: Place, tmp_path: Path, request: pytest.FixtureRequest) -> BodyObjects | None:
    """Where bodies of this test go; None: into Postgres."""
    if place == "postgres":
        return None
    return open_objects(
        folder_location(tmp_path / "bodies") if place == "folder" else request.getfixturevalue("bucket")
    )


@pytest.fixture
async def store(open_store, signer, objects: BodyObjects | None) -> PostgresStore:
    return await open_store(signer.hotkey, objects=objects)


async def spoil(objects: BodyObjects | None, postgres, store: PostgresStore, name: str, change: Callable) -> None:
    """Change the frame of a body behind the store's back; `change` returns None to take it away."""
    if objects is None:
        frame = change((await store.frames([name]))[0].content)
        await as_owner(
            postgres,
            "alter table arena.body disable trigger no_change",
            f"update arena.body set content = '\\x{frame.hex()}' where encode(sha256, 'hex') = '{name}'"
            if frame
            else f"delete from arena.body where encode(sha256, 'hex') = '{name}'",
            "alter table arena.body enable trigger no_change",
        )
        return
    key = f"{prefix_of(store.validator)}/{name[:2]}/{name}.zst"
    inner = LocalStore(objects.folder) if objects.folder else objects._at
    frame = change(bytes((await obstore.get_async(inner, key)).bytes()))
    if frame is None:
        await obstore.delete_async(inner, key)
    else:
        await obstore.put_async(inner, key, frame)


# -- wherever they lie


@pytest.mark.parametrize("place", PLACES)
async def test_bodies_come_back_byte_for_byte_and_verify(store, sequencer) -> None:
    episodes = [episode(number, result_bytes=bytes_) for number, bytes_ in enumerate((0, 300, 40_000, 400_000))]
    for payloads, body in episodes:
        await sequencer.append(payloads, [body])
    bodies = [body for _, body in episodes]
    names = [body.body_sha256 for body in bodies]
    assert await store.body(names[2]) == bodies[2]
    frames = await store.frames([*names, "00" * 32])
    assert {frame.body_sha256: restore_frame(frame.content, frame.size) for frame in frames} == {
        body.body_sha256: body.content for body in bodies
    }
    assert {frame.body_sha256: frame.size for frame in frames} == {b.body_sha256: len(b.content) for b in bodies}
    report = await verify_store(store, verify)
    assert report.is_ok, report.defects


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame[:30] + bytes([frame[30] ^ 1]) + frame[31:],
        lambda frame: frame[:-1],
        lambda frame: b"\0",
        lambda frame: None,
    ],
    ids=["changed", "cut", "not zstd", "gone"],
)
async def test_a_spoilt_body_is_never_served_and_is_named_by_verification(
    change, store, sequencer, objects, postgres
) -> None:
    payloads, body = episode(9, result_bytes=2_000)
    intact_payloads, intact = episode(10)
    await sequencer.append([*payloads, *intact_payloads], [body, intact])
    await spoil(objects, postgres, store, body.body_sha256, change)
    if change(b" " * 99) is None:
        assert await store.body(body.body_sha256) is None
        found = await store.frames([body.body_sha256, intact.body_sha256])
        assert [frame.body_sha256 for frame in found] == [intact.body_sha256]
    else:
        with pytest.raises(ArenaError, match="V2050"):
            await store.body(body.body_sha256)
    report = await verify_store(store, verify)
    assert [(defect.seq, defect.rule) for defect in report.defects] == [(2, "body")]


# -- outside of Postgres


@pytest.mark.parametrize(
    "location",
    [
        "",
        "file://relative/path",
        "http://bucket",
        "s3:///prefix",
        "s3://key:secret@bucket/x",
        "s3://bucket?endpont=http://x",
    ],
)
def test_a_location_that_means_nothing_or_holds_a_secret_is_refused(location: str) -> None:
    with pytest.raises(ArenaError, match="V2029"):
        open_objects(location)


async def test_a_bucket_that_is_away_stops_the_append_before_the_log(open_store, signer, bucket: str) -> None:
    away = bucket.partition("?")[0] + "?endpoint=http://127.0.0.1:9&region=us-east-1"
    store = await open_store(signer.hotkey, objects=open_objects(away))
    payloads, body = episode(1)
    with pytest.raises(ArenaError, match="V2028") as caught:
        await Sequencer(store, signer, Clock(), HOST).append(payloads, [body])
    assert caught.value.entry.is_retryable
    assert (await store.head()).seq == 0


# -- old days in the object store: what a reader of the log sees is what it was; what a live rule reads has not moved


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
    return [entry async for entry in store.filed_records(store.validator, 0, None)]


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
