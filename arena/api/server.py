"""The servers of a node: one socket and one application each, in the event loop they are run in.

Clients that send or read too slowly are dropped and connections are bounded for each address
(`harness.catalogue.server.guard`), so silent clients do not fill the server; stopping ends every stream after the page
it is at. A server installs no signal handlers: whoever runs it decides when it stops, and whoever made the socket
(`harness.catalogue.server.application.listen`) who may reach it. The tail is for the public, the exchange for
validators: each has a listener of its own, so a crowd at one does not slow the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import time
from collections.abc import Callable, Iterator, Mapping

import uvicorn
from starlette.types import ASGIApp

from arena.api.app import make_exchange_app, make_tail_app
from arena.api.limits import RequestLimits
from arena.api.reads.answer_cache import AnswerCache
from arena.api.reads.board import Board
from arena.api.stream import Places
from arena.api.tail import HEARTBEAT_S, POLL_S, Tail
from arena.bank.batches.explanation import Explain, explain_nothing
from arena.exchange.routes import Exchange
from arena.store.port import Store
from harness.catalogue.server.guard import Connections, GuardedProtocol
from problems.model import Problem

_STOP_TIMEOUT_S = 5
_SHORT_REQUESTS = 32  # connections beside the streams
_EXCHANGE_CONNECTIONS = 512
REQUESTS_PER_S = 250.0


class TailServer:
    """Serves one store on one listening socket."""

    def __init__(
        self,
        store: Store,
        listener: socket.socket,
        *,
        clients: int = 32,
        poll_s: float = POLL_S,
        heartbeat_s: float = HEARTBEAT_S,
        suites: Mapping[str, tuple[Problem, ...]] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        requests_per_s: float = REQUESTS_PER_S,
        explain: Explain = explain_nothing,
        is_sn15_served: bool = False,
    ) -> None:
        """`clients` streams run at once; an address may make `requests_per_s`, and twice as many at once. `suites`: the
        public problems by suite. `now_ms`: unix time, by which embargoes end. `explain`: what released
        problems asked, for the pages. `is_sn15_served`: also under the routes and names of the published SN15 API."""
        self.tail = Tail(store, poll_s=poll_s, heartbeat_s=heartbeat_s, now_ms=now_ms)
        self.board = Board(store, now_ms=now_ms, suites=suites or {}, refresh_s=poll_s)
        self._requests_per_s, self._explain, self._is_sn15_served = requests_per_s, explain, is_sn15_served
        self.places = Places(clients)
        self._listener = listener

    @property
    def address(self) -> str:
        """The base URL."""
        return address_of(self._listener)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        room = self.places.limit + _SHORT_REQUESTS
        connections = Connections(total=room, per_address=room - room // 4)  # some are left for others
        app = make_tail_app(
            self.tail, self.places, self.board, explain=self._explain, is_sn15_served=self._is_sn15_served
        )
        cached, per_s = AnswerCache(app, self.board), self._requests_per_s
        limited = RequestLimits(cached, requests_per_s=per_s, burst=int(2 * per_s))
        await serve_app(limited, self._listener, connections, stop, self.tail.closing)


class ExchangeServer:
    """Serves one exchange on a listening socket of its own."""

    def __init__(self, exchange: Exchange, listener: socket.socket) -> None:
        self._exchange, self._listener = exchange, listener

    @property
    def address(self) -> str:
        """The base URL."""
        return address_of(self._listener)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        connections = Connections(total=_EXCHANGE_CONNECTIONS)
        await serve_app(make_exchange_app(self._exchange), self._listener, connections, stop, asyncio.Event())


async def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    connections: Connections,
    stop: asyncio.Event,
    closing: asyncio.Event,
    explain: Callable[[str], bytes] | None = None,
) -> None:
    """Serve an application until `stop` is set; `closing` is set then, for streams that would go on for ever.
    `explain`: what a client reads that was dropped before it had made a request."""
    server = _Server(
        uvicorn.Config(
            app,
            http=functools.partial(GuardedProtocol, connections=connections, explain=explain),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_STOP_TIMEOUT_S,
        )
    )
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        closing.set()
        server.should_exit = True
        await serving


def address_of(listener: socket.socket) -> str:
    """The base URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
