"""A process to be killed: holds a hotkey on the server of a DSN until it dies, saying so on stdout."""

from __future__ import annotations

import asyncio
import sys

from arena.store.postgres import PostgresStore


async def hold_forever(dsn: str) -> None:
    store = await PostgresStore.open(dsn, is_exclusive=True)
    sys.stdout.write(f"{store.validator}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(hold_forever(sys.argv[1]))
