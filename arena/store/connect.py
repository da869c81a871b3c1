"""Connections: from a DSN to an engine, from a driver's error to one of ours, and the hold on a hotkey.

Nothing of SQLAlchemy or asyncpg leaves this package: a server that is away is V2021, a refused write V2022
(`HeadMovedError` and `LeaseLostError` where that is the reason), a missing or foreign schema V2023, a value that can't
be stored V2025. Errors that only a bug of ours can cause pass through unchanged. A connection the server hung up on is
replaced when it is next used, so that a restart of Postgres costs the calls that were running and no later one. One
statement is one transaction.

The hold is a session lock on the server, kept by a connection of its own, that one process has at a time. While
`require` returns, no other process holds this hotkey on this server. The server frees the hold when its process dies.
A process that lost its connection takes the hold again at its next write, ending its own old session if the server has
not noticed, or is refused because another process has it. Needs a server session: a pooler in transaction mode can't
hold one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import Row, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from arena.records.port import HeadMovedError, LeaseLostError
from foundation.codes import STORE_AWAY, STORE_UNFIT
from foundation.errors import ArenaError

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10
COMMAND_TIMEOUT_S = 60  # a server that answers no more is away; migrations may take longer
POOL_SIZE = 8
OLDEST_SERVER = 15  # major version of the oldest server that this schema is tried on

# A host that vanished without a word keeps its session, and with it the hold on a hotkey, until keepalives fail.
_SESSION = {
    "application_name": "agent-arena",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

_LOGIN = ("28", "3D")  # a login or database that the server does not have
_AWAY = ("08", "57", "53", "28", "3D", "55P03")  # connection, shutdown, resources, credentials, database, lock wait
_SCHEMA = ("42P01", "42883", "3F000", "42703")  # undefined table, function, schema, column
_REFUSED = ("42501", "40", "AR004")  # rights, conflicts
_UNFIT = ("22", "23", "54", "AR003")  # values, constraints, the server's own limits


def engine_url(dsn: str) -> URL:
    """The asyncpg URL of a `postgresql://` DSN. Raises ArenaError V2021 for one that can't be read."""
    try:
        url = make_url(dsn)
    except (ArgumentError, ValueError) as error:
        raise ArenaError("V2021", "the DSN is not a postgresql:// URL") from error
    if not url.drivername.startswith("postgres"):
        raise ArenaError("V2021", f"the DSN names {url.drivername}, not postgresql")
    query = dict(url.query)
    if "sslmode" in query:  # libpq's name; asyncpg reads the same values under its own
        query["ssl"] = query.pop("sslmode")
    return url.set(drivername="postgresql+asyncpg", query=query)


def libpq_url(dsn: str) -> URL:
    """The URL of a DSN as PostgreSQL's own tools read it. Raises ArenaError V2021 for one that can't be read."""
    url = engine_url(dsn)
    query = {"sslmode" if name == "ssl" else name: value for name, value in url.query.items()}
    return url.set(drivername="postgresql", query=query)


def login_dsn(dsn: str, role: str, password: str | None) -> str:
    """The DSN of another login on the same database, without a password for None. Raises ArenaError V2021 for one that
    can't be read."""
    url = libpq_url(dsn)._replace(username=role, password=password)  # `set` would keep the password for None
    return url.render_as_string(hide_password=False)


def open_engine(dsn: str, *, is_autocommit: bool = True, pool_size: int = POOL_SIZE) -> AsyncEngine:
    """A pooled engine. Every write of the store is one function call, so it commits by itself."""
    engine = create_async_engine(
        engine_url(dsn),
        pool_size=pool_size,
        max_overflow=0,
        isolation_level="AUTOCOMMIT" if is_autocommit else "READ COMMITTED",
        connect_args={
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": COMMAND_TIMEOUT_S if is_autocommit else None,
            "server_settings": _SESSION,
        },
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    return engine


def _refuse_closed(dbapi_connection: Any, record: object, proxy: object) -> None:
    """Makes the pool replace a connection whose end we have seen; costs no round trip, unless a ping."""
    if dbapi_connection.driver_connection.is_closed():
        raise DisconnectionError("the server hung up")


async def require_server(connection: AsyncConnection) -> int:
    """The major version of the connected server. Raises ArenaError V2026 for one too old for the schema."""
    found = (await connection.get_raw_connection()).driver_connection.get_server_version()  # type: ignore[union-attr]
    if found.major < OLDEST_SERVER:
        fix = f"use a server of version {OLDEST_SERVER} or newer"
        raise ArenaError(STORE_UNFIT, f"the server is Postgres {found.major}.{found.minor}", fix=fix)
    return int(found.major)


@contextmanager
def coded_errors(*, is_first: bool = False) -> Iterator[None]:
    """Turns driver errors inside the block into coded ones. `is_first`: of a first connection, whose login or database
    was never right and is V2026; one that was right before may be so again, and is V2021."""
    try:
        yield
    except (DBAPIError, asyncpg.PostgresError) as error:
        origin = error.orig if isinstance(error, DBAPIError) else error  # a schema's script runs in the bare driver
        state = str(getattr(origin, "sqlstate", None) or "")
        about = str(origin).split(">: ", 1)[-1].splitlines()[0][:300]
        if state == "AR001":
            raise HeadMovedError(about) from error
        if state == "AR002":
            raise LeaseLostError("V2022", about) from error
        if state in _SCHEMA:
            raise ArenaError("V2023", about) from error
        if state.startswith(_REFUSED):
            raise ArenaError("V2022", about) from error
        is_unencodable = isinstance(getattr(origin, "__cause__", None), ValueError)  # the driver could not encode it
        if state.startswith(_UNFIT) or is_unencodable:
            raise ArenaError("V2025", about) from error
        if is_first and state.startswith(_LOGIN):
            raise ArenaError(STORE_UNFIT, about) from error
        is_cut = isinstance(error, DBAPIError) and error.connection_invalidated
        if is_cut or not state or state.startswith(_AWAY):
            raise ArenaError(STORE_AWAY, about) from error
        raise
    except (OSError, TimeoutError, PoolTimeoutError, DisconnectionError) as error:
        raise ArenaError(STORE_AWAY, str(error) or type(error).__name__) from error


@contextlib.asynccontextmanager
async def owner_transaction(dsn: str) -> AsyncIterator[AsyncConnection]:
    """One transaction of a database's owner, committed at the end of the block. Raises ArenaError V2021, V2026."""
    engine = open_engine(dsn, is_autocommit=False, pool_size=1)
    try:
        with coded_errors(is_first=True):
            async with engine.begin() as connection:
                await require_server(connection)
                yield connection
    finally:
        await engine.dispose()


def is_recovering(error: ArenaError) -> bool:
    """True when the server is there and does not serve yet, or no longer: it starts, ends or recovers from a crash."""
    cause = error.__cause__
    state = str(getattr(getattr(cause, "orig", cause), "sqlstate", None) or "")
    return error.failure.code == STORE_AWAY and (isinstance(cause, OSError) or state.startswith(("08", "57")))


def server_major(dsn: str) -> int:
    """The major version of a server. Raises ArenaError V2021, V2026."""

    async def ask() -> int:
        async with owner_transaction(dsn) as connection:
            return await require_server(connection)

    return run_blocking(ask)


def run_blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end from synchronous code, whether or not this thread already runs an event loop."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="arena-store") as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


_HOLD = text("select arena.hold(:validator)")
_SESSION_FACTS = text("select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()")
_END_SESSION = text(
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = :pid and backend_start = :backend_start"
)
_parsed = functools.cache(text)

PATIENCE_S = 2.0  # a holder that was just stopped or killed, or our own old session: the server still notices
POLL_S = 0.05


class Hold:
    """One process's hold on one hotkey. Safe to share between the tasks of one event loop."""

    def __init__(self, dsn: str, validator: str) -> None:
        self._engine = open_engine(dsn, pool_size=1)
        self._validator = validator
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None
        self._driver: Any = None  # asyncpg's connection, which knows at once when its server hung up
        self._session: dict[str, object] | None = None  # of the latest hold: which server process, since when

    async def require(self) -> None:
        """Return while we hold the hotkey, taking it (again) when it is free.

        Raises ArenaError V2024 when another process holds it, V2021 when the server is away.
        """
        if self._is_kept():
            return
        async with self._lock:
            if self._is_kept():
                return
            await self._drop()
            with coded_errors():
                connection = await self._engine.connect()
                try:
                    deadline = asyncio.get_running_loop().time() + (0 if self._session else PATIENCE_S)
                    if self._session and (await connection.execute(_END_SESSION, self._session)).first():
                        deadline += PATIENCE_S
                    while not (await connection.execute(_HOLD, {"validator": self._validator})).scalar():
                        if asyncio.get_running_loop().time() > deadline:
                            raise ArenaError("V2024", f"hotkey {self._validator}")
                        await asyncio.sleep(POLL_S)
                    self._session = dict((await connection.execute(_SESSION_FACTS)).one()._mapping)
                    driver = (await connection.get_raw_connection()).driver_connection
                except BaseException:
                    await _end(connection)
                    raise
            self._connection, self._driver = connection, driver

    async def release(self) -> None:
        """Let go. The server frees the hotkey when the connection is closed."""
        await self._drop()
        await self._engine.dispose()

    def _is_kept(self) -> bool:
        return self._driver is not None and not self._driver.is_closed()

    async def _drop(self) -> None:
        connection, self._connection, self._driver = self._connection, None, None
        if connection is not None:
            await _end(connection)


async def _end(connection: AsyncConnection) -> None:
    """End the server's session, not only our use of it."""
    with contextlib.suppress(DBAPIError, OSError):
        await connection.invalidate()
    with contextlib.suppress(DBAPIError, OSError):
        await connection.close()


class Session:
    """The connections of one store. Safe to share between the tasks of one event loop."""

    def __init__(self, engine: AsyncEngine, hold: Hold | None = None) -> None:
        self._engine = engine
        self._hold = hold

    async def rows(self, query: str, **values: object) -> Sequence[Row[Any]]:
        """All rows of a query. The server infers the types of its values."""
        with coded_errors():
            async with self._engine.connect() as connection:
                return (await connection.execute(_parsed(query), values)).all()

    async def call(self, function: str, **values: object) -> Sequence[Row[Any]]:
        """The rows that one of our writing functions returns. Raises ArenaError V2024 when another process holds the
        hotkey."""
        await self.require()
        named = ", ".join(f"_{name} => :{name}" for name in values)
        return await self.rows(f"select * from arena.{function}({named})", **values)

    async def require(self) -> None:
        """Return while this process holds the hotkey, where the store is exclusive. Raises ArenaError V2024."""
        if self._hold:
            await self._hold.require()

    async def close(self) -> None:
        """Close the connections, and let go of the hotkey."""
        await self._engine.dispose()
        if self._hold:
            await self._hold.release()
