"""What a command reads from a store: its logs, and one record of them by its number or the beginning of an id.

The store is that of a DSN, or of a state folder, whose embedded server is started for the command. A server
that nobody else uses is stopped again, and no record is ever written. Bodies that lie in an object store are read from
the one that the state folder names or, with a DSN, ARENA_BODIES_URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from foundation.errors import ArenaError

if TYPE_CHECKING:
    from arena.records.model import RecordContent, SignedRecord
    from arena.store.location import StoreLocation
    from arena.store.postgres import PostgresStore

T = TypeVar("T")

BODIES_URL_VARIABLE = "ARENA_BODIES_URL"
MESSAGE_NOT_FOUND = "no record matches {which!r}; give a number, or the beginning of a record, body or attempt id"


def run_on_store(
    dsn: str, state_dir: Path | None, work: Callable[[PostgresStore], Coroutine[Any, Any, T]], *, is_owner: bool = False
) -> T:
    """What `work` returns, given the store of a DSN or a state folder.

    Raises ArenaError V2021, V2022, V2023, V2026, V2028, V2029.
    """

    async def opened() -> T:
        async with open_store(dsn, state_dir, is_owner=is_owner) as store:
            return await work(store)

    return asyncio.run(opened())


@contextlib.asynccontextmanager
async def open_store(dsn: str, state_dir: Path | None, *, is_owner: bool = False) -> AsyncIterator[PostgresStore]:
    """The store of a DSN or a state folder; an embedded server runs while the block does.

    `is_owner`: as the owner of a state folder's server, who reads every log in it.
    """
    from arena.store.objects import open_objects
    from arena.store.postgres import PostgresStore

    folder = state_folder(state_dir)
    location = location_of(dsn, folder)
    objects = open_objects(location.objects) if location.objects else None
    login = location.dsn
    with contextlib.ExitStack() as stack:
        if location.kind == "embedded":
            from arena.store.embedded import start_embedded

            server = start_embedded(folder)
            stack.callback(server.stop)
            login = server.owner_dsn if is_owner else login
        store = await PostgresStore.open(login, objects=objects)
        try:
            yield store
        finally:
            await store.close()


def state_folder(given: Path | None) -> Path:
    """The state folder that a flag names, else the one set or the system's."""
    from arena.store.location import default_state_dir

    folder = given or default_state_dir()
    return folder.resolve() if folder.is_symlink() else folder  # `demo/latest`: a server is known by its own path


def location_of(dsn: str, state_dir: Path) -> StoreLocation:
    """Where the store of a DSN (""; of a state folder) and its bodies are. Raises ArenaError V2021, V2026."""
    from arena.store.location import StoreLocation, read_location

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


async def find_record(
    store: PostgresStore, which: str, validator: str
) -> tuple[SignedRecord, RecordContent | None] | None:
    """The first record that `which` names, and its content (None: it can't be decoded); None when there is none."""
    if which.isdecimal():
        seq = int(which)
        for name in await logs_of(store, validator):
            async for record in store.records(name, after_seq=max(0, seq - 1)):
                if record.seq == seq:
                    return record, read_or_none(record)
                break
        return None
    for name in await logs_of(store, validator):
        async for record in store.records(name):
            content = read_or_none(record)
            payload = getattr(content, "payload", None)
            ids = (record.content_sha256, *(str(getattr(payload, id_, "")) for id_ in ("body_sha256", "attempt_id")))
            if which and any(one.startswith(which) for one in ids):
                return record, content
    return None


def read_or_none(record: SignedRecord) -> RecordContent | None:
    """A stored record's content, or None when it can't be decoded; `arena records verify` says what is wrong then."""
    from arena.records.body import decode_content

    try:
        return decode_content(record.content)
    except ArenaError:
        return None
