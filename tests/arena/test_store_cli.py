"""`arena store` on real servers: what each command does, prints and ends with; backup and restore end to end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Signer
from arena.records.log import agent_version_id, sign_checkpoint
from arena.records.model import StoredCheckpoint, Subject
from arena.records.port import StoredSubmission
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import is_running, start_embedded
from arena.store.location import StoreLocation, read_location, write_location
from arena.store.objects import BodyObjects, folder_location, open_objects
from arena.store.postgres import PostgresStore
from foundation.canonical import text_hash
from foundation.errors import ArenaError, Failure
from neurons.cli.records import app as records_app
from neurons.cli.store import app
from tests.arena.log_stand import HOST, Clock, attempt, episode, item
from tests.arena.test_store_objects import age, filled
from tests.postgres_stand import start_new

ALICE, BOB = keypair_signer("//StoreAlice"), keypair_signer("//StoreBob")
EPISODES, SOURCE = 3, "def agent_main(problem): ..."
REFUSED = Subject(
    agent_version_id=agent_version_id(BOB.hotkey, text_hash(SOURCE)),
    miner_hotkey=BOB.hotkey,
    agent_sha256=text_hash(SOURCE),
    commitment_block=7,
)
FAILURE = Failure(code="A1006", detail="allowed from block 9")


def arena(*words: str | Path) -> Result:
    """Run `arena store ...`."""
    return CliRunner().invoke(app, [str(word) for word in words])


def ok(*words: str | Path) -> str:
    """What a command that must succeed prints on stdout."""
    result = arena(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def refused(code: str, *words: str | Path) -> str:
    """The text of the coded failure a command ends with."""
    result = arena(*words)
    assert isinstance(result.exception, ArenaError), result.output
    assert result.exception.failure.code == code
    return str(result.exception)


async def fill(dsn: str, signer: Signer, objects: BodyObjects | None = None) -> None:
    """Three episodes, an attempt, a checkpoint with its anchor, an open item, and a submission that was refused."""
    store = await PostgresStore.open(dsn, signer.hotkey, objects=objects)
    sequencer = Sequencer(store, signer, Clock(), HOST)
    for number in range(EPISODES):
        payloads, body = episode(number, race_id=signer.hotkey, result_bytes=3_000)
        await sequencer.append(payloads, [body])
    note = sign_checkpoint((await verify_store(store, verify)).logs[0].checkpoint, signer)
    size = (await store.head()).seq
    await store.put_checkpoint(StoredCheckpoint(validator=signer.hotkey, size=size, note=note, signed_ms=1))
    await store.put_anchor(size, hashlib.sha256(note.encode()).hexdigest(), 7)
    await sequencer.append([attempt(9)])
    await store.enqueue([item(1, "left")])
    await store.put_submission(StoredSubmission(subject=REFUSED, name="agent", state="waiting"), SOURCE)
    await store.set_submission_state(REFUSED.agent_version_id, "refused", was="waiting", failure=FAILURE)
    await store.close()


@pytest.fixture
def fresh() -> Iterator[Path]:
    """A short, private folder for state folders and backups; servers that still run in it are stopped at the end."""
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    yield folder
    for state_dir in folder.iterdir():
        if is_running(state_dir):
            start_embedded(state_dir).stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A state folder with Alice's log, its server stopped; its bodies in Postgres or in a folder."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_new(state_dir)
    objects = folder_location(state_dir / "objects") if request.param == "folder" else ""
    dsn = server.dsn_for(ALICE.hotkey)
    write_location(state_dir, StoreLocation(kind="embedded", validator=ALICE.hotkey, dsn=dsn, objects=objects))
    asyncio.run(fill(dsn, ALICE, open_objects(objects) if objects else None))
    server.stop()
    yield state_dir
    shutil.rmtree(state_dir)


async def require_whole(dsn: str, objects: BodyObjects | None, signer: Signer = ALICE) -> None:
    """Assert that the log is what `fill` wrote, verifies, and goes on."""
    store = await PostgresStore.open(dsn, signer.hotkey, is_exclusive=True, objects=objects)
    try:
        report = await verify_store(store, verify)
        assert report.is_ok, report.defects
        assert report.kinds["evaluation"] == EPISODES
        assert [(point.size, point.anchor_block) for point in await store.checkpoints()] == [(3 * EPISODES, 7)]
        assert await store.open_items("left", "race") == 1
        (submission,) = await store.submissions(("refused",))  # what its miner is told stands there alone
        assert (submission.subject, submission.failure) == (REFUSED, FAILURE)
        before = (await store.head()).seq
        payloads, body = episode(50, race_id=signer.hotkey)
        assert (await Sequencer(store, signer, Clock(), HOST).append(payloads, [body])).seq == before + 3
        assert await store.body(body.body_sha256) == body
    finally:
        await store.close()


# -- backup and restore


@pytest.mark.parametrize("node", ["postgres", "folder"], indirect=True)
def test_a_backup_restored_into_a_new_folder_verifies_and_goes_on(node: Path, fresh: Path) -> None:
    outside = bool(read_location(node).objects)
    assert "10 records and 3 bodies of 1 log" in ok("backup", "--out", fresh / "b", "--state-dir", node)
    assert (fresh / "b").stat().st_mode & 0o777 == 0o700
    assert not list(fresh.glob(".b*"))
    assert is_running(node) is False
    assert "10 records" in ok("restore", fresh / "b", "--state-dir", fresh / "n")
    location = read_location(fresh / "n")
    assert (location.validator, location.kind, bool(location.objects)) == (ALICE.hotkey, "embedded", outside)
    assert location.dsn != read_location(node).dsn  # a password of its own
    verified = CliRunner().invoke(records_app, ["verify", "--state-dir", str(fresh / "n"), "--json"])
    assert (verified.exit_code, json.loads(verified.stdout)["ok"]) == (0, True)
    server = start_embedded(fresh / "n")
    asyncio.run(require_whole(location.dsn, open_objects(location.objects) if outside else None))
    server.stop()
    refused("V2027", "restore", fresh / "b", "--state-dir", fresh / "n")


def test_old_days_are_archived_and_a_backup_brings_them_back(fresh: Path) -> None:
    state_dir = fresh / "node"
    server = start_new(state_dir)
    dsn, objects = server.dsn_for(ALICE.hotkey), folder_location(state_dir / "objects")
    write_location(state_dir, StoreLocation(kind="embedded", validator=ALICE.hotkey, dsn=dsn))
    old_day = ("archive", "--before", "2026-03-02", "--state-dir", state_dir)
    assert "set bodies_url" in refused("V2029", *old_day)
    write_location(state_dir, StoreLocation(kind="embedded", validator=ALICE.hotkey, dsn=dsn, objects=objects))

    async def fill_an_old_day() -> None:
        store = await PostgresStore.open(dsn, ALICE.hotkey)
        await filled(store, Sequencer(store, ALICE, Clock(), HOST))
        await age(server, ALICE.hotkey)
        await store.close()

    async def require_log(state_dir: Path) -> None:
        location = read_location(state_dir)
        store = await PostgresStore.open(location.dsn, ALICE.hotkey, objects=open_objects(location.objects))
        report = await verify_store(store, verify)
        assert report.is_ok and report.kinds["evaluation"] == 4, report.defects
        await store.close()

    asyncio.run(fill_an_old_day())
    assert "6 records and 2 bodies of 1 day moved to file://" in ok(*old_day)
    assert "in use" in refused("V2025", "archive", "--before", "2999-01-01", "--state-dir", state_dir)
    asyncio.run(require_log(state_dir))
    ok("backup", "--out", fresh / "kept", "--state-dir", state_dir)
    server.stop()
    ok("restore", fresh / "kept", "--state-dir", fresh / "again")
    start_embedded(fresh / "again")
    asyncio.run(require_log(fresh / "again"))


def test_a_backup_taken_while_validators_write_is_of_one_moment(fresh: Path) -> None:
    busy, restored = fresh / "busy", fresh / "n"
    server = start_new(busy)
    dsn = server.dsn_for(BOB.hotkey)
    objects = open_objects(folder_location(busy / "objects"))
    location = StoreLocation(kind="embedded", validator=BOB.hotkey, dsn=dsn, objects=objects.location)
    write_location(busy, location)

    async def write_while_backing_up() -> int:
        store = await PostgresStore.open(dsn, objects=objects)
        sequencer = Sequencer(store, BOB, Clock(), HOST)
        backing_up = asyncio.create_task(asyncio.to_thread(ok, "backup", "--out", fresh / "b", "--state-dir", busy))
        seq = 0
        while not backing_up.done() or not seq:
            payloads, body = episode(seq, race_id="busy")
            seq = (await sequencer.append(payloads, [body])).seq
        await backing_up
        await store.close()
        return seq

    asyncio.run(fill(server.dsn_for(ALICE.hotkey), ALICE, objects))
    last = asyncio.run(write_while_backing_up())
    server.stop()
    result = json.loads(ok("restore", fresh / "b", "--state-dir", restored, "--hotkey", BOB.hotkey, "--json"))
    ends = {name: head["seq"] for name, head in result["manifest"]["store"]["heads"].items()}
    assert ends.get(BOB.hotkey, 0) % 3 == 0
    assert arena("restore", fresh / "b", "--state-dir", fresh / "other").exit_code == 2  # whose node it is, is not said
    assert ends.get(BOB.hotkey, 0) < last
    assert (set(result["roles"]), read_location(restored).validator) == ({ALICE.hotkey, BOB.hotkey}, BOB.hotkey)
    verified = CliRunner().invoke(records_app, ["verify", "--state-dir", str(restored), "--json"])
    report = json.loads(verified.stdout)
    assert (report["ok"], report["records"]) == (True, sum(ends.values()))


@pytest.mark.parametrize("node", ["folder"], indirect=True)
def test_a_damaged_backup_and_a_taken_place_are_refused(node: Path, fresh: Path) -> None:
    ok("backup", "--out", fresh / "b", "--state-dir", node)
    refused("V2027", "backup", "--out", fresh / "b", "--state-dir", node)
    assert arena("restore", fresh / "nothing", "--state-dir", fresh / "n").exit_code == 2
    archive = (fresh / "b" / "arena.dump").read_bytes()
    (fresh / "b" / "arena.dump").write_bytes(archive[:-1] + bytes([archive[-1] ^ 1]))
    assert "not the archive" in refused("V2056", "restore", fresh / "b", "--state-dir", fresh / "n")
    (fresh / "b" / "arena.dump").write_bytes(archive)
    manifest = json.loads((fresh / "b" / "manifest.json").read_text())
    manifest["store"]["rows"]["record"] -= 1
    (fresh / "b" / "manifest.json").write_text(json.dumps(manifest))
    assert "not what the manifest counts" in refused("V2056", "restore", fresh / "b", "--state-dir", fresh / "n")
    manifest["store"]["rows"]["record"] += 1
    manifest["objects"]["bodies"] += 1
    (fresh / "b" / "manifest.json").write_text(json.dumps(manifest))
    assert "bodies are in the object store" in refused("V2056", "restore", fresh / "b", "--state-dir", fresh / "m")


@pytest.mark.parametrize("node", ["folder"], indirect=True)
def test_a_backup_goes_into_a_server_of_ones_own_with_logins_that_are_printed_once(
    node: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARENA_BODIES_URL", folder_location(fresh / "bodies"))
    ok("backup", "--out", fresh / "b", "--state-dir", node)
    server = start_new(fresh / "own")
    old = "#!/bin/sh\n[ $1 = --version ] && echo pg_restore 9.6 || { echo unsupported version >&2; exit 1; }"
    for tool in (fresh / "pg_dump", fresh / "pg_restore"):
        tool.write_text(old)
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fresh}")
    told = refused("V2060", "restore", fresh / "b", "--owner-dsn", server.owner_dsn)
    assert "pg_restore 9.6" in told and "too old for a backup of Postgres 18" in told and "version 18 or newer" in told
    monkeypatch.setenv("PATH", "")
    name, dsn = ok("restore", fresh / "b", "--owner-dsn", server.owner_dsn).splitlines()[-1].split()
    assert name == ALICE.hotkey
    asyncio.run(require_whole(dsn, open_objects(folder_location(fresh / "bodies"))))
    refused("V2027", "restore", fresh / "b", "--owner-dsn", server.owner_dsn)
    assert "'hot'" in refused("V2030", "migrate", "--owner-dsn", server.owner_dsn, "--hotkey", "hot")
    assert "ARENA_DATABASE_DSN=postgresql://" in ok("migrate", "--owner-dsn", server.owner_dsn, "--hotkey", BOB.hotkey)
    server.stop()
    write_location(fresh / "own", StoreLocation(kind="external", validator=ALICE.hotkey, dsn=dsn))
    assert arena("backup", "--out", fresh / "c", "--state-dir", fresh / "own").exit_code == 2
    (fresh / "own" / "store.json").write_text("{")
    refused("V2021", "backup", "--out", fresh / "c", "--state-dir", fresh / "own")
