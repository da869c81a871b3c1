"""The live tail's server: one socket, one application, in the event loop it is run in.

Promise: clients that send or read too slowly are dropped (`harness.catalogue.guard`) and come back by their cursor;
stopping ends every stream after the page it is at. It installs no signal handlers: whoever runs it decides when it
stops, and whoever made the socket (`harness.catalogue.server.listen`) who may reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from arena.api.app import make_app
from arena.api.stream import Places
from arena.api.tail import HEARTBEAT_S, POLL_S, Tail
from arena.exchange.routes import Exchange
from arena.store.port import Store
from harness.catalogue.guard import GuardedProtocol

_STOP_TIMEOUT_S = 5
_SHORT_REQUESTS = 32  # connections beside the streams


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
        exchange: Exchange | None = None,
    ) -> None:
        """`clients` streams run at once. `exchange` is served on the same socket."""
        self.tail = Tail(store, poll_s=poll_s, heartbeat_s=heartbeat_s)
        self.places = Places(clients)
        self.exchange = exchange
        self._listener = listener

    @property
    def address(self) -> str:
        """The base URL."""
        host, port = self._listener.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        exchange_places = self.exchange.places.limit if self.exchange else 0
        server = _Server(
            uvicorn.Config(
                make_app(self.tail, self.places, self.exchange),
                http=GuardedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=self.places.limit + exchange_places + _SHORT_REQUESTS,
                timeout_graceful_shutdown=_STOP_TIMEOUT_S,
            )
        )
        serving = asyncio.ensure_future(server.serve(sockets=[self._listener]))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self.tail.closing.set()
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
