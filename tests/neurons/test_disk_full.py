"""A full disk, for real: every write that meets it waits or is said, and what was written is whole."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
import structlog

from arena.chain.keys import generate_signer, verify
from arena.records.verify.verification import verify_store
from arena.store.embedded.server import start_embedded
from arena.store.postgres.store import PostgresStore
from foundation.durable_files import write_whole
from neurons.health.node_file import read_node_file
from neurons.loops import checkpoints as checkpoint_files
from neurons.loops.checkpoints import CheckpointRules
from neurons.loops.run_loop import StopSignal, persist, run_loop
from neurons.loops.watches import ChainWatch
from neurons.node.reporting import HeartbeatLoop, Schedules
from tests.arena.log_stand import attempt
from tests.neurons.checkpoint_stand import LogDesk
from tests.neurons.clock_stand import LOG, Desk, Time

SMALL_KIB, POSTGRES_KIB = 256, 140 << 10


@contextlib.contextmanager
def disk(kib: int) -> Iterator[Path]:
    """A file system of that size; a skip where none can be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="arena-", dir="/tmp"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=755", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Not a byte is left in `folder`, until the block ends."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4_096)):
            pass
    yield
    ballast.unlink()


async def test_checkpoints_are_signed_on_and_stand_in_the_folder_once_it_has_space(log_desk: LogDesk) -> None:
    with disk(SMALL_KIB) as outside:
        log_desk.start(CheckpointRules(every_s=600, folder=outside))
        folder = outside / log_desk.signer.hotkey
        await log_desk.checkpoints.open()
        await log_desk.append()
        await log_desk.checkpoints.turn()
        with filled(outside):
            await log_desk.append()
            log_desk.time.pass_s(600)
            assert await log_desk.checkpoints.turn() is not None
            assert log_desk.metric("checkpoint_folders_behind") == 1
            assert checkpoint_files.last_size(folder) == 1
        await log_desk.checkpoints.turn()
        assert log_desk.metric("checkpoint_folders_behind") == 0
        last = (await log_desk.stored())[-1]
        assert checkpoint_files.read_last(folder) == last.note
        assert sorted(path.name for path in folder.iterdir()) == ["1.txt", "2.txt"]


async def test_a_heartbeat_that_finds_no_space_leaves_the_last_one_whole(log_desk: LogDesk) -> None:
    with disk(SMALL_KIB) as state_dir:
        node = dataclasses.replace(log_desk.node, state_dir=state_dir, chain=log_desk.chain.twin)
        heart = HeartbeatLoop(
            node, ChainWatch(node), Schedules(checkpoint_every_s=1, anchor_every_s=1), logs=lambda: []
        )
        drain = StopSignal(log_desk.time)
        first = await heart.beat(drain)
        with filled(state_dir):
            log_desk.time.pass_s(30)
            await heart.beat(drain)
            assert read_node_file(state_dir).beat == first
            assert node.metrics.registry.get_sample_value("arena_disk_free_bytes") == 0
        latest = await heart.beat(drain)
        assert read_node_file(state_dir).beat == latest != first


async def test_a_loop_that_writes_waits_for_space_and_then_goes_on() -> None:
    said = io.StringIO()
    log = structlog.wrap_logger(structlog.PrintLogger(said), processors=[structlog.processors.JSONRenderer()])
    drain = StopSignal(Time(), spread=lambda low, high: 0.01)
    with disk(SMALL_KIB) as folder:

        async def write() -> None:
            write_whole(folder / "file", b"whole")
            drain.set()

        with filled(folder):
            running = asyncio.create_task(run_loop("intake", write, drain, log, every_s=0))
            async with asyncio.timeout(20):
                while "intake" not in drain.waits:
                    await asyncio.sleep(0.01)
            assert drain.waits["intake"].code == "V2115"
        await asyncio.wait_for(running, 20)
        assert (folder / "file").read_bytes() == b"whole"
    assert {json.loads(line)["code"] for line in said.getvalue().splitlines()} == {"V2115"}


async def test_appends_wait_while_the_database_has_no_space_and_none_is_lost_or_doubled() -> None:
    signer = generate_signer()
    with disk(POSTGRES_KIB) as folder:
        server = await asyncio.to_thread(start_embedded, folder)
        try:
            dsn = await asyncio.to_thread(server.dsn_for, signer.hotkey)
            store = await PostgresStore.open(dsn, signer.hotkey)
            node = Desk(store, signer, folder, Time()).node
            drain = StopSignal(Time(), spread=lambda low, high: 0.2)
            numbers = iter(range(10**6))

            async def append(count: int) -> None:
                records = [attempt(next(numbers)) for _ in range(count)]
                await persist("append", lambda: node.sequencer.append(records), drain, LOG)

            await append(100)
            with filled(folder):
                running = asyncio.create_task(append_until_full(append, drain))
                async with asyncio.timeout(60):
                    while "append" not in drain.waits:
                        await asyncio.sleep(0.05)
                assert drain.waits["append"].code in ("V2021", "V2115")
            written = await asyncio.wait_for(running, 60)
            report = await verify_store(store, verify)
            assert report.is_ok, report.defects
            assert (await store.head()).seq == 100 + written
            await store.close()
        finally:
            await asyncio.to_thread(server.stop)


async def append_until_full(append: Callable[[int], Coroutine[None, None, None]], drain: StopSignal) -> int:
    """Append until one has waited for space; returns how many records were written."""
    written, has_waited = 0, False
    while not has_waited:
        before = asyncio.create_task(append(500))
        while not before.done():
            has_waited |= "append" in drain.waits
            await asyncio.sleep(0.005)
        await before
        written += 500
    return written
