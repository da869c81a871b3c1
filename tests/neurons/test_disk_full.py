"""A full disk, for real: every write that meets it waits or is said, and what was written is whole."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from arena.chain.keys import generate_signer, verify
from arena.records.verification import verify_store
from arena.store.embedded import start_embedded
from arena.store.postgres import PostgresStore
from neurons.loops.run_loop import StopSignal, persist
from tests.arena.log_stand import attempt
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
