"""A node's serving process: it may die and comes back, waiting clients are answered, and it ends with its node."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import structlog

from arena.chain.keys import generate_signer
from arena.policies import DEMO
from arena.store.embedded.server import EmbeddedServer
from harness.catalogue.server.guard import listen
from neurons.loops.run_loop import StopSignal
from neurons.loops.serving import Serving, ServingSetup, encode_line

WAIT_S = 60.0
LONELY = 3  # exit status of a process whose node is gone


def make_setup(server: EmbeddedServer, folder: Path, reads: socket.socket, door: socket.socket) -> ServingSetup:
    hotkey = generate_signer().hotkey
    return ServingSetup(
        hotkey=hotkey,
        network="local",
        netuid=15,
        state_dir=str(folder),
        dsn=server.dsn_for(hotkey),
        bodies_url="",
        policy=DEMO,
        suites={},
        catalogue_dir=str(folder / "catalogue"),
        reads=reads.fileno(),
        reads_port=reads.getsockname()[1],
        clients=4,
        is_sn15_served=False,
        door=door.fileno(),
        log_format="json",
        log_level="info",
    )


class Served:
    """A serving process with its loop, and clients of it."""

    def __init__(self, serving: Serving, drain: StopSignal, reads_address: str) -> None:
        self.serving, self.drain, self.reads_address = serving, drain, reads_address
        self.client = httpx.AsyncClient(timeout=WAIT_S)

    def process(self) -> psutil.Process:
        """The one that lives now."""
        (found,) = [
            child
            for child in psutil.Process().children()
            if child.status() != psutil.STATUS_ZOMBIE and "neurons.node.serving" in child.cmdline()
        ]
        return found

    async def read(self, path: str) -> httpx.Response:
        """Over a new connection: an old one dies with its process."""
        return await self.client.get(f"{self.reads_address}{path}", headers={"connection": "close"})


@asynccontextmanager
async def served(server: EmbeddedServer, folder: Path) -> AsyncIterator[Served]:
    with listen("127.0.0.1", 0) as reads, listen("127.0.0.1", 0) as door:
        setup = make_setup(server, folder, reads, door)
        serving = Serving(setup, reads, door, structlog.get_logger())
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
    server: EmbeddedServer, tmp_path: Path
) -> None:
    async with served(server, tmp_path) as made:
        assert (await made.read("/v1/races")).json()["items"] == []
        first = made.process()
        first.kill()
        answers = await asyncio.gather(*(made.read("/v1/races") for _ in range(8)))
        assert {answer.status_code for answer in answers} == {httpx.codes.OK}
        assert made.process().pid != first.pid
        assert not made.drain.waits  # it serves again: nothing is waited for
        door = (await made.client.get(f"{made.serving.door_address}/v1/door")).json()
        assert door["reads_port"] == int(made.reads_address.rpartition(":")[2])


async def test_it_stops_with_its_node_and_not_by_a_signal_to_everybody(server: EmbeddedServer, tmp_path: Path) -> None:
    async with served(server, tmp_path) as made:
        await made.read("/v1/health")
        process = made.process()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert (await made.read("/v1/health")).status_code == httpx.codes.OK
        assert made.process().pid == process.pid
        made.drain.set()
        await asyncio.to_thread(process.wait, WAIT_S)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{made.reads_address}/v1/health", timeout=WAIT_S)


async def test_streams_of_the_tail_are_told_to_the_node(server: EmbeddedServer, tmp_path: Path) -> None:
    async with served(server, tmp_path) as made:
        address = f"{made.reads_address}/v1/tail?follow=true&validator={made.serving.hotkey}"
        async with made.client.stream("GET", address) as answer, asyncio.timeout(WAIT_S):
            assert answer.status_code == httpx.codes.OK
            while made.serving.clients != 1:
                await asyncio.sleep(0.1)


async def test_its_environment_holds_no_secret_but_those_of_the_bucket(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "not-to-be-seen")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-bucket")
    async with served(server, tmp_path) as made:
        await made.read("/v1/health")
        process = made.process()
        assert "not-to-be-seen" not in process.environ().values()
        assert process.environ()["AWS_SECRET_ACCESS_KEY"] == "of-the-bucket"
        assert str(tmp_path) not in " ".join(process.cmdline())  # nor what goes over the pipe


def test_it_ends_at_once_when_its_node_is_gone(server: EmbeddedServer, tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as reads, listen("127.0.0.1", 0) as door:
        setup = make_setup(server, tmp_path, reads, door)
        process = subprocess.Popen(
            [sys.executable, "-m", "neurons.node.serving"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(reads.fileno(), door.fileno()),
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert process.stdin is not None and process.stdout is not None
        with process:
            process.stdin.write(encode_line(setup))
            process.stdin.flush()
            assert process.stdout.readline()  # it serves
            process.stdin.close()
            assert process.wait(WAIT_S) == LONELY
