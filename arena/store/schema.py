"""The schema's life: migrate it with the owner's DSN, and give each validator a login role of its own.

`migrate` is safe to run by several processes at once and again; a password is never sent or stored in clear:
the server only sees its SCRAM verifier. Needs an owner that may create roles (a superuser, or CREATEROLE).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from importlib import resources

import asyncpg

from arena.store.connect import owner_transaction, run_blocking
from foundation.errors import ArenaError

# Each is the SQL file that leads to it from the one before; none is edited after its release.
REVISIONS = {"0001": "schema.sql", "0002": "queue.sql", "0003": "archive.sql", "0005": "counters.sql"}
SCHEMA_REVISION = max(REVISIONS)
SCRAM_ITERATIONS = 4096

_LOCK = "select pg_advisory_xact_lock(hashtextextended('arena.migrate', 0))"
_LOCK_WAIT = "set local lock_timeout = '10s'"  # a statement that waits for a table blocks all that come after it
_VERSIONS = (
    "create table if not exists arena.alembic_version"
    " (version_num varchar(32) not null, constraint alembic_version_pkc primary key (version_num))"
)
_HAS_VERSIONS = "select to_regclass('arena.alembic_version') is not null"
_LOGIN = "select format($1, $2::text, $3::text)"
_NAME = "insert into arena.validator (role, hotkey) values ($1::text, $2) on conflict (role) do nothing"


def migrate(owner_dsn: str) -> str:
    """Bring the schema to `SCHEMA_REVISION`; returns the revision that was there before ("" for none).

    There is no way down: code of an earlier release does not open a newer schema. Appends wait while it runs. Raises
    ArenaError V2021 when the server is away or a backup or another long reader holds the tables, V2022 when this login
    may not create roles and tables, V2023 when the schema is newer than this code, V2026 for a server that can't be
    used.
    """

    async def lead_up() -> str:
        async with owner_transaction(owner_dsn) as connection:
            before = await revision(connection)
            if before > SCHEMA_REVISION:
                raise ArenaError("V2023", f"found {before}, which is newer than this code's {SCHEMA_REVISION}")
            if before == SCHEMA_REVISION:
                return before
            await connection.execute(_LOCK)
            await connection.execute(_LOCK_WAIT)
            await run_script(connection, "bootstrap.sql")
            await connection.execute("set local role arena_owner")
            await connection.execute(_VERSIONS)
            before = await revision(connection)  # another process may have led it up meanwhile
            for number, script in REVISIONS.items():
                if before < number:
                    await run_script(connection, script)
            if before < SCHEMA_REVISION:
                await connection.execute("delete from arena.alembic_version")
                await connection.execute("insert into arena.alembic_version values ($1)", SCHEMA_REVISION)
            return before

    return run_blocking(lead_up)


def provision_validator(owner_dsn: str, hotkey: str, password: str, *, is_rekeying: bool = True) -> bool:
    """Create the login role of a validator (`role_of`) and map it to `hotkey`; returns whether it has `password` now:
    one that exists keeps its own unless `is_rekeying`. A role is the server's: all its databases share it.

    Raises ArenaError V2021 when the server is away, V2022 when this login may not create roles.
    """
    role, verifier = role_of(hotkey), scram_verifier(password, os.urandom(16))

    async def provision() -> bool:
        async with owner_transaction(owner_dsn) as connection:
            await connection.execute(_LOCK)
            is_known = await connection.fetchval("select exists (select from pg_roles where rolname = $1)", role)
            await run_script(connection, "bounds.sql")
            is_keyed = is_rekeying or not is_known
            if is_keyed:
                verb, more = ("alter", "") if is_known else ("create", " login connection limit 64")
                ddl = await connection.fetchval(_LOGIN, f"{verb} role %I password %L{more}", role, verifier)
                await connection.execute(ddl)
            await connection.execute(f'grant arena_validator to "{role}"')
            await connection.execute(_NAME, role, hotkey)
        return bool(is_keyed)

    return run_blocking(provision)


def role_of(hotkey: str) -> str:
    """Name of a hotkey's login role: within 63 bytes and lower case, whatever the hotkey is."""
    return "arena_v_" + hashlib.sha256(hotkey.encode()).hexdigest()[:32]


async def revision(connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy) -> str:
    """The revision of the connected database, "" where there is no schema of ours."""
    if not await connection.fetchval(_HAS_VERSIONS):
        return ""
    return str(await connection.fetchval("select version_num from arena.alembic_version") or "")


async def run_script(connection: asyncpg.Connection, name: str) -> None:
    """Run one SQL file inside the connection's transaction."""
    await connection.execute(resources.files("arena.store").joinpath("migrations", name).read_text(encoding="utf-8"))


def scram_verifier(password: str, salt: bytes) -> str:
    """PostgreSQL's stored form of a password (RFC 5803, SCRAM-SHA-256). `password` is ASCII; `salt` 16 random bytes."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, SCRAM_ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{salt64}${stored64}:{server64}"
