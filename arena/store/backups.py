"""A backup of a whole store, and a store made again from it.

A backup is one moment of the store (one transaction reads it; objects are written before the rows that name them), in a
folder that appears under its name only when it is complete and synced: the rows of each table as Postgres copies them
out, and a manifest that says how many rows and which heads it holds, so that a restore can be held against it. Login
roles and passwords are not in it. It holds traces and miners' sources: the folder is private, and a reader of it reads
all of them.

A restore refuses a target that holds a single row of a store (V2027); in one transaction it makes the schema as the
backup has it, copies the rows in, holds them against the manifest, and leads the schema up; then it gives each
validator a login role. One that failed can be tried again. A backup does not know what happened after it: a log that is
continued from an earlier head than a published one is a second log, and every reader of a later checkpoint will say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import date
from pathlib import Path

import asyncpg
import msgspec
import zstandard

from arena.records.model import BodyFrame, Head
from arena.store.connect import owner_transaction
from arena.store.objects import BodyObjects, folder_location, open_objects
from arena.store.schema import lead_up, revision
from foundation.canonical import canonical_bytes, file_sha256
from foundation.durable_files import sync_path, whole_folder, write_whole
from foundation.errors import ArenaError
from foundation.long_work import Progress, no_progress

FORMAT = 1
MANIFEST, TABLES, OBJECTS = "manifest.json", "tables", "objects"
FRAMES_AT_ONCE = 64
_LEVEL = 1  # it takes back what writing bytes as hexadecimal doubles
_REFERRED = ("checkpoint", "item")  # tables that others refer to
_VERSIONS = "alembic_version"  # the schema makes it

# Before the moment is taken, so that no day is archived in the middle of it.
_LOCK = "set local lock_timeout = '60s'; lock table arena.record, arena.body in access share mode"
_NOW_MS = "select (extract(epoch from now()) * 1000)::bigint"
_HEADS = "select validator, seq, hash from arena.head order by validator"
_OBJECTS = (
    "(select validator, sha256 from arena.body where content is null union select validator, archive_sha256"
    " from arena.record where archive_sha256 is not null) as object"
)
_HOLDERS = f"select distinct validator from {_OBJECTS} order by validator"
_ELSEWHERE = f"select sha256 from {_OBJECTS} where validator = $1"
_HOTKEYS = "select hotkey from arena.validator order by hotkey"
_DAYS = "select day from arena.record union select day from arena.body order by day"
_SEQUENCES = "select sequencename, last_value from pg_sequences where schemaname = 'arena' and last_value is not null"
_TABLES = (
    "select relname from pg_class where relnamespace = 'arena'::regnamespace and relkind in ('r', 'p')"
    " and not relispartition order by 1"
)
_COLUMNS = (
    "select attname from pg_attribute where attrelid = $1::text::regclass and attnum > 0 and not attisdropped"
    " and attgenerated = '' order by attnum"
)


class BackupStoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a store held at one moment. `heads`: where each validator's log ended; `rows` counts each table's; `days`
    are those of records and bodies."""

    schema_revision: str
    hotkeys: tuple[str, ...]
    heads: dict[str, Head]
    rows: dict[str, int]
    days: tuple[date, ...]
    sequences: dict[str, int]


class ObjectsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The bodies outside of Postgres, which are in the backup; `location`: where they were, "" where there are none."""

    location: str = ""
    bodies: int = 0  # that the logs name
    missing: int = 0  # of them, not there when the backup was made


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`manifest.json`: what a backup holds. `tables`: the sha256 of each table's file."""

    format: int = FORMAT
    taken_ms: int  # unix milliseconds, by the server's clock
    store: BackupStoreFacts
    tables: dict[str, str]
    objects: ObjectsFacts


async def back_up(
    owner_dsn: str, out: Path, *, objects: BodyObjects | None = None, progress: Progress = no_progress
) -> BackupManifest:
    """Write a backup to the new folder `out` and return its manifest.

    `objects`: where bodies outside of Postgres are. Raises ArenaError V2021 when the server is away, V2023 without a
    schema, V2026 where it can't be used, V2027 when `out` holds something, V2028 and V2029 for the object store.
    """
    with whole_folder(out) as making:
        making.chmod(0o700)
        return await _fill(making, owner_dsn, objects, progress)


async def _fill(folder: Path, owner_dsn: str, objects: BodyObjects | None, progress: Progress) -> BackupManifest:
    copies = open_objects(folder_location(folder / OBJECTS))
    (folder / TABLES).mkdir()
    async with owner_transaction(owner_dsn, is_snapshot=True) as connection:
        await connection.execute(_LOCK)
        facts, tables = await read_facts(connection), dict[str, str]()
        for table in facts.rows.keys() - {_VERSIONS}:
            path, columns = _file(folder, table), ", ".join(await _columns(connection, table))
            with path.open("xb") as file, zstandard.ZstdCompressor(_LEVEL).stream_writer(file) as stream:
                await connection.copy_from_query(f"select {columns} from arena.{table}", output=stream)
            await asyncio.to_thread(sync_path, path)
            tables[table] = await asyncio.to_thread(file_sha256, path)
        named = there = 0
        async for validator, names in names_elsewhere(connection, progress):
            if objects is None:
                raise ArenaError("V2029", f"bodies of {validator} lie in an object store, and none is named")
            named += len(names)
            there += await carry(objects, copies, validator, names)
        taken_ms = await connection.fetchval(_NOW_MS)
    location = objects.location if objects is not None and named else ""
    kept = ObjectsFacts(location=location, bodies=named, missing=named - there)
    manifest = BackupManifest(taken_ms=taken_ms, store=facts, tables=tables, objects=kept)
    write_whole(folder / MANIFEST, canonical_bytes(manifest))
    return manifest


def read_manifest(backup: Path) -> BackupManifest:
    """The manifest of a backup whose tables are those it names. Raises ArenaError V2056."""
    try:
        manifest = msgspec.json.decode((backup / MANIFEST).read_bytes(), type=BackupManifest)
        if manifest.format != FORMAT:
            raise ArenaError("V2056", f"{backup}: format {manifest.format}, this code reads {FORMAT}")
        for table, sha256 in manifest.tables.items():
            if file_sha256(_file(backup, table)) != sha256:
                raise ArenaError("V2056", f"{_file(backup, table)} is not the file that the manifest names")
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError("V2056", f"{backup}: {error}") from error
    return manifest


async def read_facts(connection: asyncpg.Connection) -> BackupStoreFacts:
    """What the store of a connection holds. Raises ArenaError V2023 where there is none."""
    found = await revision(connection)
    if not found:
        raise ArenaError("V2023", "no schema")
    tables = [row.relname for row in await connection.fetch(_TABLES)]
    return BackupStoreFacts(
        schema_revision=found,
        hotkeys=tuple([row.hotkey for row in await connection.fetch(_HOTKEYS)]),
        heads={row.validator: Head(row.seq, row.hash.hex()) for row in await connection.fetch(_HEADS)},
        rows={table: await connection.fetchval(f"select count(*) from arena.{table}") for table in tables},
        days=tuple([row.day for row in await connection.fetch(_DAYS)]),
        sequences={row.sequencename: row.last_value for row in await connection.fetch(_SEQUENCES)},
    )


def _file(backup: Path, table: str) -> Path:
    return backup / TABLES / f"{table}.copy.zst"


async def _columns(connection: asyncpg.Connection, table: str) -> list[str]:
    """The columns of a table that are not made of others."""
    return [row.attname for row in await connection.fetch(_COLUMNS, f"arena.{table}")]


async def names_elsewhere(connection: asyncpg.Connection, progress: Progress) -> AsyncIterator[tuple[str, list[str]]]:
    """Each validator with bodies outside of Postgres, and their names."""
    holders = await connection.fetch(_HOLDERS)
    for place, (validator,) in enumerate(holders):
        rows = await connection.fetch(_ELSEWHERE, validator)
        yield validator, sorted(row.sha256.hex() for row in rows)
        progress("objects", place + 1, len(holders))


async def carry(source: BodyObjects, target: BodyObjects, validator: str, names: list[str]) -> int:
    """Copy frames as they are; returns how many are there."""
    copied = 0
    for first in range(0, len(names), FRAMES_AT_ONCE):
        found = await source.get(validator, names[first : first + FRAMES_AT_ONCE])
        frames = [BodyFrame(body_sha256=name, content=content, size=0) for name, content in found.items()]
        await target.put(validator, frames)
        copied += len(frames)
    return copied


_FOREIGN = "select relname from pg_class where relnamespace = to_regnamespace('arena') order by 1 limit 3"


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """A restored store. `roles`: the DSN of each hotkey's login role, without a password where it keeps its own;
    `objects`: the location of the bodies outside of Postgres, "" for none."""

    manifest: BackupManifest
    roles: dict[str, str]
    objects: str


async def restore(
    owner_dsn: str,
    backup: Path,
    dsn_for: Callable[[str], str],
    *,
    objects: BodyObjects | None = None,
    progress: Progress = no_progress,
) -> Restored:
    """Restore a backup into the owner's database.

    `dsn_for` makes the login role of a hotkey and returns its DSN. `objects`: where bodies outside of Postgres go.
    Raises ArenaError V2021 when the server is away, V2022 when this login may not create roles, V2023 for a backup of a
    newer schema, V2028 and V2029 for the object store, V2056 when the backup is damaged, V2027 when the target holds
    records.
    """
    manifest = await asyncio.to_thread(read_manifest, backup)
    target = objects if manifest.objects.bodies else None
    if manifest.objects.bodies and target is None:
        raise ArenaError("V2029", f"the backup holds {manifest.objects.bodies} bodies for an object store: name one")
    async with owner_transaction(owner_dsn) as connection:
        await _make_room(connection)
        await lead_up(connection, manifest.store.schema_revision)
        await _copy_in(connection, backup, manifest)
        if target is not None:
            await _carry_objects(connection, backup, manifest, target, progress)
        await lead_up(connection)
    roles = {hotkey: await asyncio.to_thread(dsn_for, hotkey) for hotkey in manifest.store.hotkeys}
    return Restored(manifest=manifest, roles=roles, objects=target.location if target else "")


async def _make_room(connection: asyncpg.Connection) -> None:
    """Leave no schema of ours. Raises ArenaError V2027 when there is anything in it."""
    if await revision(connection):
        rows = (await read_facts(connection)).rows
        held = [f"{count} in {table}" for table, count in rows.items() if count and table != _VERSIONS]
    else:
        held = [row.relname for row in await connection.fetch(_FOREIGN)]
    if held:
        raise ArenaError("V2027", ", ".join(held))
    await connection.execute("drop schema if exists arena cascade")


async def _copy_in(connection: asyncpg.Connection, backup: Path, manifest: BackupManifest) -> None:
    """Fill the tables of an empty schema, and hold them against the manifest. Raises ArenaError V2056."""
    for day in manifest.store.days:
        await connection.execute("select arena.add_day($1)", day)
    for table in sorted(manifest.tables, key=lambda name: (name not in _REFERRED, name)):
        columns = await _columns(connection, table)
        with _file(backup, table).open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            await connection.copy_to_table(table, schema_name="arena", columns=columns, source=stream)
    for sequence, last in manifest.store.sequences.items():
        await connection.execute("select setval($1::text::regclass, $2)", f"arena.{sequence}", last)
    if await read_facts(connection) != manifest.store:
        raise ArenaError("V2056", "what was restored is not what the manifest counts")


async def _carry_objects(
    connection: asyncpg.Connection, backup: Path, manifest: BackupManifest, target: BodyObjects, progress: Progress
) -> None:
    """Bring the objects that a restored log names. Raises ArenaError V2056."""
    copies, there = open_objects(folder_location(backup / OBJECTS)), 0
    async for validator, names in names_elsewhere(connection, progress):
        there += await carry(copies, target, validator, names)
    if there < manifest.objects.bodies - manifest.objects.missing:
        raise ArenaError("V2056", f"{there} of {manifest.objects.bodies} bodies are in the object store")
