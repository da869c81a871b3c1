"""The contract of bodies at rest, wherever they lie: in Postgres, in a folder, in an S3 bucket."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore, S3Store

from arena.chain.keys import generate_signer, verify
from arena.export.model import Manifest, Request
from arena.export.writing.exporter import export_records
from arena.records.log.sequencer import Sequencer
from arena.records.verify.verification import verify_store
from arena.store.backup.backup import names_elsewhere
from arena.store.backup.inventory import compare_objects
from arena.store.bodies import BODY_BYTES_MAX, restore_bodies
from arena.store.objects import BodyObjects, folder_location, open_objects, prefix_of
from arena.store.port import BodyFrame, HeadMovedError, StoredBody
from arena.store.postgres.connect import open_engine
from arena.store.postgres.store import PostgresStore
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, attempt, episode, release
from tests.arena.test_store_roles import as_owner

Place = str
PLACES = ("postgres", "folder", "bucket")
OUTSIDE = PLACES[1:]


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
    inner: LocalStore | S3Store = objects._opened()
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
    assert sorted(await store.bodies([*names, "00" * 32]), key=lambda body: names.index(body.body_sha256)) == bodies
    frames = await store.frames(names)
    assert {frame.body_sha256: frame.size for frame in frames} == {b.body_sha256: len(b.content) for b in bodies}
    assert {body.body_sha256 for body in await restore_bodies(frames)} == set(names)
    report = await verify_store(store, verify)
    assert report.is_ok, report.defects


@pytest.mark.parametrize("place", PLACES)
async def test_the_same_body_may_be_stored_twice_and_is_kept_once(store, sequencer) -> None:
    payloads, body = episode(5)
    again, _ = episode(5, attempt_id="again:2")
    await sequencer.append(payloads[:2], [body])
    await sequencer.append(again[:1], [body])
    assert await store.bodies([body.body_sha256, "00" * 32]) == [body]


@pytest.mark.parametrize("place", PLACES)
async def test_a_body_over_the_limit_is_refused_for_good_and_nothing_is_written(store, sequencer) -> None:
    payloads, _ = episode(1)
    content = bytes(BODY_BYTES_MAX + 1)
    huge = StoredBody(body_sha256=hashlib.sha256(content).hexdigest(), content=content)
    with pytest.raises(ArenaError, match="V2025"):
        await sequencer.append(payloads, [huge])
    assert (await store.head()).seq == 0
    assert (await sequencer.append([attempt(1)])).seq == 1


@pytest.mark.parametrize("place", PLACES)
async def test_bodies_of_one_hash_are_kept_apart_by_validator(open_store, store, sequencer, objects) -> None:
    payloads, body = episode(1)
    squatter = generate_signer()
    hostile = await open_store(squatter.hotkey, objects=objects)
    garbage = StoredBody(body_sha256=body.body_sha256, content=b"garbage under a coming hash")
    (record,) = Sequencer(hostile, squatter, Clock(), HOST)._sign([attempt(1)], HOST, await hostile.head())
    await hostile.append([record], [garbage])
    await sequencer.append(payloads, [body])
    assert await store.body(body.body_sha256) == body
    assert (await verify_store(store, verify)).is_ok


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
        assert await store.bodies([body.body_sha256, intact.body_sha256]) == [intact]
    else:
        with pytest.raises(ArenaError, match="V2050"):
            await store.body(body.body_sha256)
    report = await verify_store(store, verify)
    assert [(defect.seq, defect.rule) for defect in report.defects] == [(2, "body")]


@pytest.mark.parametrize("place", PLACES)
async def test_an_append_that_is_refused_leaves_no_body_in_the_log(store, sequencer) -> None:
    payloads, body = episode(1)
    await sequencer.append([attempt(1)])
    (stale,) = [record async for record in store.records(store.validator)]
    with pytest.raises(HeadMovedError):
        await store.append([stale], [body])
    assert await store.bodies([body.body_sha256]) == []
    await sequencer.append(payloads, [body])
    assert await store.bodies([body.body_sha256]) == [body]


# -- outside of Postgres


@pytest.mark.parametrize("place", OUTSIDE)
async def test_bodies_outside_leave_only_their_size_in_postgres(store, sequencer, postgres) -> None:
    payloads, body = episode(1)
    await sequencer.append(payloads, [body])
    rows = await as_owner(postgres, f"select size, content from arena.body where validator = '{store.validator}'")
    assert [tuple(row) for row in rows] == [(len(body.content), None)]


@pytest.mark.parametrize("place", OUTSIDE)
async def test_the_inventory_names_what_is_missing_and_counts_what_nobody_names(
    store, sequencer, objects, postgres
) -> None:
    for number in range(3):
        payloads, body = episode(number)
        await sequencer.append(payloads, [body])
    orphan = BodyFrame(body_sha256="ab" * 32, content=b"of an append that was killed", size=99)
    await objects.put(store.validator, [orphan])
    await objects.put("5somebody else", [orphan])
    await spoil(objects, postgres, store, body.body_sha256, lambda frame: None)
    report = await compare_objects(store, objects, store.validator)
    assert (report.objects, report.named) == (3, 3)
    assert (report.missing_count, report.missing) == (1, (body.body_sha256,))
    assert (report.orphan_count, report.orphans) == (1, (orphan.body_sha256,))
    assert report.orphan_size == len(orphan.content)


@pytest.mark.parametrize("place", ["folder"])
async def test_a_backup_names_the_bodies_of_a_log_that_lost_its_head(store, sequencer, postgres) -> None:
    payloads, body = episode(1)
    await sequencer.append(payloads, [body])
    own = f"validator = '{store.validator}'"
    await as_owner(postgres, "set session_replication_role = replica", f"delete from arena.head where {own}")
    engine = open_engine(postgres.owner_dsn)
    async with engine.connect() as connection:
        found = [names async for validator, names in names_elsewhere(connection, None) if validator == store.validator]
    await engine.dispose()
    assert found == [[body.body_sha256]]


@pytest.mark.parametrize("place", OUTSIDE)
async def test_a_log_may_hold_bodies_of_both_kinds(open_store, store, sequencer, signer) -> None:
    inside = await open_store(signer.hotkey)
    (first, body), (second, other) = episode(1), episode(2)
    await sequencer.append(first, [body])
    await Sequencer(inside, signer, Clock(), HOST).append(second, [other])
    assert {found.body_sha256 for found in await store.bodies([body.body_sha256, other.body_sha256])} == {
        body.body_sha256,
        other.body_sha256,
    }
    assert (await verify_store(store, verify)).is_ok
    assert await inside.bodies([other.body_sha256]) == [other]
    with pytest.raises(ArenaError, match=r"V2029.*none is named"):
        await inside.bodies([body.body_sha256])


@pytest.mark.parametrize("place", OUTSIDE)
async def test_a_body_stored_inside_on_another_day_is_read_from_there(store, sequencer, postgres, objects) -> None:
    payloads, body = episode(1)
    await sequencer.append(payloads, [body])
    (frame,) = await store.frames([body.body_sha256])
    await spoil(objects, postgres, store, body.body_sha256, lambda frame: None)
    await as_owner(
        postgres,
        "insert into arena.body (validator, sha256, day, size, content) values"
        f" ('{store.validator}', '\\x{body.body_sha256}', (now() at time zone 'UTC')::date + 1, {frame.size},"
        f" '\\x{frame.content.hex()}')",
    )
    assert await store.body(body.body_sha256) == body


async def test_a_folder_is_made_private_by_the_first_write_and_not_by_a_look(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "bödies"
    objects = open_objects(folder_location(folder))
    with pytest.raises(ArenaError, match="V2029"):
        await objects.get("5v", ["ab" * 32])
    with pytest.raises(ArenaError, match="V2029"):
        await objects.stored("5v", 0xAB)
    assert not folder.exists()
    await objects.put("5v", [BodyFrame(body_sha256="ab" * 32, content=b"frame", size=5)])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert await objects.get("5v", ["ab" * 32, "cd" * 32]) == {"ab" * 32: b"frame"}
    assert await objects.stored("5v", 0xAB) == {"ab" * 32: 5}
    assert (folder / "5v" / "ab" / ("ab" * 32 + ".zst")).read_bytes() == b"frame"


@pytest.mark.parametrize("hotkey", ["..", "../x", "a/b", "", "~x", "ü", "."])
async def test_no_hotkey_leads_out_of_its_own_prefix(hotkey: str, tmp_path: Path) -> None:
    objects = open_objects(folder_location(tmp_path / "bodies"))
    await objects.put(hotkey, [BodyFrame(body_sha256="ab" * 32, content=b"x", size=1)])
    (found,) = (path for path in tmp_path.rglob("*.zst"))
    assert found.relative_to(tmp_path / "bodies").parts == (prefix_of(hotkey), "ab", f"{'ab' * 32}.zst")
    assert len({prefix_of(name) for name in ("..", "../x", "a/b", "", "~x", "ü", ".")}) == 7


@pytest.mark.parametrize(
    "location",
    [
        "",
        "bodies",
        "file://relative/path",
        "file:relative",
        "file:///x?y=z",
        "http://bucket",
        "s3://",
        "s3:///prefix",
        "s3://key:secret@bucket/x",
        "s3://bucket?endpont=http://x",
        "s3://bucket?endpoint",
    ],
)
def test_a_location_that_means_nothing_or_holds_a_secret_is_refused(location: str) -> None:
    with pytest.raises(ArenaError, match="V2029"):
        open_objects(location)


async def test_a_bucket_that_does_not_exist_is_not_a_bucket_without_bodies(bucket: str) -> None:
    objects = open_objects(bucket.replace("s3://arena", "s3://nobody"))
    with pytest.raises(ArenaError, match="V2029"):
        await objects.get("5v", ["ab" * 32])
    with pytest.raises(ArenaError, match="V2029"):
        await objects.put("5v", [BodyFrame(body_sha256="ab" * 32, content=b"x", size=1)])


async def test_a_bucket_that_is_away_stops_the_append_before_the_log(open_store, signer, bucket: str) -> None:
    away = bucket.partition("?")[0] + "?endpoint=http://127.0.0.1:9&region=us-east-1"
    store = await open_store(signer.hotkey, objects=open_objects(away))
    payloads, body = episode(1)
    with pytest.raises(ArenaError, match="V2028") as caught:
        await Sequencer(store, signer, Clock(), HOST).append(payloads, [body])
    assert caught.value.entry.is_retryable
    assert (await store.head()).seq == 0


async def test_a_folder_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    objects = open_objects(folder_location(tmp_path / "file"))
    with pytest.raises(ArenaError, match=r"V2029|V2028"):
        await objects.put("5v", [BodyFrame(body_sha256="ab" * 32, content=b"x", size=1)])


def take_away(folder: Path) -> None:
    """The folder is not there, as where a disk is not mounted."""
    folder.rename(folder.with_name("elsewhere"))


def lead_nowhere(folder: Path) -> None:
    """What lies in the folder can't be opened: the system says so with an error of its own."""
    take_away(folder)
    folder.mkdir()
    for name in folder.with_name("elsewhere").iterdir():
        (folder / name.name).symlink_to(folder / name.name)


@pytest.mark.parametrize("place", ["folder"])
@pytest.mark.parametrize(("harm", "code"), [(take_away, "V2029"), (lead_nowhere, "V2028")])
async def test_an_export_over_bodies_that_can_not_be_read_names_the_object_store_and_no_full_disk(
    harm, code, store, sequencer, signer, objects, tmp_path: Path
) -> None:
    payloads, body = episode(1)
    await sequencer.append(payloads, [body])
    await sequencer.append([release()])
    wanted = Request(validator=signer.hotkey)

    async def export() -> Manifest:
        out = tmp_path / "export"
        return await export_records(
            store, wanted, out, verify_signature=verify, software="test", now_ms=0, signer=signer
        )

    harm(objects.folder)
    with pytest.raises(ArenaError, match=code):
        await export()
    with pytest.raises(ArenaError, match=code):
        await verify_store(store, verify)
    shutil.rmtree(objects.folder, ignore_errors=True)
    objects.folder.with_name("elsewhere").rename(objects.folder)
    assert (await export()).trajectories == 1


async def test_an_object_too_large_to_be_a_frame_is_not_loaded(tmp_path: Path) -> None:
    objects = open_objects(folder_location(tmp_path))
    await objects.put("5v", [BodyFrame(body_sha256="ab" * 32, content=b"x", size=1)])
    with (tmp_path / "5v" / "ab" / ("ab" * 32 + ".zst")).open("r+b") as file:
        file.truncate(1 << 40)
    assert await objects.get("5v", ["ab" * 32]) == {"ab" * 32: b""}
