"""The door's server: a listener of its own, in the event loop it is run in."""

from __future__ import annotations

import asyncio
import socket

from arena.api.server import address_of, serve_app
from arena.door.app import Door, make_door_app
from arena.door.refusals import explain
from harness.catalogue.server.guard import Connections

CONNECTIONS, CONNECTIONS_PER_ADDRESS = 256, 32


class DoorServer:
    """Serves one door on one listening socket."""

    def __init__(self, door: Door, listener: socket.socket, *, per_address: int = CONNECTIONS_PER_ADDRESS) -> None:
        """At most `per_address` connections of one address at once."""
        self.door, self._listener, self._per_address = door, listener, per_address

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
        try:
            await serve_app(make_door_app(self.door), self._listener, connections, stop, asyncio.Event(), explain)
        finally:
            await self.door.desk.parser.close()
