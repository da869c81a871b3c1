"""Servers for tests without `initdb` and migrations: made once in each process of the tests, then copied.

They do not wait for the disk: a test may kill them, which loses nothing that they had written, but nobody cuts the
machine's power. Passwords are hashed once and not 4,096 times, by the server and by whoever logs in: they are random,
and each test has its own.

What a server's first start makes is tested in `tests/arena/test_store_embedded.py`, which begins from nothing, and so
do the demo and the README.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import asyncpg

from arena.store import schema
from arena.store.connect import run_blocking
from arena.store.embedded import EmbeddedServer, ServerPaths, lay_out, server_user, start_embedded

schema.SCRAM_ITERATIONS = 1  # of validators' roles


@functools.cache
def _made() -> ServerPaths:
    """A migrated server without validators, stopped."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-", dir="/tmp"))
    atexit.register(shutil.rmtree, state_dir, ignore_errors=True)
    server = start_embedded(state_dir)
    run_blocking(lambda: _hash_once(server.owner_dsn))  # an asynchronous test may be the first that asks
    server.stop()
    paths = lay_out(state_dir, server_user())
    with (paths.data / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
        settings.write("fsync = off\nfull_page_writes = off\n")
    return paths


async def _hash_once(owner_dsn: str) -> None:
    """The owner's own password, stored again. Commands that a test starts hash those that they make as ever."""
    connection = await asyncpg.connect(owner_dsn)
    try:
        await connection.execute("set scram_iterations = 1")
        password = unquote(urlsplit(owner_dsn).password or "")
        await connection.execute(f"alter role current_user password '{password}'")
    finally:
        await connection.close()


def lay_server(state_dir: Path) -> None:
    """Put into a new state folder what its server's first start would make."""
    made, paths = _made(), lay_out(state_dir, server_user())
    subprocess.run(["cp", "-a", f"{made.data}/.", paths.data], check=True)
    subprocess.run(["cp", "-a", made.secrets, paths.secrets], check=True)


def start_new(state_dir: Path) -> EmbeddedServer:
    """A running server of a new state folder, without validators."""
    lay_server(state_dir)
    return start_embedded(state_dir)
