"""The door's server: a listener of its own, in the event loop it is run in."""

from __future__ import annotations

import asyncio
import socket

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena.api.board import Board
from arena.api.server import address_of, serve_app
from arena.door.app import Door, explain, make_door_app
from arena.sn15.door import CLOSED_PATHS, PATHS, make_closed_app, make_sn15_app
from harness.catalogue.server import Connections

CONNECTIONS, CONNECTIONS_PER_ADDRESS = 256, 32
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


class DoorServer:
    """Serves one door on one listening socket."""

    def __init__(
        self, door: Door, listener: socket.socket, board: Board, *, per_address: int = CONNECTIONS_PER_ADDRESS
    ) -> None:
        """`board` answers the public reads of the published SN15 API, where the policy has the door speak it, and is
        not read otherwise. At most `per_address` connections of one address at once."""
        self.door, self._listener, self._board, self._per_address = door, listener, board, per_address

    @property
    def address(self) -> str:
        """The base URL."""
        return address_of(self._listener)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1])

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        connections = Connections(total=max(CONNECTIONS, self._per_address), per_address=self._per_address)
        app: ASGIApp = make_door_app(self.door)
        if self.door.policy.admission.is_commitment_enough is True:
            app = _ByPath(app, make_sn15_app(self.door, self._board), PATHS)
        else:
            app = _ByPath(app, make_closed_app(self.door), CLOSED_PATHS)
        try:
            await serve_app(_ClosesUnread(app), self._listener, connections, stop, asyncio.Event(), explain)
        finally:
            await self.door.submissions.parser.close()


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
