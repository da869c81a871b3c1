"""Connections: from a DSN to an engine, and from a driver's error to one of ours.

Nothing of SQLAlchemy or asyncpg leaves this package: a server that is away is V2021, a refused write V2022
(`HeadMovedError` and `LeaseLostError` where that is the reason), a missing or foreign schema V2023, a value that can't
be stored V2025. Errors that only a bug of ours can cause pass through unchanged. A connection the server hung up on is
replaced when it is next used, so that a restart of Postgres costs the calls that were running and no later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from arena.store.port import HeadMovedError, LeaseLostError
from foundation.codes.names import STORE_AWAY
from foundation.errors import ArenaError

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10
COMMAND_TIMEOUT_S = 60  # a server that answers no more is away; migrations may take longer
POOL_SIZE = 8

# A host that vanished without a word keeps its session, and with it the hold on a hotkey, until keepalives fail.
_SESSION = {
    "application_name": "agent-arena",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

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


@contextmanager
def coded_errors() -> Iterator[None]:
    """Turns driver errors inside the block into coded ones."""
    try:
        yield
    except (DBAPIError, asyncpg.PostgresError) as error:
        origin = error.orig if isinstance(error, DBAPIError) else error  # a schema's script runs in the bare driver
        state = str(getattr(origin, "sqlstate", None) or "")
        about = str(origin).split(">: ", 1)[-1].splitlines()[0][:300]
        if state == "AR001":
            raise HeadMovedError(about) from error
        if state == "AR002":
            raise LeaseLostError(about) from error
        if state in _SCHEMA:
            raise ArenaError("V2023", about) from error
        if state.startswith(_REFUSED):
            raise ArenaError("V2022", about) from error
        is_unencodable = isinstance(getattr(origin, "__cause__", None), ValueError)  # the driver could not encode it
        if state.startswith(_UNFIT) or is_unencodable:
            raise ArenaError("V2025", about) from error
        is_cut = isinstance(error, DBAPIError) and error.connection_invalidated
        if is_cut or not state or state.startswith(_AWAY):
            raise ArenaError(STORE_AWAY, about) from error
        raise
    except (OSError, TimeoutError, PoolTimeoutError, DisconnectionError) as error:
        raise ArenaError(STORE_AWAY, str(error) or type(error).__name__) from error


def is_recovering(error: ArenaError) -> bool:
    """True when the server is there and does not serve yet, or no longer: it starts, ends or recovers from a crash."""
    cause = error.__cause__
    state = str(getattr(getattr(cause, "orig", cause), "sqlstate", None) or "")
    return error.failure.code == STORE_AWAY and (isinstance(cause, OSError) or state.startswith(("08", "57")))


def run_blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end from synchronous code, whether or not this thread already runs an event loop."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="arena-store") as pool:
        return pool.submit(lambda: asyncio.run(work())).result()
