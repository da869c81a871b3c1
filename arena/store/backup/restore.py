"""A store made again from a backup, in a database that holds none yet.

Refuses a target that holds a single row of a store (V2057); makes the schema as the backup has it, holds it
against the manifest, row counts and heads, then migrates it and gives each validator a login role. A restore that
failed can be tried again. An archive is SQL that runs as the owner: restore your own. It does not know what happened
after the backup: a log that is continued from an earlier head than one that was published is a second log, and every
reader of a later checkpoint will say so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from arena.store.backup.backup import (
    ARCHIVE,
    OBJECTS,
    BackupManifest,
    carry,
    names_elsewhere,
    read_facts,
    read_manifest,
)
from arena.store.embedded.pgtools import PgTools
from arena.store.objects import BodyObjects, folder_location, open_objects
from arena.store.postgres.connect import coded_errors, open_engine
from arena.store.schema import migrate, revision, run_script
from foundation.errors import ArenaError
from foundation.progress import Progress

_OWNER = "arena_owner"
_DROP = text("drop schema if exists arena cascade")
_FOREIGN = text("select relname from pg_class where relnamespace = to_regnamespace('arena') order by 1 limit 3")
_GRANT = text("grant usage on schema arena to arena_validator")


class RestoredRole(msgspec.Struct, frozen=True, kw_only=True):
    """A validator of the restored store and the DSN of its login role; without a password where it keeps its own."""

    hotkey: str
    dsn: str


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """A restored store. `objects`: the location of its bodies outside of Postgres, "" for none."""

    manifest: BackupManifest
    roles: tuple[RestoredRole, ...]
    objects: str


async def restore(
    owner_dsn: str,
    backup: Path,
    tools: PgTools,
    dsn_for: Callable[[str], str],
    *,
    objects: BodyObjects | None = None,
    place: BodyObjects | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Restore a backup into the owner's database.

    `dsn_for` makes the login role of a hotkey and returns its DSN. `objects`: where bodies outside of Postgres go or,
    when the backup refers to them, are. None: copied ones go to `place`, the others are where they were. Raises
    ArenaError V2021 when the server is away, V2022 when this login may not create roles, V2028 and V2029 for the object
    store, V2056 when the backup is damaged, V2057 when the target holds records.
    """
    manifest = await asyncio.to_thread(read_manifest, backup)
    target, kept = None, manifest.objects
    if kept.kind != "none":
        target = objects or (place if kept.kind == "copied" else open_objects(kept.location))
        if target is None:
            raise ArenaError("V2029", f"the backup holds {kept.bodies} bodies for an object store: name one")
    await _make_room(owner_dsn)
    with (backup / ARCHIVE).open("rb") as archive:
        await asyncio.to_thread(tools.restore, owner_dsn, _OWNER, archive)
    await _require_whole(owner_dsn, backup, manifest, target, progress)
    await asyncio.to_thread(migrate, owner_dsn)
    roles = []
    for hotkey in manifest.store.hotkeys:
        roles.append(RestoredRole(hotkey=hotkey, dsn=await asyncio.to_thread(dsn_for, hotkey)))
    return Restored(manifest=manifest, roles=tuple(roles), objects=target.location if target else "")


async def _make_room(owner_dsn: str) -> None:
    """Leave an empty schema of ours, and the roles it needs. Raises ArenaError V2057 when there is anything in it."""
    async with _connected(owner_dsn) as connection:
        if await revision(connection):
            rows = (await read_facts(connection)).rows
            held = [f"{count} in {table}" for table, count in rows.items() if count and table != "alembic_version"]
        else:
            held = list((await connection.execute(_FOREIGN)).scalars())
        if held:
            raise ArenaError("V2057", ", ".join(held))
        await connection.execute(_DROP)
        await connection.run_sync(run_script, "bootstrap.sql")
        await connection.execute(_GRANT)


async def _require_whole(
    owner_dsn: str, backup: Path, manifest: BackupManifest, target: BodyObjects | None, progress: Progress | None
) -> None:
    """Hold what was restored against the manifest, and bring its objects. Raises ArenaError V2056."""
    async with _connected(owner_dsn) as connection:
        found = await read_facts(connection)
        if found != manifest.store:
            raise ArenaError("V2056", "what was restored is not what the manifest counts")
        if target is None:
            return
        copies = open_objects(folder_location(backup / OBJECTS)) if manifest.objects.kind == "copied" else None
        there = 0
        async for validator, names in names_elsewhere(connection, progress):
            there += await (
                carry(copies, target, validator, names) if copies else carry(target, None, validator, names)
            )
    if there < manifest.objects.bodies - manifest.objects.missing:
        raise ArenaError("V2056", f"{there} of {manifest.objects.bodies} bodies are in the object store")


@contextlib.asynccontextmanager
async def _connected(owner_dsn: str) -> AsyncIterator[AsyncConnection]:
    """One transaction of the owner's, committed at the end of the block."""
    engine = open_engine(owner_dsn, is_autocommit=False, pool_size=1)
    try:
        with coded_errors():
            async with engine.begin() as connection:
                yield connection
    finally:
        await engine.dispose()
