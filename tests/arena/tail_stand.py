"""A live tail over real HTTP on loopback, in a loop and thread of its own, and a client for it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2

from arena.api.client import TailClient
from arena.chain.keys import verify
from arena.chain.port import Signer
from arena.export.files import read_row
from arena.export.model import LogRow
from arena.records.model import SignedRecord
from arena.records.sequencer import Sequencer
from arena.store.postgres import PostgresStore
from arena.web.server import TailServer
from foundation.errors import ArenaError
from harness.catalogue.server import listen
from neurons.settings.inputs import unix_ms
from tests.arena.log_stand import HOST, Clock, episode, release, settlement

POLL_S = 0.05


class WatchedStore(PostgresStore):
    """A store that can be away."""

    is_away = False

    async def records(self, validator: str | None = None, **wanted: Any):
        if self.is_away:
            raise ArenaError("V2021", "away")
        async for record in super().records(validator, **wanted):
            yield record


class Serving:
    """A running server. `store` belongs to its loop; `end` ends it before the block does."""

    address = ""
    store: WatchedStore
    end: Callable[[], None]


Serve = Callable[[asyncio.Event, Callable[[], None]], Awaitable[None]]


@contextmanager
def in_thread(serve: Serve) -> Iterator[Callable[[], None]]:
    """Run a server in a loop and thread of its own, from when it says that it is up until the block ends or what is
    given is called. `serve` gets what ends it, and what to call when it is up."""
    is_up, made = threading.Event(), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def run() -> None:
        made.append((asyncio.get_running_loop(), stop := asyncio.Event()))
        await serve(stop, is_up.set)

    def end() -> None:
        if not running.done():
            made[0][0].call_soon_threadsafe(made[0][1].set)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, run())
        running.add_done_callback(lambda _: is_up.set())
        assert is_up.wait(30)
        try:
            if not running.done():
                yield end
        finally:
            end()
            running.result(30)


@contextmanager
def serving(
    dsn: str, port: int = 0, *, clients: int = 8, heartbeat_s: float = 15.0, **options: Any
) -> Iterator[Serving]:
    """Serve the store of a DSN until the block ends. `options` are the server's."""
    made, options = Serving(), {"now_ms": unix_ms} | options

    async def serve(stop: asyncio.Event, is_up: Callable[[], None]) -> None:
        made.store = await WatchedStore.open(dsn)
        try:
            with listen("127.0.0.1", port) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)  # the kernel holds little, too
                server = TailServer(
                    made.store, listener, clients=clients, poll_s=POLL_S, heartbeat_s=heartbeat_s, **options
                )
                made.address = server.address
                is_up()
                await server.run(stop)
        finally:
            await made.store.close()

    with in_thread(serve) as made.end:
        yield made


class Author:
    """Writes a log from synchronous code, each call on connections of its own."""

    def __init__(self, dsn: str, signer: Signer) -> None:
        self.dsn, self.signer = dsn, signer
        self._clock = Clock()

    def turn_clock(self, now_ms: int) -> None:
        """What is appended from now on is recorded after this moment."""
        self._clock = Clock(now_ms)

    def append(self, payloads: Sequence[Any], bodies: Sequence[Any] = ()) -> int:
        async def write() -> int:
            store = await PostgresStore.open(self.dsn, self.signer.hotkey)
            try:
                return (await Sequencer(store, self.signer, self._clock, HOST).append(payloads, bodies)).seq
            finally:
                await store.close()

        return asyncio.run(write())

    def race(self, race_id: str, problems: Sequence[int]) -> int:
        """Episodes of some problems, not released; returns the log's size."""
        made = [episode(problem, race_id=race_id) for problem in problems]
        return self.append([each for payloads, _ in made for each in payloads], [body for _, body in made])

    def finish(self, race_id: str, problems: Sequence[int]) -> int:
        """Settle and release a race."""
        return self.append([settlement(race_id), release(race_id, problems)])

    def records(self) -> list[SignedRecord]:
        async def read() -> list[SignedRecord]:
            store = await PostgresStore.open(self.dsn)
            try:
                return [record async for record in store.records(self.signer.hotkey)]
            finally:
                await store.close()

        return asyncio.run(read())


def rows(address: str, path: str = "/v1/tail", **parameters: Any) -> list[LogRow]:
    """Every row of one answer."""
    answer = httpx2.get(f"{address}{path}", params=parameters, timeout=30)
    assert answer.status_code == 200, answer.text
    return [read_row(line) for line in answer.content.splitlines() if line]


def client(address: str, **options: Any) -> TailClient:
    """A client that does not wait long."""
    return TailClient(address, verify_signature=verify, sleep=lambda _: threading.Event().wait(0.05), **options)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
