"""The servers of a node: one socket and one application each, in the event loop they are run in.

Clients that send or read too slowly are dropped and connections are bounded for each address
(`harness.catalogue.server`), so silent clients do not fill the server; stopping ends every stream after the page
it is at. Whoever made the socket decides who may reach it. Public reads, door and exchange have a listener each, so a
crowd at one does not slow the others. The published SN15 API (`arena.sn15`) is put beside them here and nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping

import msgspec
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena.api.board import Board
from arena.api.http import (
    RequestLimits,
    add_refusals,
    address_of,
    make_app,
    read_body,
    refusal,
    serve_app,
)
from arena.api.reads import add_reads
from arena.api.tail import HEARTBEAT_S, POLL_S, Tail, add_tail
from arena.bank.batch import Explain, explain_nothing
from arena.chain.local import LocalSubtensor
from arena.chain.local_http import EXTRINSICS, QUESTION_BYTES_MAX, READS, ROUTE, ChainAnswer, ChainQuestion
from arena.door.app import Door, explain_dropped, make_door_app
from arena.exchange.peer_service import ShareRules
from arena.exchange.routes import Exchange, Places, add_exchange
from arena.records.port import Store
from arena.sn15.routes import CLOSED_PATHS, PATHS, add_sn15_reads, make_closed_app, make_sn15_app
from arena.web.routes import add_pages
from foundation.canonical import UNREADABLE_JSON
from foundation.codes.names import TAIL_BAD_REQUEST
from foundation.errors import ArenaError
from harness.catalogue.server import Connections
from problems.model import Problem

_SHORT_REQUESTS = 32  # connections beside the streams
_EXCHANGE_CONNECTIONS = 512
DOOR_CONNECTIONS, DOOR_CONNECTIONS_PER_ADDRESS = 256, 32
REQUESTS_PER_S = 250.0
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


def make_tail_app(
    tail: Tail, places: Places, board: Board, *, explain: Explain = explain_nothing, is_sn15_served: bool = False
) -> FastAPI:
    """The public application over one tail and the board of the same store.

    `explain` says of released problems what they asked, for the pages. `is_sn15_served`: also the read routes of the
    published SN15 API.
    """
    app = make_app("agent-arena public reads and live tail")
    add_refusals(app)
    add_tail(app, tail, places)
    add_reads(app, board, tail)
    add_pages(app, board, tail, explain)
    if is_sn15_served:
        add_sn15_reads(app, board)
    return app


def make_exchange_app(exchange: Exchange) -> FastAPI:
    """The application of the exchange between validators: signed requests alone."""
    app = make_app("agent-arena exchange")
    add_refusals(app)
    add_exchange(app, exchange, refusal)
    return app


class TailServer:
    """Serves the public reads, pages and live tail of one store on one listening socket."""

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
        """`clients` streams run at once; `suites` are the public problems by suite, `now_ms` unix milliseconds;
        `requests_per_s` of one address, twice as many at once; `explain` says of released problems what they asked;
        `is_sn15_served`: also the read routes of the published SN15 API."""
        self.tail = Tail(store, poll_s=poll_s, heartbeat_s=heartbeat_s, now_ms=now_ms)
        self.board = Board(store, now_ms=now_ms, suites=suites or {}, refresh_s=poll_s)
        self.places = Places(clients)
        self.address = address_of(listener)
        rules = ShareRules(requests_per_s=requests_per_s, requests_burst=int(2 * requests_per_s))
        app = make_tail_app(self.tail, self.places, self.board, explain=explain, is_sn15_served=is_sn15_served)
        self._app, self._listener = RequestLimits(app, rules), listener

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        room = self.places.limit + _SHORT_REQUESTS
        connections = Connections(total=room, per_address=room - room // 4)  # some are left for others
        await serve_app(self._app, self._listener, connections, stop, self.tail.closing)


class ExchangeServer:
    """Serves one exchange on a listening socket of its own."""

    def __init__(self, exchange: Exchange, listener: socket.socket) -> None:
        self.address = address_of(listener)
        self._exchange, self._listener = exchange, listener

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        connections = Connections(total=_EXCHANGE_CONNECTIONS)
        await serve_app(make_exchange_app(self._exchange), self._listener, connections, stop, asyncio.Event())


class DoorServer:
    """Serves one door on one listening socket."""

    def __init__(
        self, door: Door, listener: socket.socket, board: Board, *, per_address: int = DOOR_CONNECTIONS_PER_ADDRESS
    ) -> None:
        """`board` answers the public reads of the published SN15 API, where the policy has the door speak it. At most
        `per_address` connections of one address at once."""
        self.address = address_of(listener)
        self.door, self._listener, self._board, self._per_address = door, listener, board, per_address

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        connections = Connections(total=max(DOOR_CONNECTIONS, self._per_address), per_address=self._per_address)
        is_spoken = self.door.policy.admission.is_commitment_enough
        sn15 = make_sn15_app(self.door, self._board) if is_spoken else make_closed_app(self.door)
        app = _ClosesUnread(_ByPath(make_door_app(self.door), sn15, PATHS if is_spoken else CLOSED_PATHS))
        await serve_app(app, self._listener, connections, stop, asyncio.Event(), explain_dropped)


class _ClosesUnread:
    """An application whose answer ends the connection where it comes before the whole body: what is still on its way
    would be read for nothing. Every other connection is kept, since a new one costs both sides more than a refusal."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = not any(name in _BODY_HEADERS for name, _ in scope["headers"])

        async def heard() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def said(message: Message) -> None:
            if message["type"] == "http.response.start" and not is_read:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await self._app(scope, heard, said)


class _ByPath:
    """Two applications on one address, each with its own shape of refusals."""

    def __init__(self, door: ASGIApp, sn15: ASGIApp, paths: tuple[str, ...]) -> None:
        self._door, self._sn15, self._paths = door, sn15, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._sn15 if scope.get("path", "").startswith(self._paths) else self._door
        await app(scope, receive, send)


_CONNECTIONS, _BODY_S = 64, 10.0


class ChainServer:
    """Serves one local chain on one listening socket."""

    def __init__(self, chain: LocalSubtensor, listener: socket.socket) -> None:
        self._chain, self._listener = chain, listener

    @property
    def address(self) -> str:
        """The base URL: `--subtensor.network` of the machines that use it."""
        return address_of(self._listener)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        app = Starlette(routes=[Route(ROUTE, self._answer, methods=["POST"])])
        await serve_app(app, self._listener, Connections(total=_CONNECTIONS), stop, asyncio.Event())

    async def _answer(self, request: Request) -> Response:
        try:
            body = await read_body(request, QUESTION_BYTES_MAX, _BODY_S)
            asked = msgspec.json.decode(body, type=ChainQuestion)
            answer, status = ChainAnswer(value=await self._ask(asked)), 200
        except UNREADABLE_JSON as error:
            answer, status = ChainAnswer(failure=ArenaError(TAIL_BAD_REQUEST, str(error)[:300]).failure), 400
        except ArenaError as error:
            answer, status = ChainAnswer(failure=error.failure), 503 if error.entry.is_retryable else 400
        return Response(msgspec.json.encode(answer), status, media_type="application/json")

    async def _ask(self, asked: ChainQuestion) -> object:
        """What the chain says. Raises ArenaError U3030, and V2030 for a question about another subnet."""
        if asked.netuid != self._chain.netuid:
            raise ArenaError("V2030", f"netuid {asked.netuid}: this chain has netuid {self._chain.netuid}")
        if asked.call in READS:
            arguments = [getattr(asked, name) for name in READS[asked.call]]
        else:
            sender = _Sender(asked.hotkey, asked.signature)
            arguments = [sender, *(getattr(asked, name) for name in EXTRINSICS[asked.call])]
        return await getattr(self._chain, asked.call)(*arguments)


class _Sender:
    """A hotkey on another machine, by the signature that it sent."""

    def __init__(self, hotkey: str, signature: str) -> None:
        self.hotkey = hotkey
        try:
            self._signature = bytes.fromhex(signature)
        except ValueError:
            self._signature = b""

    def sign(self, message: bytes) -> bytes:
        return self._signature  # of these bytes or of none: the chain checks
