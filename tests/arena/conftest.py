"""The arena's real Postgres: one embedded server for the whole run, and stores connected as validators' own roles."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from arena.chain.port import Signer
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer
from arena.store.objects import BodyObjects
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, Clock
from tests.keys import generate_signer
from tests.postgres_stand import start_new

OpenStore = Callable[..., Awaitable[PostgresStore]]

_races = (f"race-{number}" for number in itertools.count())


@contextlib.contextmanager
def running_server() -> Iterator[EmbeddedServer]:
    """A running embedded server in a short folder of its own."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_new(state_dir)
    yield server
    server.stop()
    shutil.rmtree(state_dir)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedServer]:
    """The server that most tests share."""
    with running_server() as server:
        yield server


@pytest.fixture
async def open_store(postgres: EmbeddedServer) -> AsyncIterator[OpenStore]:
    """Opens the store of a hotkey, as that hotkey's role; closed at the end of the test."""
    opened: list[PostgresStore] = []

    async def opening(hotkey: str, *, is_exclusive: bool = False, objects: BodyObjects | None = None) -> PostgresStore:
        dsn = postgres.dsn_for(hotkey)
        store = await PostgresStore.open(dsn, hotkey, is_exclusive=is_exclusive, objects=objects)
        opened.append(store)
        return store

    yield opening
    for store in opened:
        await store.close()


@pytest.fixture
def race_id() -> str:
    """A race of this test alone."""
    return next(_races)


@pytest.fixture
def signer() -> Signer:
    """A hotkey of this test alone."""
    return generate_signer()


@pytest.fixture
async def store(open_store: OpenStore, signer: Signer) -> PostgresStore:
    """The store of `signer`."""
    return await open_store(signer.hotkey)


@pytest.fixture
def sequencer(store: PostgresStore, signer: Signer) -> Sequencer:
    """Signs and appends to `store`."""
    return Sequencer(store, signer, Clock(), HOST)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of an S3 service on loopback."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The location of a fresh bucket, whose credentials are in the environment."""
    import boto3

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    name = f"arena-{generate_signer().hotkey.lower()[:20]}"
    boto3.client("s3", endpoint_url=s3, region_name="us-east-1").create_bucket(Bucket=name)
    return f"s3://{name}/some/prefix?endpoint={s3}&region=us-east-1"
