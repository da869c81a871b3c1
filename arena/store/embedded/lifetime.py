"""The embedded server for the length of a context, also when the task is cancelled while it is starting.

Promise: leaving the context, in whatever way, gives back the share; a cancellation in the middle of the start waits for
the start to end first, so that no server is left without an owner.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from arena.store.embedded.server import EmbeddedServer, start_embedded


@contextlib.asynccontextmanager
async def embedded_server(state_dir: Path) -> AsyncIterator[EmbeddedServer]:
    """A share in the server of `state_dir`, which is started if it is not running. Raises ArenaError V2020."""
    starting = asyncio.ensure_future(asyncio.to_thread(start_embedded, state_dir))
    try:
        server = await asyncio.shield(starting)
    except asyncio.CancelledError:
        started = await asyncio.gather(starting, return_exceptions=True)
        if isinstance(started[0], EmbeddedServer):
            started[0].stop()
        raise
    try:
        yield server
    finally:
        await asyncio.shield(asyncio.to_thread(server.stop))
