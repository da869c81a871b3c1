"""The store a command reads: that of a DSN, or of a state folder, whose embedded server is started for the command.

Promise: it stops a server again that nobody else uses, and never writes a record. Bodies that lie in an object store
are read from the one that the state folder names or, with a DSN, ARENA_BODIES_URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from arena.store.location import StoreLocation
    from arena.store.postgres.store import PostgresStore

T = TypeVar("T")

BODIES_URL_VARIABLE = "ARENA_BODIES_URL"

DsnOption = Annotated[
    str,
    typer.Option(
        "--dsn",
        help="Read this Postgres instead of the state folder's store. Bodies outside of it are read from the URL in"
        " ARENA_BODIES_URL.",
    ),
]
StateDirOption = Annotated[
    Path | None, typer.Option("--state-dir", help="State folder of the node. Default: ARENA_STATE_DIR or the system's.")
]
ValidatorOption = Annotated[str, typer.Option("--validator", help="Whose log, where the store holds several.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def run_on_store(dsn: str, state_dir: Path | None, work: Callable[[PostgresStore], Coroutine[Any, Any, T]]) -> T:
    """What `work` returns, given the store of a DSN or a state folder.

    Raises ArenaError V2021, V2022, V2023, V2026, V2028, V2029.
    """

    async def opened() -> T:
        async with open_store(dsn, state_dir) as store:
            return await work(store)

    return asyncio.run(opened())


@contextlib.asynccontextmanager
async def open_store(dsn: str, state_dir: Path | None) -> AsyncIterator[PostgresStore]:
    """The store of a DSN or a state folder; an embedded server runs while the block does."""
    from arena.store.location import default_state_dir
    from arena.store.objects import open_objects
    from arena.store.postgres.store import PostgresStore

    folder = state_dir or default_state_dir()
    location = location_of(dsn, folder)
    objects = open_objects(location.objects) if location.objects else None
    with contextlib.ExitStack() as stack:
        if location.kind == "embedded":
            from arena.store.embedded.server import start_embedded

            stack.callback(start_embedded(folder).stop)
        store = await PostgresStore.open(location.dsn, objects=objects)
        try:
            yield store
        finally:
            await store.close()


def location_of(dsn: str, state_dir: Path) -> StoreLocation:
    """Where the store of a DSN (""; of a state folder) and its bodies are. Raises ArenaError V2021, V2026."""
    from arena.store.location import StoreLocation, read_location
    from foundation.errors import ArenaError

    if dsn:
        return StoreLocation(
            kind="external", validator="", dsn=dsn, objects=os.environ.get(BODIES_URL_VARIABLE, "").strip()
        )
    location = read_location(state_dir)
    if location is None:
        raise ArenaError("V2026", str(state_dir))
    return location


async def logs_of(store: PostgresStore, validator: str) -> list[str]:
    """The logs a command looks at: the one asked for, else all of them."""
    names = await store.validators()
    if validator and validator not in names:
        raise typer.BadParameter(f"there is no log of {validator} here")
    return [validator] if validator else names
