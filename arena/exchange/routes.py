"""The exchange over HTTP: signed questions on an application and a socket of their own. `PeerService` answers.

A request is looked at in this order: does the hotkey it names hold a permit, did that hotkey sign it for us
just now, has it a share left. Only then is anything read. Requests carry no body. A streamed answer that failed
half-way is never ended properly, so it does not look whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, nullcontext

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from arena.chain.keys import HttpAuth
from arena.exchange.peer_service import PeerService
from arena.exchange.port import QUESTIONS, RowsQuestion
from arena.export.model import LogRow
from foundation.codes import PEER_LACKS, TAIL_BAD_REQUEST
from foundation.errors import ArenaError
from foundation.logs import get_logger
from harness.catalogue.server import network_of

PIECE_BYTES = 64 << 10


class Exchange(msgspec.Struct, frozen=True):
    """A peer service, and how it distinguishes its callers. `door_port`: where miners submit here; 0: nowhere."""

    service: PeerService
    auth: HttpAuth
    door_port: int = 0

    def caller(self, request: Request) -> str:
        """The permit holder that signed a request. Raises ArenaError V2110, V2111."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        claimed = self.auth.claimed(headers)
        if claimed is None:
            raise ArenaError("V2110", "no hotkey is named")
        if not self.service.has_permit(claimed):
            raise ArenaError("V2111", claimed)
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            raise ArenaError("V2110", "a request of the exchange has no body")
        return self.auth.caller(headers, request.method, signed_target(request))


def signed_target(request: Request) -> str:
    """Path and query as they were sent: what the signature of a request covers."""
    query = request.scope["query_string"].decode("latin-1")
    return str(request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""))


def add_exchange(app: FastAPI, exchange: Exchange) -> None:
    """Add the exchange's routes."""

    @app.get("/v1/exchange/{kind}", response_class=Response)
    async def read(request: Request, kind: str) -> Response:
        """The answer to one question (`arena.exchange.port`), whose fields are the query."""
        caller = exchange.caller(request)
        if kind not in QUESTIONS:
            raise ArenaError(PEER_LACKS, f"there is no question {kind[:64]!a}")
        try:
            question = msgspec.convert(dict(request.query_params), QUESTIONS[kind], strict=False)
        except msgspec.ValidationError as error:
            raise ArenaError(TAIL_BAD_REQUEST, str(error)[:200]) from error
        if isinstance(question, RowsQuestion):
            return RowStream(_pieces(await exchange.service.rows(caller, question)))
        return _found(await exchange.service.answer(caller, question), kind)

    @app.get("/v1/door", response_class=Response)
    async def read_door_port() -> Response:
        """The port, at this address, at which miners submit. Not signed: the chain names this address to everybody."""
        return _found({"port": exchange.door_port} if exchange.door_port else None, "door")


def _found(value: object, what: str) -> Response:
    if value is None:
        raise ArenaError(PEER_LACKS, f"no such {what}")
    is_raw = isinstance(value, bytes)
    return Response(
        value if is_raw else msgspec.json.encode(value),
        media_type="application/octet-stream" if is_raw else "application/json",
        headers={"cache-control": "no-store"},
    )


async def _pieces(rows: AsyncGenerator[LogRow]) -> AsyncGenerator[bytes]:
    """Lines with their ends, joined into pieces of about PIECE_BYTES."""
    waiting = bytearray()
    async with aclosing(rows):
        async for row in rows:
            waiting += msgspec.json.encode(row) + b"\n"
            if len(waiting) >= PIECE_BYTES:
                yield bytes(waiting)
                waiting.clear()
    if waiting:
        yield bytes(waiting)


class Places:
    """How many streams, or bodies, may run at once: of all clients, and of one IPv4 address or IPv6 /64."""

    def __init__(self, total: int, of_one: int, what: str = "streams") -> None:
        self._total, self._of_one, self._what = total, of_one, what
        self._taken: Counter[str] = Counter()

    def require(self, address: str) -> None:
        """Raises ArenaError V2112 where no place is left for an address."""
        if self._taken[network_of(address)] >= self._of_one:
            raise ArenaError("V2112", f"{self._of_one} {self._what} to your address run now")
        if self._taken.total() >= self._total:
            raise ArenaError("V2112", f"{self._total} {self._what} run now")

    @contextmanager
    def taken(self, address: str) -> Iterator[None]:
        """One place, as long as the block lasts."""
        network = network_of(address)
        self._taken[network] += 1
        try:
            yield
        finally:
            self._taken[network] -= 1
            self._taken += Counter()  # networks without one are forgotten


class RowStream(StreamingResponse):
    """Lines from an iterator of pieces, which is closed when it ended or the client left."""

    def __init__(self, pieces: AsyncGenerator[bytes], places: Places | None = None, address: str = "") -> None:
        """`places`: how many may run at once, `address` whose this is. Raises ArenaError V2112 where none is left."""
        if places is not None:
            places.require(address)
        super().__init__(pieces, headers={"cache-control": "no-store"}, media_type="application/x-ndjson")
        self._pieces, self._place = pieces, places.taken(address) if places else nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Returns when it ended or the client left."""
        try:
            with self._place:
                async with aclosing(self._pieces):
                    await super().__call__(scope, receive, send)
        except ArenaError as error:
            get_logger().warning("tail ended early", code=error.failure.code, detail=error.failure.detail)
