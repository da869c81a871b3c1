"""A node's serving process: it may die and comes back, waiting clients are answered, and it ends with its node."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psutil
import pytest

from arena.policies import DEMO
from arena.store.embedded import EmbeddedServer
from arena.store.location import StoreLocation
from harness.catalogue.server import listen
from neurons.loops.run_loop import StopSignal
from neurons.loops.serving import Serving, ServingSetup
from tests.keys import generate_signer

WAIT_S = 60.0


def make_setup(server: EmbeddedServer, folder: Path, reads: socket.socket, door: socket.socket) -> ServingSetup:
    hotkey = generate_signer().hotkey
    return ServingSetup(
        location=StoreLocation(kind="external", validator=hotkey, dsn=server.dsn_for(hotkey)),
        network="local",
        netuid=15,
        state_dir=str(folder),
        policy=DEMO,
        suite=(),
        catalogue_dir=str(folder / "catalogue"),
        reads=reads.fileno(),
        reads_port=reads.getsockname()[1],
        is_sn15_served=False,
        door=door.fileno(),
        log_level="info",
    )


class Served:
    """A serving process with its loop, and clients of it."""

    def __init__(self, serving: Serving, drain: StopSignal, reads_address: str) -> None:
        self.serving, self.drain, self.reads_address = serving, drain, reads_address
        self.client = httpx2.AsyncClient(timeout=WAIT_S)

    def process(self) -> psutil.Process:
        """The one that lives now."""
        (found,) = [
            child
            for child in psutil.Process().children()
            if child.status() != psutil.STATUS_ZOMBIE and "neurons.node.serving" in child.cmdline()
        ]
        return found

    async def read(self, path: str) -> httpx2.Response:
        """Over a new connection: an old one dies with its process."""
        return await self.client.get(f"{self.reads_address}{path}", headers={"connection": "close"})


@asynccontextmanager
async def served(server: EmbeddedServer, folder: Path) -> AsyncIterator[Served]:
    with listen("127.0.0.1", 0) as reads, listen("127.0.0.1", 0) as door:
        setup = make_setup(server, folder, reads, door)
        serving = Serving(setup, reads, door)
        drain = StopSignal(lambda: time.time_ns() // 1_000_000)
        running = asyncio.create_task(serving.run(drain))
        made = Served(serving, drain, f"http://127.0.0.1:{reads.getsockname()[1]}")
        try:
            async with made.client:
                yield made
        finally:
            drain.set()
            await asyncio.wait_for(running, WAIT_S)


async def test_a_client_that_comes_while_the_process_is_dead_waits_and_is_answered(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "not-to-be-seen")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-bucket")
    async with served(server, tmp_path) as made:
        assert (await made.read("/v1/races")).json()["items"] == []
        first = made.process()
        assert "not-to-be-seen" not in first.environ().values()
        assert first.environ()["AWS_SECRET_ACCESS_KEY"] == "of-the-bucket"
        assert str(tmp_path) not in " ".join(first.cmdline())  # nor what goes over the pipe
        first.kill()
        answers = await asyncio.gather(*(made.read("/v1/races") for _ in range(8)))
        assert {answer.status_code for answer in answers} == {httpx2.codes.OK}
        assert made.process().pid != first.pid
        assert not made.drain.waits  # it serves again: nothing is waited for
        door = (await made.client.get(f"{made.serving.door_address}/v1/door")).json()
        assert door["reads_port"] == int(made.reads_address.rpartition(":")[2])
