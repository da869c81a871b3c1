"""kill -9 in mid-append, of the writer, of the whole server, of the server process that appends: nothing is lost,
nothing doubled, nothing half there; with bodies in Postgres and in an object store."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from arena.chain.keys import keypair_signer, verify
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, EvaluationRecord
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import EmbeddedServer, is_running, start_embedded
from arena.store.objects import BodyObjects, folder_location, open_objects
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, episode, item
from tests.postgres_stand import lay_server

ITEMS = 4_000


async def append_forever(state_dir: Path, objects: str = "") -> None:
    signer = keypair_signer("//Alice")
    server = start_embedded(state_dir)
    store = await PostgresStore.open(
        server.dsn_for(signer.hotkey),
        signer.hotkey,
        is_exclusive=True,
        objects=open_objects(objects) if objects else None,
    )
    sequencer = Sequencer(store, signer, lambda: time.time_ns() // 1_000_000, HOST)
    await store.enqueue([item(n, "killed") for n in range(ITEMS)])
    while leases := await store.claim(1, 60_000):
        lease = leases[0]
        number = int(lease.item.context.problem_id[1:])
        payloads, body = episode(number, race_id="killed", attempt_id=lease.attempt_id, result_bytes=40_000)
        await sequencer.append(payloads, [body], finish=lease)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


ROOT = Path(__file__).parents[2]
ALICE = keypair_signer("//Alice")
FEW, MANY = 3, pytest.param(50, marks=pytest.mark.prove)
RECOVERY_S = 30
PAUSE_MAX_S = 0.08  # an append takes some 5 ms: the kill falls anywhere in one

Kill = Callable[[subprocess.Popen[str], EmbeddedServer], None]


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """A short, private folder with a server's data; whatever server still runs in it is stopped at the end."""
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    lay_server(folder)
    yield folder
    if is_running(folder):
        start_embedded(folder).stop()
    shutil.rmtree(folder, ignore_errors=True)


def kill_writer(writer: subprocess.Popen[str], server: EmbeddedServer) -> None:
    """The process that signs and appends."""
    writer.send_signal(signal.SIGKILL)


def kill_server(writer: subprocess.Popen[str], server: EmbeddedServer) -> None:
    """The postmaster and every process of it, as the kernel's out-of-memory killer or a power cut would."""
    postmaster = psutil.Process(server.pid)
    assert kill_each([postmaster, *postmaster.children()])[0] == postmaster


def kill_appending_process(writer: subprocess.Popen[str], server: EmbeddedServer) -> None:
    """The server processes that serve the writer: the postmaster then restarts all of them and recovers."""
    assert kill_each(psutil.Process(server.pid).children(), "arena_v_")


def kill_each(processes: Iterable[psutil.Process], title: str = "") -> list[psutil.Process]:
    """Kill those whose title holds `title`, and say which. Sessions come and go, and processes of a server end with
    it: one that ended by itself since it was listed is none that we killed."""
    killed = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if title in " ".join(process.cmdline()):
                process.kill()
                killed.append(process)
    return killed


@pytest.mark.parametrize("kills", [FEW, MANY])
@pytest.mark.parametrize("place", ["postgres", "folder"])
@pytest.mark.parametrize("kill", [kill_writer, kill_server, kill_appending_process], ids=lambda kill: kill.__name__)
def test_a_kill_at_any_moment_loses_and_doubles_nothing(kill: Kill, place: str, kills: int, state_dir: Path) -> None:
    dice = random.Random(f"{kill.__name__} {place}")
    location = folder_location(state_dir / "bodies") if place == "folder" else ""
    acknowledged: set[int] = set()
    for _ in range(kills):
        named = [str(state_dir), *([location] if location else [])]
        command = [sys.executable, "-m", "tests.arena.test_store_kills", *named]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
            for _ in range(dice.randrange(1, 6)):
                line = writer.stdout.readline()
                assert line, writer.stderr.read()
                acknowledged.add(int(line))
            server = start_embedded(state_dir)
            time.sleep(dice.random() * PAUSE_MAX_S)
            kill(writer, server)
            writer.send_signal(signal.SIGKILL)  # what the writer would say of its dead server is another test's
            acknowledged |= {int(line) for line in writer.stdout.read().split()}
        again = start_embedded(state_dir)
        appended = asyncio.run(require_whole(again, open_objects(location) if location else None))
        assert acknowledged <= appended  # an append whose answer was lost may be in the log as well
        acknowledged = appended
        server.stop()
        again.stop()


def test_a_start_beside_a_crash_of_the_server_waits_for_its_recovery(state_dir: Path) -> None:
    dice, server = random.Random("beside"), start_embedded(state_dir)
    for _ in range(20):
        postmaster = psutil.Process(server.pid)
        crash = threading.Timer(dice.random() * PAUSE_MAX_S, kill_each, [postmaster.children(), "checkpointer"])
        crash.start()
        while crash.is_alive():
            start_embedded(state_dir).stop()
        time.sleep(PAUSE_MAX_S)  # until the postmaster has noticed
        start_embedded(state_dir).stop()
    assert is_running(state_dir)
    server.stop()


async def open_recovered(server: EmbeddedServer, objects: BodyObjects | None) -> PostgresStore:
    """The store, once its server has recovered."""
    dsn = await asyncio.to_thread(server.dsn_for, ALICE.hotkey)
    for _ in range(RECOVERY_S * 10):
        try:
            return await PostgresStore.open(dsn, ALICE.hotkey, objects=objects)
        except ArenaError as error:
            assert error.failure.code == "V2021"
        await asyncio.sleep(0.1)
    pytest.fail(f"the server did not recover within {RECOVERY_S} s")


async def require_whole(server: EmbeddedServer, objects: BodyObjects | None) -> set[int]:
    """Assert that the log and the queue are whole, and return the numbers of the problems that were appended."""
    store = await open_recovered(server, objects)
    try:
        report = await verify_store(store, verify)
        assert report.is_ok, report.defects
        records = [record async for record in store.records(ALICE.hotkey)]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        payloads = [decode_content(record.content).payload for record in records]
        bodies = [payload.body_sha256 for payload in payloads if isinstance(payload, EvaluationRecord)]
        attempts = [payload.attempt_id for payload in payloads if isinstance(payload, AttemptRecord)]
        assert len(records) == 3 * len(bodies)
        assert len(set(bodies)) == len(bodies)  # each problem has a body of its own: none was appended twice
        assert len(set(attempts)) == len(bodies)
        assert {body.body_sha256 for body in await store.frames(bodies)} == set(bodies)
        assert await store.open_items("killed", "race") == ITEMS - len(bodies)
        if objects:
            assert set(await objects.get(ALICE.hotkey, bodies)) == set(bodies)
        return {int(payload.context.problem_id[1:]) for payload in payloads}
    finally:
        await store.close()


if __name__ == "__main__":
    try:
        asyncio.run(append_forever(Path(sys.argv[1]), *sys.argv[2:]))
    except ArenaError as error:  # its server was killed
        sys.exit(str(error))
