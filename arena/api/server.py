"""The servers of a node: one socket and one application each, in the event loop they are run in.

Clients that send or read too slowly are dropped and connections are bounded for each address
(`harness.catalogue.server`), so silent clients do not fill the server; stopping ends every stream after the page
it is at. A server installs no signal handlers: whoever runs it decides when it stops, and whoever made the socket
(`harness.catalogue.server.listen`) who may reach it. The tail is for the public, the exchange for
validators: each has a listener of its own, so a crowd at one does not slow the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
import uvicorn
from fastapi import Depends, FastAPI, Query, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from arena.api.board import Board
from arena.api.http import CursorError, ErrorAnswer, RequestLimits, add_refusals, json_response, refusal
from arena.api.results import add_reads
from arena.api.tail import HEARTBEAT_S, POLL_S, Places, RowStream, Tail, TailRequest
from arena.bank.batch import Explain, explain_nothing
from arena.exchange.routes import Exchange, add_exchange
from arena.records.log import note_sha256
from arena.sn15.routes import add_sn15_reads
from arena.store.port import Store
from arena.web.routes import add_pages
from foundation.errors import ArenaError
from harness.catalogue.server import Connections, GuardedProtocol
from problems.model import Pool, Problem

DEFAULT_POOLS: list[Pool] = ["train"]
CHECKPOINTS_MAX = 1_000
SEQ_MAX = 2**53 - 1

Validator = Annotated[
    str, Query(pattern=r"^[A-Za-z0-9]{0,128}$", description="Whose log; may be left out where there is one.")
]
Race = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.-]{1,128}$", description="A released race.")]
After = Annotated[int, Query(ge=0, le=SEQ_MAX, description="Number of the last record the client has.")]
Limit = Annotated[int, Query(ge=0, le=SEQ_MAX, description="Most rows; 0: no limit.")]
Follow = Annotated[bool, Query(description="Stay, and stream what is appended.")]
Pools = Annotated[
    list[Pool], Query(alias="pool", description="Pools whose rows are asked for, by name; repeatable. Default: train.")
]


def _knows(*names: str) -> Any:
    """A route's refusal of query parameters it does not know."""

    async def check(request: Request) -> None:  # else each request would take a thread
        for name in request.query_params:
            if name not in names:
                raise ArenaError("V2081", f"{name[:64]} is not a parameter; there are {', '.join(names) or 'none'}")

    return Depends(check)


def make_tail_app(
    tail: Tail, places: Places, board: Board, *, explain: Explain = explain_nothing, is_sn15_served: bool = False
) -> FastAPI:
    """The public application over one tail and the board of the same store.

    `explain` says of released problems what they asked, for the pages. `is_sn15_served`: also the read routes of the
    published SN15 API.
    """
    app = _make_app("agent-arena public reads and live tail")
    _add_streams(app, tail, places)
    _add_values(app, tail)
    add_reads(app, board, tail)
    add_pages(app, board, tail, places, explain)
    if is_sn15_served:
        add_sn15_reads(app, board)
    return app


def make_exchange_app(exchange: Exchange) -> FastAPI:
    """The application of the exchange between validators: signed requests alone."""
    app = _make_app("agent-arena exchange")
    add_exchange(app, exchange, refusal, _knows)
    return app


def _make_app(title: str) -> FastAPI:
    _, shapes = msgspec.json.schema_components([ErrorAnswer])
    refused = {"description": ErrorAnswer.__doc__, "content": {"application/json": {"schema": shapes["ErrorAnswer"]}}}
    responses: dict[int | str, dict[str, Any]] = {"4XX": refused, "5XX": refused}
    app = FastAPI(title=title, version="1", docs_url=None, redoc_url=None, responses=responses)
    add_refusals(app)
    return app


def _add_streams(app: FastAPI, tail: Tail, places: Places) -> None:
    rows: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/x-ndjson": {}}, "description": "one LogRow a line"}
    }

    of_tail = [_knows("validator", "after", "follow", "limit", "pool")]
    of_race = [_knows("validator", "race", "after", "limit", "pool")]

    @app.get("/v1/tail", response_class=Response, responses=rows, dependencies=of_tail)
    async def read_tail(
        pool: Pools = DEFAULT_POOLS,
        validator: Validator = "",
        after: After = 0,
        follow: Follow = False,
        limit: Limit = 0,
    ) -> Response:
        """Rows of a log after a cursor, in order; with `follow`, and then what is appended, for ever.

        A record whose race is not released is a stub (`withheld`), as is one of a pool that was not named. An empty
        line every 15 s says that the server is there. The cursor is the number (`seq`) of the last row received.
        """
        name = await tail.require_log(validator)
        head = await tail.end(name, is_fresh=True)
        if after > head.seq:
            raise CursorError(after, head.seq)
        asked = TailRequest(validator=name, after=after, limit=limit, is_following=follow, pools=_pools(pool))
        return RowStream(tail.rows(asked), places, refusal)

    @app.get("/v1/records", response_class=Response, responses=rows, dependencies=of_race)
    async def read_race(
        race: Race,
        pool: Pools = DEFAULT_POOLS,
        validator: Validator = "",
        after: After = 0,
        limit: Limit = 0,
    ) -> Response:
        """The rows of one released race, in log order: how a follower gets whole what it got as stubs."""
        name = await tail.require_log(validator)
        await tail.require_released(name, race)
        asked = TailRequest(validator=name, after=after, limit=limit, pools=_pools(pool))
        return RowStream(tail.race_rows(asked, race), places, refusal)


def _add_values(app: FastAPI, tail: Tail) -> None:
    @app.get("/v1/head", response_class=Response, dependencies=[_knows()])
    async def read_heads() -> Response:
        """Where each log ends: validator, seq, and the chain's hash there."""
        heads = await tail.heads()
        return json_response([{"validator": name, "seq": head.seq, "hash": head.hash} for name, head in heads.items()])

    @app.get("/v1/checkpoints", response_class=Response, dependencies=[_knows("validator", "after_size")])
    async def read_checkpoints(validator: Validator = "", after_size: After = 0) -> Response:
        """Signed checkpoints of a log by size, at most a thousand: the note, its sha256 and the block that holds it."""
        name = await tail.require_log(validator)
        found = (await tail.store.checkpoints(name, after_size=after_size))[:CHECKPOINTS_MAX]
        return json_response(
            [msgspec.structs.asdict(point) | {"note_sha256": note_sha256(point.note)} for point in found]
        )

    @app.get("/v1/health", response_class=Response, dependencies=[_knows()])
    async def read_health() -> Response:
        """200 while the store answers."""
        await tail.store.validators()
        return json_response({"status": "ok"})


def _pools(named: list[Pool]) -> tuple[Pool, ...]:
    return tuple(dict.fromkeys(named))


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
        per_s = self._requests_per_s
        limited = RequestLimits(app, requests_per_s=per_s, burst=int(2 * per_s))
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
