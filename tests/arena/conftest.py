"""The arena's real Postgres: one embedded server for the whole run, and stores connected as validators' own roles."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from arena.store.embedded import EmbeddedServer, start_embedded
from arena.store.postgres import PostgresStore

OpenStore = Callable[[str], Awaitable[PostgresStore]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedServer]:
    """A running embedded server in a short folder of its own."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_embedded(state_dir)
    yield server
    server.stop()
    shutil.rmtree(state_dir)


@pytest.fixture
async def open_store(postgres: EmbeddedServer) -> AsyncIterator[OpenStore]:
    """Opens the store of a hotkey, as that hotkey's role; closed at the end of the test."""
    opened: list[PostgresStore] = []

    async def opening(hotkey: str) -> PostgresStore:
        store = await PostgresStore.open(postgres.dsn_for(hotkey), hotkey)
        opened.append(store)
        return store

    yield opening
    for store in opened:
        await store.close()
