"""The local chain at an address, for miners on other machines: what a node's websocket is on a real network.

Only what anybody may do on a chain: reads, and extrinsics that carry their hotkey's signature. What a test or
the demo decides in the network's place (stake, reorgs) is not served. A question is bounded in size and time.
"""

from __future__ import annotations

import asyncio
import socket

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arena.api.server import address_of, serve_app
from arena.chain.local.chain import LocalSubtensor
from arena.chain.local.wire import QUESTION_BYTES_MAX, ROUTE, ChainAnswer, ChainQuestion
from arena.door.form import read_body
from foundation.canonical import UNREADABLE_JSON
from foundation.codes.names import TAIL_BAD_REQUEST
from foundation.errors import ArenaError
from harness.catalogue.server.guard import Connections

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
            answer, status = ChainAnswer(value=await ask(self._chain, asked)), 200
        except UNREADABLE_JSON as error:
            answer, status = ChainAnswer(failure=ArenaError(TAIL_BAD_REQUEST, str(error)[:300]).failure), 400
        except ArenaError as error:
            answer, status = ChainAnswer(failure=error.failure), 503 if error.entry.is_retryable else 400
        return Response(msgspec.json.encode(answer), status, media_type="application/json")


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


async def ask(chain: LocalSubtensor, asked: ChainQuestion) -> object:
    """What the chain says to a question. Raises ArenaError U3030, and V2030 for a question about another subnet."""
    if asked.netuid != chain.netuid:
        raise ArenaError("V2030", f"netuid {asked.netuid}: this chain has netuid {chain.netuid}")
    sender = _Sender(asked.hotkey, asked.signature)
    match asked.call:
        case "block":
            return await chain.block()
        case "finalized_block":
            return await chain.finalized_block()
        case "block_at":
            return await chain.block_at(asked.unix_ms)
        case "block_hash":
            return await chain.block_hash(asked.block or 0)
        case "metagraph":
            return await chain.metagraph(asked.block)
        case "commitment":
            return await chain.commitment(asked.hotkey, asked.block)
        case "commitments":
            return await chain.commitments(asked.hotkeys, asked.block or 0)
        case "weights":
            return await chain.weights(asked.hotkey)
        case "owner_hotkey":
            return await chain.owner_hotkey()
        case "register":
            return await chain.register(sender)
        case "commit":
            return await chain.commit(sender, asked.sha256)
        case "publish":
            return await chain.publish(sender, asked.endpoint)
        case "set_weights":
            return await chain.set_weights(sender, asked.uids, asked.weights_u16)
