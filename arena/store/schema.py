"""The schema's life: migrate it with the owner's DSN, and give each validator a login role of its own.

`migrate` is safe to run by several processes at once and again; a password is never sent or stored in clear:
the server only sees its SCRAM verifier. Needs an owner that may create roles (a superuser, or CREATEROLE).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import os
from importlib import resources

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from arena.store.connect import owner_transaction, run_blocking
from foundation.errors import ArenaError

SCHEMA_REVISION = "0003"
SCRAM_ITERATIONS = 4096

_LOCK = text("select pg_advisory_xact_lock(hashtextextended('arena.migrate', 0))")
_LOCK_WAIT = text("set local lock_timeout = '10s'")  # a statement that waits for a table blocks all that come after it
_HAS_VERSIONS = text("select to_regclass('arena.alembic_version') is not null")
_REVISION = text("select version_num from arena.alembic_version")
_ROLE_EXISTS = text("select exists (select from pg_roles where rolname = :role)")
_LOGIN = text("select format(:ddl, cast(:role as text), cast(:verifier as text))")
_MEMBER = text("select format('grant arena_validator to %I', cast(:role as text))")
_NAME = text(
    "insert into arena.validator (role, hotkey) values (cast(:role as text), :hotkey) on conflict (role) do nothing"
)


def migrate(owner_dsn: str) -> str:
    """Bring the schema to `SCHEMA_REVISION`; returns the revision that was there before ("" for none).

    There is no way down: code of an earlier release does not open a newer schema. Appends wait while it runs. Raises
    ArenaError V2021 when the server is away or a backup or another long reader holds the tables, V2022 when this login
    may not create roles and tables, V2023 when the schema is newer than this code, V2026 for a server that can't be
    used.
    """
    return run_blocking(functools.partial(_migrate, owner_dsn))


def provision_validator(owner_dsn: str, hotkey: str, password: str, *, is_rekeying: bool = True) -> bool:
    """Create the login role of a validator (`role_of`) and map it to `hotkey`; returns whether it has `password` now:
    one that exists keeps its own unless `is_rekeying`. A role is the server's: all its databases share it.

    Raises ArenaError V2021 when the server is away, V2022 when this login may not create roles.
    """
    return run_blocking(functools.partial(_provision, owner_dsn, hotkey, password, is_rekeying))


def role_of(hotkey: str) -> str:
    """Name of a hotkey's login role: within 63 bytes and lower case, whatever the hotkey is."""
    return "arena_v_" + hashlib.sha256(hotkey.encode()).hexdigest()[:32]


async def revision(connection: AsyncConnection) -> str:
    """The revision of the connected database, "" where there is no schema of ours."""
    if not (await connection.execute(_HAS_VERSIONS)).scalar_one():
        return ""
    return str((await connection.execute(_REVISION)).scalar() or "")


def run_script(connection: Connection, name: str) -> None:
    """Run one SQL file of `migrations/sql` inside the connection's transaction."""
    script = resources.files("arena.store.migrations").joinpath("sql", name).read_text(encoding="utf-8")
    connection.execute(text("select 1"))  # the driver opens its transaction at the first statement
    driver = connection.connection.dbapi_connection
    assert driver is not None
    driver.run_async(lambda raw: raw.execute(script))  # several statements: the simple protocol


async def _migrate(owner_dsn: str) -> str:
    async with owner_transaction(owner_dsn) as connection:
        before = await revision(connection)
        if before > SCHEMA_REVISION:
            raise ArenaError("V2023", f"found {before}, which is newer than this code's {SCHEMA_REVISION}")
        if before != SCHEMA_REVISION:
            await connection.execute(_LOCK)
            await connection.execute(_LOCK_WAIT)
            await connection.run_sync(_upgrade)
    return before


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    run_script(connection, "bootstrap.sql")
    connection.execute(text("set local role arena_owner"))
    config = Config()
    config.set_main_option("script_location", "arena.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, SCHEMA_REVISION)


async def _provision(owner_dsn: str, hotkey: str, password: str, is_rekeying: bool) -> bool:
    role, verifier = role_of(hotkey), scram_verifier(password, os.urandom(16))
    async with owner_transaction(owner_dsn) as connection:
        await connection.execute(_LOCK)
        is_known = (await connection.execute(_ROLE_EXISTS, {"role": role})).scalar_one()
        await connection.run_sync(run_script, "bounds.sql")
        is_keyed = is_rekeying or not is_known
        if is_keyed:
            ddl = "alter role %I password %L" if is_known else "create role %I login password %L connection limit 64"
            login = await connection.execute(_LOGIN, {"ddl": ddl, "role": role, "verifier": verifier})
            await connection.exec_driver_sql(login.scalar_one())
        await connection.exec_driver_sql((await connection.execute(_MEMBER, {"role": role})).scalar_one())
        await connection.execute(_NAME, {"role": role, "hotkey": hotkey})
    return bool(is_keyed)


def scram_verifier(password: str, salt: bytes) -> str:
    """PostgreSQL's stored form of a password (RFC 5803, SCRAM-SHA-256). `password` is ASCII; `salt` 16 random bytes."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, SCRAM_ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{salt64}${stored64}:{server64}"
