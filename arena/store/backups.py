"""A backup of a whole store, a store made again from it, and the tools for both.

A backup is one moment of the store (one exported snapshot; objects are written before the rows that name them), in a
folder that appears under its name only when it is complete and synced. The manifest says how many rows and which heads
it holds, so that a restore can be held against it. Login roles and passwords are not in it. It holds traces and
miners' sources: the folder is private, and a reader of it reads all of them.

A restore refuses a target that holds a single row of a store (V2027); it makes the schema as the backup has it, holds
it against the manifest, row counts and heads, then migrates it and gives each validator a login role. One that failed
can be tried again. An archive is SQL that runs as the owner: restore your own. It does not know what happened after
the backup: a log that is continued from an earlier head than one that was published is a second log, and every reader
of a later checkpoint will say so.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO
from urllib.parse import unquote

import asyncpg
import msgspec

from arena.records.model import BodyFrame, Head
from arena.store.connect import owner_transaction
from arena.store.embedded import ServerUser, binaries
from arena.store.location import read_dsn
from arena.store.objects import BodyObjects, folder_location, open_objects
from arena.store.schema import migrate, revision, run_script
from foundation.canonical import canonical_bytes, file_sha256
from foundation.durable_files import whole_folder, write_whole
from foundation.errors import ArenaError
from foundation.long_work import Progress, no_progress

SCHEMA = "arena"
COMPRESSION = "1"  # gzip, as every version spells it; it takes back what writing bytes as hexadecimal doubles
LOCK_WAIT = "60s"
SAID_MAX = 600
_TIMED_TOOLS = 17  # from this version on an archive sets what older servers do not know
_SYSTEM_TOOLS = ("/usr/lib/postgresql/{}/bin", "/usr/pgsql-{}/bin")  # of Debian's packages, of Red Hat's


class PgTools(msgspec.Struct, frozen=True):
    """The tools of one folder, run as one OS user."""

    folder: Path
    user: ServerUser

    def dump(self, dsn: str, snapshot: str, archive: IO[bytes], server_version: str) -> None:
        """Write the schema, as an exported snapshot sees it, to a custom-format archive.

        Raises ArenaError V2056, V2060 when pg_dump can't read that server, or writes what it would not take back.
        """
        if self.major() >= _TIMED_TOOLS > major_of(server_version):
            raise self._misfit("pg_dump", "too new for a backup", server_version)
        options = ["--format=custom", f"--compress={COMPRESSION}", f"--schema={SCHEMA}", f"--snapshot={snapshot}"]
        try:
            self._run("pg_dump", [*options, f"--lock-wait-timeout={LOCK_WAIT}"], dsn, stdout=archive)
        except ArenaError as error:
            if "server version mismatch" not in error.failure.detail:
                raise
            raise self._misfit("pg_dump", "too old for a backup", server_version) from error

    def restore(self, dsn: str, owner_role: str, archive: IO[bytes], server_version: str) -> None:
        """Make everything of an archive in the (existing, empty) schema, whole or not at all, owned by `owner_role`.

        Raises ArenaError V2056, V2060 when pg_restore is older than what wrote this archive of `server_version`, or
        newer than the server.
        """
        options = [f"--schema={SCHEMA}", "--no-owner", f"--role={owner_role}", "--single-transaction"]
        try:
            self._run("pg_restore", [*options, "--exit-on-error"], dsn, stdin=archive)
        except ArenaError as error:
            if "unsupported version" in error.failure.detail:
                raise self._misfit("pg_restore", "too old for a backup", server_version) from error
            if "transaction_timeout" in error.failure.detail:
                raise self._misfit("pg_restore", "too new for the server, with a backup", server_version) from error
            raise

    def major(self) -> int:
        """The major version of these tools; 0 where they do not say it."""
        return major_of(self._version("pg_dump").rpartition(") ")[2])

    def _version(self, tool: str) -> str:
        said = subprocess.run([str(self.folder / tool), "--version"], capture_output=True, check=True).stdout
        return said.decode().strip().partition(" (Debian")[0]

    def _misfit(self, tool: str, how: str, server_version: str) -> ArenaError:
        major, newer = major_of(server_version), " or newer" if "too old" in how else ""
        detail = f"{self._version(tool)} in {self.folder} is {how} of Postgres {server_version}"
        fix = f"put a {tool} of version {major}{newer} first on PATH (Debian: postgresql-client-{major})"
        return ArenaError("V2060", detail, fix=fix)

    def _run(self, tool: str, options: list[str], dsn: str, **handles: IO[bytes]) -> None:
        url = read_dsn(dsn)
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "PGAPPNAME": "agent-arena"}
        if url.password:
            environment["PGPASSWORD"] = unquote(url.password)
        if not self.user.is_dropped:
            environment["HOME"] = os.environ.get("HOME", "/")  # where libpq looks for client certificates
        login, _, place = url.netloc.rpartition("@")
        address = url._replace(netloc=f"{login.partition(':')[0]}@{place}" if login else place).geturl()
        done = subprocess.run(
            [str(self.folder / tool), *options, "--no-password", f"--dbname={address}"],
            stdin=handles.get("stdin", subprocess.DEVNULL),
            stdout=handles.get("stdout"),
            stderr=subprocess.PIPE,
            env=environment,
            check=False,
            **self.user.run_as(),
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-SAID_MAX:]
            raise ArenaError("V2056", f"{tool} ended with status {done.returncode}: {said}")


def major_of(version: str) -> int:
    """`15` of `15.4 (Debian ...)`; 0 for what is no version."""
    digits = version.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def own_tools(server_major: int) -> PgTools:
    """The tools for a server elsewhere, run as this process's own user: those on PATH, or the system's of the server's
    version where those are of another; else of the embedded server's package, whose build speaks no TLS. Raises
    ArenaError V2020 when none is there."""
    user = ServerUser(uid=os.geteuid(), gid=os.getegid(), name="", is_dropped=False)
    found = shutil.which("pg_dump")
    named = PgTools(folder=Path(found).parent if found else binaries(Path("/"), user), user=user)
    for place in _SYSTEM_TOOLS:
        system = PgTools(folder=Path(place.format(server_major)), user=user)
        if named.major() != server_major and (system.folder / "pg_dump").exists():
            return system
    return named


FORMAT = 1
MANIFEST, ARCHIVE, OBJECTS = "manifest.json", "arena.dump", "objects"
FRAMES_AT_ONCE = 64

_SNAPSHOT = "select pg_export_snapshot()"
_SERVER = "show server_version"
_NOW_MS = "select (extract(epoch from now()) * 1000)::bigint"
_HEADS = "select validator, seq, hash from arena.head order by validator"
_OBJECTS = (
    "(select validator, sha256 from arena.body where content is null union select validator, archive_sha256"
    " from arena.record where archive_sha256 is not null) as object"
)
_HOLDERS = f"select distinct validator from {_OBJECTS} order by validator"
_ELSEWHERE = f"select sha256 from {_OBJECTS} where validator = $1"
_HOTKEYS = "select hotkey from arena.validator order by hotkey"
_TABLES = (
    "select relname from pg_class where relnamespace = 'arena'::regnamespace and relkind in ('r', 'p')"
    " and not relispartition order by 1"
)


class BackupStoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a store held at one moment. `heads`: where each validator's log ended; `rows` counts each table's."""

    schema_revision: str
    hotkeys: tuple[str, ...]
    heads: dict[str, Head]
    rows: dict[str, int]


class ObjectsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The bodies outside of Postgres, which are in the backup; `location`: where they were, "" where there are none."""

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
    progress: Progress = no_progress,
) -> BackupManifest:
    """Write a backup to the new folder `out` and return its manifest.

    `objects`: where bodies outside of Postgres are. Raises ArenaError V2021 when the server is away, V2023 without a
    schema, V2026 where server or tools can't be used, V2027 when `out` holds something, V2028 and V2029 for the object
    store, V2056 when pg_dump fails.
    """
    with whole_folder(out) as folder:
        folder.chmod(0o700)
        copies = open_objects(folder_location(folder / OBJECTS))
        async with owner_transaction(owner_dsn, is_snapshot=True) as connection:
            snapshot = await connection.fetchval(_SNAPSHOT)  # which pg_dump shares
            facts = await read_facts(connection)
            taken_ms, server_version = [await connection.fetchval(query) for query in (_NOW_MS, _SERVER)]
            with (folder / ARCHIVE).open("xb") as archive:
                await asyncio.to_thread(tools.dump, owner_dsn, snapshot, archive, server_version)
                await asyncio.to_thread(os.fsync, archive.fileno())
            named = there = 0
            async for validator, names in names_elsewhere(connection, progress):
                if objects is None:
                    raise ArenaError("V2029", f"bodies of {validator} lie in an object store, and none is named")
                named += len(names)
                there += await carry(objects, copies, validator, names)
        location = objects.location if objects is not None and named else ""
        manifest = BackupManifest(
            taken_ms=taken_ms,
            server_version=server_version,
            store=facts,
            archive_bytes=(folder / ARCHIVE).stat().st_size,
            archive_sha256=await asyncio.to_thread(file_sha256, folder / ARCHIVE),
            objects=ObjectsFacts(location=location, bodies=named, missing=named - there),
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
    )


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


_OWNER = "arena_owner"
_DROP = "drop schema if exists arena cascade"
_FOREIGN = "select relname from pg_class where relnamespace = to_regnamespace('arena') order by 1 limit 3"
_GRANT = "grant usage on schema arena to arena_validator"


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """A restored store. `roles`: the DSN of each hotkey's login role, without a password where it keeps its own;
    `objects`: the location of the bodies outside of Postgres, "" for none."""

    manifest: BackupManifest
    roles: dict[str, str]
    objects: str


async def restore(
    owner_dsn: str,
    backup: Path,
    tools: PgTools,
    dsn_for: Callable[[str], str],
    *,
    objects: BodyObjects | None = None,
    progress: Progress = no_progress,
) -> RestoreResult:
    """Restore a backup into the owner's database.

    `dsn_for` makes the login role of a hotkey and returns its DSN. `objects`: where bodies outside of Postgres go.
    Raises ArenaError V2021 when the server is away, V2022 when this login may not create roles, V2028 and V2029 for the
    object store, V2056 when the backup is damaged, V2060 for tools too old, V2027 when the target holds records.
    """
    manifest = await asyncio.to_thread(read_manifest, backup)
    target = objects if manifest.objects.bodies else None
    if manifest.objects.bodies and target is None:
        raise ArenaError("V2029", f"the backup holds {manifest.objects.bodies} bodies for an object store: name one")
    await _make_room(owner_dsn)
    with (backup / ARCHIVE).open("rb") as archive:
        await asyncio.to_thread(tools.restore, owner_dsn, _OWNER, archive, manifest.server_version)
    await _require_whole(owner_dsn, backup, manifest, target, progress)
    await asyncio.to_thread(migrate, owner_dsn)
    roles = {hotkey: await asyncio.to_thread(dsn_for, hotkey) for hotkey in manifest.store.hotkeys}
    return RestoreResult(manifest=manifest, roles=roles, objects=target.location if target else "")


async def _make_room(owner_dsn: str) -> None:
    """Leave an empty schema of ours, and the roles it needs. Raises ArenaError V2027 when there is anything in it."""
    async with owner_transaction(owner_dsn) as connection:
        if await revision(connection):
            rows = (await read_facts(connection)).rows
            held = [f"{count} in {table}" for table, count in rows.items() if count and table != "alembic_version"]
        else:
            held = [row.relname for row in await connection.fetch(_FOREIGN)]
        if held:
            detail = f"the database holds a store already: {', '.join(held)}"
            raise ArenaError("V2027", detail, fix="restore into an empty database, or a new --state-dir")
        await connection.execute(_DROP)
        await run_script(connection, "bootstrap.sql")
        await connection.execute(_GRANT)


async def _require_whole(
    owner_dsn: str, backup: Path, manifest: BackupManifest, target: BodyObjects | None, progress: Progress
) -> None:
    """Hold what was restored against the manifest, and bring its objects. Raises ArenaError V2056."""
    async with owner_transaction(owner_dsn) as connection:
        found = await read_facts(connection)
        if found != manifest.store:
            raise ArenaError("V2056", "what was restored is not what the manifest counts")
        if target is None:
            return
        copies, there = open_objects(folder_location(backup / OBJECTS)), 0
        async for validator, names in names_elsewhere(connection, progress):
            there += await carry(copies, target, validator, names)
    if there < manifest.objects.bodies - manifest.objects.missing:
        raise ArenaError("V2056", f"{there} of {manifest.objects.bodies} bodies are in the object store")
