"""The watch over the embedded server: when it dies, it is started again while the node runs.

It restarts only the server of this node's own state folder, and only while that is the node's store; a server
elsewhere is its owner's business. The loops wait meanwhile (V2021) and go on with the same connection string. Calls
that the server answered before it died are on its disk; the others are repeated by their callers.
"""

from __future__ import annotations

import asyncio

from arena.store.embedded.server import EmbeddedServer, is_running, start_embedded
from arena.store.location import read_location
from foundation.errors import ArenaError
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.node.node import Node

TURN_S = 2.0


class DatabaseWatch:
    """Keeps one node's embedded server running."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._started: list[EmbeddedServer] = []  # our further shares in it

    async def run(self, drain: StopSignal) -> None:
        """Turn until drained, then give back what was started. Only waits where the server is another's."""
        location = read_location(self._node.state_dir)
        if location is None or location.kind != "embedded":
            await drain.wait()
            return
        try:
            await run_loop("database", self.turn, drain, self._node.log, every_s=TURN_S)
        finally:
            for server in self._started:
                await asyncio.shield(asyncio.to_thread(server.stop))

    async def turn(self) -> bool:
        """Start the server if it is gone; True when it was. Raises ArenaError V2021 when it does not start."""
        folder = self._node.state_dir
        if await asyncio.to_thread(is_running, folder):
            return False
        self._node.log.error("database server is gone; starting it again", folder=str(folder))
        try:
            self._started.append(await asyncio.to_thread(start_embedded, folder))
        except ArenaError as error:
            raise ArenaError("V2021", f"the embedded server does not start: {error.failure.detail}") from error
        self._node.log.info("database server is back", folder=str(folder))
        return True
