"""The exchange over HTTP: seven signed requests on an application and a socket of their own. `PeerService` answers.

A request is looked at in this order: does the hotkey it names hold a permit, did that hotkey sign it for us
just now, has it a share left. Only then is anything read. Requests carry no body. A streamed answer that failed
half-way is never ended properly, so it does not look whole. Streams have places of their own, which the public can't
take.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated

import msgspec
from fastapi import Depends, FastAPI, Query, Request
from starlette.responses import Response

from arena.chain.port import RequestAuth
from arena.exchange.peer_service import PeerService
from arena.exchange.streams import Places, RowStream
from arena.export.model import LogRow
from foundation.errors import ArenaError

STREAMS = 64  # answers of rows at once
PIECE_BYTES = 64 << 10
SEQ_MAX = 2**53 - 1

_Sha256 = Annotated[str, Query(pattern="^[0-9a-f]{64}$")]
_Known = Annotated[str, Query(pattern="^([0-9a-f]{64})?$")]
_Hotkey = Annotated[str, Query(pattern="^[A-Za-z0-9]{1,128}$")]
_Race = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.-]{0,128}$")]
_Seq = Annotated[int, Query(ge=0, le=SEQ_MAX)]


class Exchange:
    """A peer service, and how its callers are told apart."""

    def __init__(self, service: PeerService, auth: RequestAuth, *, streams: int = STREAMS, door_port: int = 0) -> None:
        """`streams` answers of rows run at once. `door_port`: where this node's miners submit; 0: nowhere."""
        self.door_port = door_port
        self.service = service
        self.places = Places(streams)
        self._auth = auth

    def caller(self, request: Request) -> str:
        """The permit holder that signed a request. Raises ArenaError V2110, V2111."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        claimed = self._auth.claimed(headers)
        if claimed is None:
            raise ArenaError("V2110", "no hotkey is named")
        if not self.service.has_permit(claimed):
            raise ArenaError("V2111", claimed)
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            raise ArenaError("V2110", "a request of the exchange has no body")
        query = request.scope["query_string"].decode("latin-1")
        target = request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        return self._auth.caller(headers, request.method, target)


async def _caller(request: Request) -> str:
    exchange: Exchange = request.app.state.exchange
    return exchange.caller(request)


_Caller = Annotated[str, Depends(_caller)]


def add_exchange(app: FastAPI, exchange: Exchange, refuse: Callable[[ArenaError], Response]) -> None:
    """Add the routes to an application. `refuse` answers an error."""
    app.state.exchange = exchange
    service = exchange.service

    @app.get("/v1/exchange/note", response_class=Response)
    async def read_note(asker: _Caller, validator: _Hotkey, sha256: _Sha256) -> Response:
        """A signed checkpoint by its hash, of this validator or of one whose log it holds."""
        return _found(await service.note(asker, validator, sha256), "note")

    @app.get("/v1/exchange/rows", response_class=Response)
    async def read_rows(asker: _Caller, validator: _Hotkey, to: _Seq, after: _Seq = 0, race: _Race = "") -> Response:
        """Rows of a log under an anchored root, one a line: whole where they count for the race, once revealed."""
        rows = await service.rows(asker, validator, after_seq=after, to_seq=to, race_id=race)
        return RowStream(_pieces(rows), exchange.places, refuse)

    @app.get("/v1/exchange/submission", response_class=Response)
    async def read_submission(asker: _Caller, commitment: _Sha256) -> Response:
        """The signed submission behind a commitment on chain."""
        return _found(await service.submission(asker, commitment), "submission")

    @app.get("/v1/exchange/settlement", response_class=Response)
    async def read_settlement(asker: _Caller, race: _Race) -> Response:
        """The settlement in force here for a race."""
        return _found(await service.settlement(asker, race), "settlement")

    @app.get("/v1/exchange/progress", response_class=Response)
    async def read_progress(asker: _Caller, race: _Race) -> Response:
        """Which pairs of a race are done here, never how they ended."""
        return _found(await service.progress(asker, race), "progress")

    @app.get("/v1/exchange/release", response_class=Response)
    async def read_release(asker: _Caller, known: _Known = "") -> Response:
        """The newest release of the operator's files that is known here, unless it is the one with this hash."""
        return _found(await service.release(asker, known), "release")

    @app.get("/v1/exchange/file", response_class=Response)
    async def read_file(asker: _Caller, sha256: _Sha256, start: _Seq = 0) -> Response:
        """A piece (4 MiB, or what is left) of one of the operator's files, from byte `start` on."""
        piece = await service.file_piece(asker, sha256, start)
        if piece is None:
            raise ArenaError("V2113", "no such file")
        return Response(piece, media_type="application/octet-stream", headers={"cache-control": "no-store"})

    @app.get("/v1/door", response_class=Response)
    async def read_door_port() -> Response:
        """The port, at this address, at which miners submit. Not signed: the chain names this address to everybody."""
        return _found({"port": exchange.door_port} if exchange.door_port else None, "door")


def _found(value: object, what: str) -> Response:
    if value is None:
        raise ArenaError("V2113", f"no such {what}")
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"cache-control": "no-store"})


async def _pieces(rows: AsyncGenerator[LogRow]) -> AsyncGenerator[bytes]:
    """Lines with their ends, joined into pieces of about PIECE_BYTES."""
    waiting: list[bytes] = []
    size = 0
    async with aclosing(rows):
        async for row in rows:
            line = msgspec.json.encode(row)
            waiting += (line, b"\n")
            size += len(line) + 1
            if size >= PIECE_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
