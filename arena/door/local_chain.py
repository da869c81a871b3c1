"""A local chain served over HTTP, for machines that have no file of it (`arena.chain.local_http`)."""

from __future__ import annotations

import asyncio
import socket

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arena.api.http import address_of, read_body, serve_app
from arena.chain.local import LocalSubtensor
from arena.chain.local_http import EXTRINSICS, QUESTION_BYTES_MAX, READS, ROUTE, ChainAnswer, ChainQuestion
from foundation.canonical import UNREADABLE_JSON
from foundation.codes.names import TAIL_BAD_REQUEST
from foundation.errors import ArenaError
from harness.catalogue.server import Connections

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
