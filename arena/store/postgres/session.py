"""One statement, one transaction: the store's use of its connections, guarded by the hold on the hotkey.

Every write first makes sure that this process still holds the hotkey, where the store is exclusive; whatever
the driver raises leaves as one of our codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.ext.asyncio import AsyncEngine

from arena.store.postgres.connect import coded_errors
from arena.store.postgres.hold import Hold


class Session:
    """The connections of one store. Safe to share between the tasks of one event loop."""

    def __init__(self, engine: AsyncEngine, hold: Hold | None = None) -> None:
        self._engine = engine
        self._hold = hold

    async def rows(self, statement: TextClause, **values: object) -> Sequence[Row[Any]]:
        """All rows of a statement that reads."""
        with coded_errors():
            async with self._engine.connect() as connection:
                return (await connection.execute(statement, values)).all()

    async def scalar(self, statement: TextClause, **values: object) -> Any:
        """The first column of the first row of a statement that reads."""
        return (await self.rows(statement, **values))[0][0]

    async def write(self, statement: TextClause, **values: object) -> Sequence[Row[Any]]:
        """The rows a writing function returns. Raises ArenaError V2024 when another process holds the hotkey."""
        await self.require()
        return await self.rows(statement, **values)

    async def write_scalar(self, statement: TextClause, **values: object) -> Any:
        """What a writing function returns. Raises as `write`."""
        return (await self.write(statement, **values))[0][0]

    async def require(self) -> None:
        """Return while this process holds the hotkey, where the store is exclusive. Raises ArenaError V2024."""
        if self._hold:
            await self._hold.require()

    async def close(self) -> None:
        """Close the connections, and let go of the hotkey."""
        await self._engine.dispose()
        if self._hold:
            await self._hold.release()
