"""Connections: from a DSN to a pool, from a driver's error to one of ours, and the hold on a hotkey.

Nothing of asyncpg leaves this package: a server that is away is V2021, a refused write V2022
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
import operator
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote

import asyncpg

from arena.records.port import HeadMovedError, LeaseLostError
from arena.store.location import read_dsn
from foundation.codes import STORE_AWAY
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

# The last is the driver's own, where the server hung up between two steps of a statement.
_DRIVER = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_LOGIN = ("28", "3D")  # a login or database that the server does not have
# connection, shutdown, resources, credentials, database, lock wait, recovery
_AWAY = ("08", "57", "53", "28", "3D", "55P03", "25006")
_SCHEMA = ("42P01", "42883", "3F000", "42703")  # undefined table, function, schema, column
_REFUSED = ("42501", "40", "AR004")  # rights, conflicts
_UNFIT = ("22", "23", "54", "AR003")  # values, constraints, the server's own limits


class Row(asyncpg.Record):  # type: ignore[misc]
    """A row whose columns are attributes, too. Raises KeyError for one that it does not have."""

    def __getattr__(self, name: str) -> Any:
        found = self[name]
        # From now on it is found as any attribute is: a search that comes here takes fifteen times as long.
        setattr(Row, name, property(operator.itemgetter(name)))
        return found


def login_dsn(dsn: str, role: str, password: str | None) -> str:
    """The DSN of another login on the same database, without a password for None. Raises ArenaError V2030 for one that
    can't be read."""
    url = read_dsn(dsn)
    login = role if password is None else f"{role}:{quote(password, safe='')}"
    return url._replace(netloc=f"{login}@{url.netloc.rpartition('@')[2]}").geturl()


async def connect(dsn: str, statement_s: float | None = None) -> asyncpg.Connection:
    """A connection of its own, whose statements each have so long. Raises ArenaError V2030 for a DSN that can't be
    read, and what the driver raises."""
    read_dsn(dsn)
    limits = {"timeout": CONNECT_TIMEOUT_S, "command_timeout": statement_s}
    return await asyncpg.connect(dsn, **limits, server_settings=_SESSION, record_class=Row)


async def open_pool(dsn: str) -> asyncpg.Pool:
    """Connections of which each statement takes one. Every write of the store is one function call, so it commits by
    itself. Raises as `connect`."""
    read_dsn(dsn)
    return await asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=POOL_SIZE,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=COMMAND_TIMEOUT_S,
        server_settings=_SESSION,
        record_class=Row,
        reset=_keep,
    )


async def _keep(connection: object) -> None:
    """No statement of ours leaves anything behind, so none is to be undone by a round trip of its own."""


def require_server(connection: asyncpg.Connection | asyncpg.pool.PoolConnectionProxy) -> None:
    """Raises ArenaError V2026 for a server too old for the schema."""
    found = connection.get_server_version()
    if found.major < OLDEST_SERVER:
        fix = f"use a server of version {OLDEST_SERVER} or newer"
        raise ArenaError("V2026", f"the server is Postgres {found.major}.{found.minor}", fix=fix)


@contextlib.contextmanager
def coded_errors(dsn: str = "", *, is_first: bool = False) -> Iterator[None]:
    """Turns driver errors inside the block into coded ones, with the `dsn`. `is_first`: of a first connection, whose
    login or database was never right and is V2026; one that was right before may be so again, and is V2021."""
    place = f"{dsn}: " if dsn else ""  # an ArenaError shows no password
    try:
        yield
    except _DRIVER as error:
        state = str(getattr(error, "sqlstate", None) or "")
        about = str(error).splitlines()[0][:300]
        if state == "AR001":
            raise HeadMovedError("V2022", about) from error
        if state == "AR002":
            raise LeaseLostError("V2022", about) from error
        if state in _SCHEMA:
            raise ArenaError("V2023", about) from error
        if state.startswith(_REFUSED):
            raise ArenaError("V2022", about) from error
        if state.startswith(_UNFIT) or isinstance(error, ValueError):  # the latter: the driver could not encode it
            raise ArenaError("V2025", about) from error
        if is_first and state.startswith(_LOGIN):
            raise ArenaError("V2026", place + about) from error
        if not state or state.startswith(_AWAY):
            raise ArenaError(STORE_AWAY, place + about) from error
        raise
    except (OSError, TimeoutError) as error:
        number = error.errno if isinstance(error, OSError) else None  # the loop's own words hold a tuple
        about = os.strerror(number) if number else str(error)
        raise ArenaError(STORE_AWAY, place + (about or type(error).__name__)) from error


@contextlib.asynccontextmanager
async def owner_transaction(dsn: str, *, is_snapshot: bool = False) -> AsyncIterator[asyncpg.Connection]:
    """One transaction of a database's owner, committed at the end of the block; `is_snapshot`: that reads one moment.
    Raises ArenaError V2021, V2026."""
    with coded_errors(dsn, is_first=True):
        connection = await connect(dsn)
        try:
            require_server(connection)
            isolation = "repeatable_read" if is_snapshot else "read_committed"
            async with connection.transaction(isolation=isolation, readonly=is_snapshot):
                yield connection
        finally:
            await _end(connection)


def server_major(dsn: str) -> int:
    """The major version of a server. Raises ArenaError V2021, V2026."""

    async def ask() -> int:
        async with owner_transaction(dsn) as connection:
            return int(connection.get_server_version().major)

    return run_blocking(ask)


def is_recovering(error: ArenaError) -> bool:
    """True when the server is there and does not serve yet, or no longer: it starts, ends or recovers from a crash. A
    connection that it closed in the middle of a transaction has no state of the server's."""
    state = str(getattr(error.__cause__, "sqlstate", None) or "")
    return error.failure.code == STORE_AWAY and (not state or state.startswith(("08", "57", "25006")))


def run_blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end from synchronous code, whether or not this thread already runs an event loop."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="arena-store") as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


_HOLD = "select arena.hold($1)"
_SESSION_FACTS = "select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()"
_END_SESSION = "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_start = $2"
_NAMED = re.compile(r"(?<!:):([a-z]\w*)")

PATIENCE_S = 2.0  # a holder that was just stopped or killed, or our own old session: the server still notices
POLL_S = 0.05


class Hold:
    """One process's hold on one hotkey. Safe to share between the tasks of one event loop."""

    def __init__(self, dsn: str, validator: str) -> None:
        self._dsn, self._validator = dsn, validator
        self._lock = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None
        self._session: tuple[object, ...] = ()  # of the latest hold: which server process, since when

    async def require(self) -> None:
        """Return while we hold the hotkey, taking it (again) when it is free.

        Raises ArenaError V2024 when another process holds it, V2021 when the server is away.
        """
        if self._is_kept():
            return
        async with self._lock:
            if self._is_kept():
                return
            await self.release()
            with coded_errors(self._dsn):
                connection = await connect(self._dsn, COMMAND_TIMEOUT_S)
                try:
                    deadline = asyncio.get_running_loop().time() + (0 if self._session else PATIENCE_S)
                    if self._session and await connection.fetchval(_END_SESSION, *self._session):
                        deadline += PATIENCE_S
                    while not await connection.fetchval(_HOLD, self._validator):
                        if asyncio.get_running_loop().time() > deadline:
                            raise ArenaError("V2024", f"hotkey {self._validator}")
                        await asyncio.sleep(POLL_S)
                    self._session = tuple(await connection.fetchrow(_SESSION_FACTS))
                except BaseException:
                    await _end(connection)
                    raise
            self._connection = connection

    async def release(self) -> None:
        """Let go. The server frees the hotkey when the connection is closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await _end(connection)

    def _is_kept(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()


_ENDING = contextlib.suppress(*_DRIVER, OSError, TimeoutError)


async def _end(connection: asyncpg.Connection) -> None:
    """End the server's session, not only our use of it."""
    with _ENDING:
        await connection.close(timeout=CONNECT_TIMEOUT_S)


class Session:
    """The connections of one store. Safe to share between the tasks of one event loop."""

    def __init__(self, pool: asyncpg.Pool, hold: Hold | None = None) -> None:
        self._pool = pool
        self._hold = hold

    async def rows(self, query: str, **values: object) -> Sequence[Row]:
        """All rows of a query whose values are named (`:name`). The server infers their types."""
        numbered, names = _numbered(query)
        with coded_errors():
            found: list[Row] = await self._pool.fetch(numbered, *(values[name] for name in names))
        return found

    async def call(self, function: str, **values: object) -> Sequence[Row]:
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
        with _ENDING:
            await asyncio.wait_for(self._pool.close(), CONNECT_TIMEOUT_S)
        if self._hold:
            await self._hold.release()


@functools.cache
def _numbered(query: str) -> tuple[str, tuple[str, ...]]:
    """A query with its values by number, as the server reads it, and their names in this order."""
    names = tuple(dict.fromkeys(_NAMED.findall(query)))
    return _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", query), names
