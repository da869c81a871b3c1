"""Answers of rows as they come, as long as there is a place for one more stream.

A streamed answer that failed half-way is never ended properly, so that it does not look whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foundation.errors import ArenaError


class Places:
    """How many streams may run at once, and how many do."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0


class RowStream(Response):
    """Lines from an iterator of pieces, as long as there is a place for it."""

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        places: Places,
        refuse: Callable[[ArenaError], Response],
        media_type: str = "application/x-ndjson",
    ) -> None:
        """`refuse` turns V2112 into an answer."""
        super().__init__(headers={"cache-control": "no-store"}, media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces
        self._places = places
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Returns when it ended or the client left."""
        if self._places.taken >= self._places.limit:
            busy = ArenaError("V2112", f"{self._places.limit} streams")
            await self._refuse(busy)(scope, receive, send)
            return
        self._places.taken += 1
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            self._places.taken -= 1
        if not sending.cancelled() and (failed := sending.exception()):
            if not isinstance(failed, ArenaError):
                raise failed
            structlog.get_logger().warning("tail ended early", code=failed.failure.code, detail=failed.failure.detail)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
