"""The contract of bodies at rest, wherever they lie: in Postgres, in a folder, in an S3 bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore

from arena.chain.keys import verify
from arena.records.body import restore_frame
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.objects import BodyObjects, folder_location, open_objects, prefix_of
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, episode
from tests.arena.test_store_roles import as_owner

Place = str
PLACES = ("postgres", "folder", "bucket")


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
