"""A backup of a whole store: everything that Postgres holds of it, and the bodies that lie in its object store.

One moment of the store (one exported snapshot; objects are written before the rows that name them), in a
folder that appears under its name only when it is complete and synced. The manifest says how many rows and which heads
it holds, so that a restore can be held against it. Login roles and passwords are not in it. It holds traces and miners'
sources: the folder is private, and whoever can read it reads all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from arena.records.model import Head
from arena.store.backup.inventory import SHARDS
from arena.store.embedded.pgtools import PgTools
from arena.store.objects import BodyObjects, folder_location, open_objects
from arena.store.port import BodyFrame
from arena.store.postgres import statements as sql
from arena.store.postgres.connect import coded_errors, open_engine
from arena.store.schema import revision
from foundation.canonical import canonical_bytes, file_sha256
from foundation.durable_files import move_into_place, write_whole
from foundation.errors import ArenaError
from foundation.progress import Progress

FORMAT = 1
MANIFEST, ARCHIVE, OBJECTS = "manifest.json", "arena.dump", "objects"
FRAMES_AT_ONCE = 64

_SNAPSHOT = text("select pg_export_snapshot()")
_SERVER = text("show server_version")
_NOW_MS = text("select (extract(epoch from now()) * 1000)::bigint")
_HEADS = text("select validator, seq, hash from arena.head order by validator")
_HOLDERS = text("select distinct validator from arena.body where content is null order by validator")
_HOTKEYS = text("select hotkey from arena.validator order by hotkey")
_TABLES = text(
    "select relname from pg_class where relnamespace = 'arena'::regnamespace and relkind in ('r', 'p')"
    " and not relispartition order by 1"
)


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log of one validator ended."""

    validator: str
    head: Head


class BackupStoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a store held at one moment. `rows` counts each table's."""

    schema_revision: str
    hotkeys: tuple[str, ...]
    heads: tuple[LogEnd, ...]
    rows: dict[str, int]


class ObjectsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The bodies outside of Postgres. `copied`: they are in the backup; `referenced`: they stayed at `location`."""

    kind: Literal["none", "copied", "referenced"] = "none"
    location: str = ""
    bodies: int = 0  # that the logs name
    missing: int = 0  # of them, not there when the backup was made


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`manifest.json`: what a backup holds."""

    format: int = FORMAT
    taken_ms: int  # unix milliseconds, by the server's clock
    server_version: str
    store: BackupStoreFacts
    archive_bytes: int
    archive_sha256: str
    objects: ObjectsFacts


async def back_up(
    owner_dsn: str,
    out: Path,
    tools: PgTools,
    *,
    objects: BodyObjects | None = None,
    is_copying: bool = True,
    progress: Progress | None = None,
) -> BackupManifest:
    """Write a backup to the new folder `out` and return its manifest.

    `objects`: where bodies outside of Postgres are; `is_copying` False: they stay there and are only referred to.
    Raises ArenaError V2021 when the server is away, V2023 without a schema, V2027 when `out` exists, V2028 and V2029
    for the object store, V2056 when pg_dump fails.
    """
    if out.exists():
        raise ArenaError("V2027", f"{out} exists already")
    making = out.with_name(f"{out.name}.{secrets.token_hex(4)}.partial")
    making.mkdir(mode=0o700, parents=True)
    try:
        copies = open_objects(folder_location(making / OBJECTS)) if is_copying else None
        manifest = await _fill(making, owner_dsn, tools, objects, copies, progress)
        move_into_place(making, out)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return manifest


async def _fill(
    folder: Path,
    owner_dsn: str,
    tools: PgTools,
    objects: BodyObjects | None,
    copies: BodyObjects | None,
    progress: Progress | None,
) -> BackupManifest:
    async with _snapshot(owner_dsn) as (connection, snapshot):
        facts = await read_facts(connection)
        taken_ms, server_version = [(await connection.execute(query)).scalar_one() for query in (_NOW_MS, _SERVER)]
        with (folder / ARCHIVE).open("xb") as archive:
            await asyncio.to_thread(tools.dump, owner_dsn, snapshot, archive)
            await asyncio.to_thread(os.fsync, archive.fileno())
        named = there = 0
        async for validator, names in names_elsewhere(connection, progress):
            if objects is None:
                raise ArenaError("V2029", f"bodies of {validator} lie in an object store, and none is named")
            named += len(names)
            there += await carry(objects, copies, validator, names)
    kept = ObjectsFacts()
    if objects is not None and named:
        kind: Literal["copied", "referenced"] = "copied" if copies else "referenced"
        kept = ObjectsFacts(kind=kind, location=objects.location, bodies=named, missing=named - there)
    manifest = BackupManifest(
        taken_ms=taken_ms,
        server_version=server_version,
        store=facts,
        archive_bytes=(folder / ARCHIVE).stat().st_size,
        archive_sha256=await asyncio.to_thread(file_sha256, folder / ARCHIVE),
        objects=kept,
    )
    write_whole(folder / MANIFEST, canonical_bytes(manifest))
    return manifest


def read_manifest(backup: Path) -> BackupManifest:
    """The manifest of a backup whose archive is the one it names. Raises ArenaError V2056."""
    try:
        manifest = msgspec.json.decode((backup / MANIFEST).read_bytes(), type=BackupManifest)
        if manifest.format != FORMAT:
            raise ArenaError("V2056", f"{backup}: format {manifest.format}, this code reads {FORMAT}")
        found = file_sha256(backup / ARCHIVE)
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError("V2056", f"{backup}: {error}") from error
    if found != manifest.archive_sha256:
        raise ArenaError("V2056", f"{backup / ARCHIVE} is not the archive the manifest names")
    return manifest


async def read_facts(connection: AsyncConnection) -> BackupStoreFacts:
    """What the store of a connection holds. Raises ArenaError V2023 where there is none."""
    found = await revision(connection)
    if not found:
        raise ArenaError("V2023", "no schema")
    tables = (await connection.execute(_TABLES)).scalars().all()
    rows = {
        table: (await connection.exec_driver_sql(f"select count(*) from arena.{table}")).scalar_one()
        for table in tables
    }
    heads = (await connection.execute(_HEADS)).all()
    return BackupStoreFacts(
        schema_revision=found,
        hotkeys=tuple((await connection.execute(_HOTKEYS)).scalars().all()),
        heads=tuple(LogEnd(validator=row.validator, head=Head(row.seq, row.hash.hex())) for row in heads),
        rows=rows,
    )


@contextlib.asynccontextmanager
async def _snapshot(owner_dsn: str) -> AsyncIterator[tuple[AsyncConnection, str]]:
    """A read-only transaction whose snapshot pg_dump shares."""
    engine = open_engine(owner_dsn, is_autocommit=False, pool_size=1)
    try:
        with coded_errors():
            async with engine.connect() as connection:
                await connection.execute(text("set transaction isolation level repeatable read, read only"))
                yield connection, str((await connection.execute(_SNAPSHOT)).scalar_one())
    finally:
        await engine.dispose()


async def names_elsewhere(
    connection: AsyncConnection, progress: Progress | None
) -> AsyncIterator[tuple[str, list[str]]]:
    """The validators and bodies outside of Postgres, in parts of one validator and one first byte."""
    holders = (await connection.execute(_HOLDERS)).scalars().all()
    for place, validator in enumerate(holders):
        for shard in range(SHARDS):
            query = {"validator": validator, **sql.shard_bounds(shard)}
            names = sorted(row.sha256.hex() for row in await connection.execute(sql.BODIES_ELSEWHERE, query))
            if names:
                yield validator, names
            if progress:
                progress("objects", place * SHARDS + shard + 1, len(holders) * SHARDS)


async def carry(source: BodyObjects, target: BodyObjects | None, validator: str, names: list[str]) -> int:
    """Copy frames of one first byte as they are, or only look for them (None); returns how many are there."""
    if target is None:
        return len(set(names) & (await source.stored(validator, int(names[0][:2], 16))).keys())
    copied = 0
    for first in range(0, len(names), FRAMES_AT_ONCE):
        found = await source.get(validator, names[first : first + FRAMES_AT_ONCE])
        frames = [BodyFrame(body_sha256=name, content=content, size=0) for name, content in found.items()]
        await target.put(validator, frames)
        copied += len(frames)
    return copied
