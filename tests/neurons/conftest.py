"""One small catalogue and one guest root for all tests of this room, a Postgres for each file, and nodes on it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from arena.store.embedded import EmbeddedServer
from tests.neurons import cluster_stand
from tests.neurons.arena_stand import build_small_catalogue, forgo_durability, short_folder
from tests.neurons.clock_stand import Desk, LogDesk, open_desk, open_log_desk
from tests.postgres_stand import start_new


@pytest.fixture(scope="session")
def arena_base() -> Iterator[Path]:
    """A folder for runs; the guest root is built in it once."""
    with short_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def small_catalogue(arena_base: Path) -> Path:
    """An index of 2,000 synthetic products."""
    return build_small_catalogue(arena_base)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """A Postgres for the tests of one file: their validators see nothing of other files'."""
    with short_folder() as folder:
        started = start_new(folder)
        try:
            forgo_durability(started)
            yield started
        finally:
            started.stop()


@pytest.fixture
async def desk(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Desk]:
    """A node of a new validator, with a bank for two races."""
    async with open_desk(server, tmp_path) as made:
        await made.settle_in()
        yield made


@pytest.fixture
async def log_desk(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[LogDesk]:
    """A new validator's log, with its checkpoint and anchor loops."""
    async with open_log_desk(server, tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """Makes Ray importable, here and in every process that a test starts, installing what the extra `cluster` names
    when it is missing; skips where pip cannot, or where no network of a test's own can be made."""
    packages, constraints = str(cluster_stand.PACKAGES), str(cluster_stand.ROOT / "constraints.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", packages, prepend=os.pathsep)
        patch.setattr(sys, "path", [*sys.path, packages])
        if not cluster_stand.is_installed():
            cluster_stand.install(cluster_stand.PACKAGES, ("-c", constraints, cluster_stand.REQUIREMENT))
        if reason := cluster_stand.missing():
            pytest.skip(reason)
        yield
