"""The hold on a hotkey: a session lock on the server, kept by a connection of its own, that one process has at a time.

While `require` returns, no other process holds this hotkey on this server. The server frees the hold when its
process dies. A process that lost its connection takes the hold again at its next write, ending its own old session if
the server has not noticed, or is refused because another process has it. Needs a server session: a pooler in
transaction mode can't hold one.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from arena.store.postgres import statements as sql
from arena.store.postgres.connect import coded_errors, open_engine
from foundation.errors import ArenaError

PATIENCE_S = 2.0  # a holder that was just stopped or killed, or our own old session: the server still notices
POLL_S = 0.05


class Hold:
    """One process's hold on one hotkey. Safe to share between the tasks of one event loop."""

    def __init__(self, dsn: str, validator: str) -> None:
        self._engine = open_engine(dsn, pool_size=1)
        self._validator = validator
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None
        self._driver: Any = None  # asyncpg's connection, which knows at once when its server hung up
        self._session: dict[str, object] | None = None  # of the latest hold: which server process, since when

    async def require(self) -> None:
        """Return while we hold the hotkey, taking it (again) when it is free.

        Raises ArenaError V2024 when another process holds it, V2021 when the server is away.
        """
        if self._is_kept():
            return
        async with self._lock:
            if self._is_kept():
                return
            await self._drop()
            with coded_errors():
                connection = await self._engine.connect()
                try:
                    deadline = asyncio.get_running_loop().time() + (0 if self._session else PATIENCE_S)
                    if self._session and (await connection.execute(sql.END_SESSION, self._session)).first():
                        deadline += PATIENCE_S
                    while not (await connection.execute(sql.HOLD, {"validator": self._validator})).scalar():
                        if asyncio.get_running_loop().time() > deadline:
                            raise ArenaError("V2024", f"hotkey {self._validator}")
                        await asyncio.sleep(POLL_S)
                    self._session = dict((await connection.execute(sql.SESSION)).one()._mapping)
                    driver = (await connection.get_raw_connection()).driver_connection
                except BaseException:
                    await _end(connection)
                    raise
            self._connection, self._driver = connection, driver

    async def release(self) -> None:
        """Let go. The server frees the hotkey when the connection is closed."""
        await self._drop()
        await self._engine.dispose()

    def _is_kept(self) -> bool:
        return self._driver is not None and not self._driver.is_closed()

    async def _drop(self) -> None:
        connection, self._connection, self._driver = self._connection, None, None
        if connection is not None:
            await _end(connection)


async def _end(connection: AsyncConnection) -> None:
    """End the server's session, not only our use of it."""
    with contextlib.suppress(DBAPIError, OSError):
        await connection.invalidate()
    with contextlib.suppress(DBAPIError, OSError):
        await connection.close()
