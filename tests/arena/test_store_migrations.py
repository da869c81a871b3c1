"""Migrations up from every released schema, over data that the release itself wrote. There is no way down."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from arena.chain.keys import generate_signer, verify
from arena.chain.port import Signer
from arena.records.log.sequencer import Sequencer
from arena.records.verify.verification import verify_store
from arena.store.embedded.server import EmbeddedServer
from arena.store.objects import folder_location, open_objects
from arena.store.port import StoredBody, StoredCheckpoint
from arena.store.postgres.store import PostgresStore
from arena.store.schema import SCHEMA_REVISION, migrate, provision_validator
from tests.arena.log_stand import HOST, Clock, attempt, episode
from tests.arena.released_schemas import FROZEN, fill_0001, make_schema
from tests.arena.store_attacks import ATTACKER, VICTIM, attempts, fingerprint, is_refused
from tests.arena.test_store_roles import as_owner

MIGRATIONS = Path(__file__).parents[2] / "arena" / "store" / "migrations"


class Old:
    """A database of an earlier release on the shared server, with the log of one validator in it."""

    def __init__(self, server: EmbeddedServer, name: str) -> None:
        self.server, self.name = server, name
        self.owner_dsn = server.owner_dsn.replace("@/postgres", f"@/{name}")
        self.signer: Signer = generate_signer()
        self.bodies: list[StoredBody] = []

    def dsn_for(self, hotkey: str) -> str:
        """The DSN of a validator's role in this database."""
        dsn = self.server.dsn_for(hotkey)  # the role is the server's, its name in this database is not
        provision_validator(self.owner_dsn, hotkey, dsn.split(":")[2].split("@")[0])
        return dsn.replace("@/postgres", f"@/{self.name}")

    async def store(self, **options) -> PostgresStore:
        return await PostgresStore.open(self.dsn_for(self.signer.hotkey), self.signer.hotkey, **options)


@pytest.fixture(params=sorted(FROZEN))
async def old(request: pytest.FixtureRequest, postgres: EmbeddedServer) -> AsyncIterator[Old]:
    """A database as a release left it."""
    made = Old(postgres, f"released_{request.param}_{generate_signer().hotkey[-6:].lower()}")
    await as_owner(postgres, f"create database {made.name}")
    await make_schema(made.owner_dsn, request.param)
    made.bodies = await fill_0001(made.dsn_for(made.signer.hotkey), made.signer)
    yield made
    await as_owner(postgres, f"drop database {made.name} with (force)")


@pytest.mark.parametrize("revision", sorted(FROZEN))
def test_a_released_revision_is_never_changed(revision: str) -> None:
    found = {name: hashlib.sha256((MIGRATIONS / name).read_bytes()).hexdigest() for name in FROZEN[revision]}
    assert found == FROZEN[revision]


def test_every_revision_but_the_newest_is_frozen_and_none_leads_down() -> None:
    config = Config()
    config.set_main_option("script_location", "arena.store:migrations")
    scripts = list(ScriptDirectory.from_config(config).walk_revisions())
    assert scripts[0].revision == SCHEMA_REVISION
    assert {script.revision for script in scripts[1:]} == set(FROZEN)
    assert not any(hasattr(script.module, "downgrade") for script in scripts)
    frozen = {name for names in FROZEN.values() for name in names}
    left = {path.name for path in MIGRATIONS.glob("sql/*.sql") if f"sql/{path.name}" not in frozen}
    assert {name.partition("_")[0] for name in left} == {"bootstrap.sql", "bounds.sql", SCHEMA_REVISION}


async def test_what_a_release_wrote_verifies_after_the_migration(old: Old) -> None:
    before = await _rows(old)
    assert await asyncio.to_thread(migrate, old.owner_dsn) in FROZEN
    assert await asyncio.to_thread(migrate, old.owner_dsn) == SCHEMA_REVISION
    assert await _rows(old) == before
    store = await old.store()
    report = await verify_store(store, verify)
    assert report.is_ok, report.defects
    assert report.records == 11
    names = [body.body_sha256 for body in old.bodies]
    assert sorted(await store.bodies(names), key=lambda body: names.index(body.body_sha256)) == old.bodies
    assert [len(await store.verdicts_on([name])) for name in names] == [1, 1, 1]
    await store.close()


async def test_the_working_state_of_a_release_goes_on_after_the_migration(old: Old) -> None:
    await asyncio.to_thread(migrate, old.owner_dsn)
    store = await old.store(is_exclusive=True)
    sequencer = Sequencer(store, old.signer, Clock(), HOST)
    (ran_out,) = await store.expired()
    await sequencer.abandon(ran_out, attempt(8))
    claimed = await store.claim(9, 60_000)
    assert len(claimed) == 3  # two that came back, one that was never claimed; one is still held
    assert min(lease.fence for lease in claimed) > ran_out.fence
    payloads, body = episode(9, attempt_id=claimed[0].attempt_id)
    await sequencer.append(payloads, [body], finish=claimed[0])
    assert await store.open_items("old", "race") == 3
    assert [submission.state for submission in await store.submissions()] == ["qualified", "queued"]
    assert await store.source("a1" * 32) == "x = 'a1'"
    await store.put_event("race", 1, "{}")
    assert len(await store.events("race")) == 2
    assert [result.block for result in await store.weights_results()] == [4]
    assert (await verify_store(store, verify)).is_ok
    await store.close()


async def test_partitions_of_a_release_take_what_the_new_schema_adds(old: Old, tmp_path: Path) -> None:
    await asyncio.to_thread(migrate, old.owner_dsn)
    store = await old.store(objects=open_objects(folder_location(tmp_path / "bodies")))
    payloads, body = episode(20)
    await Sequencer(store, old.signer, Clock(), HOST).append(payloads, [body])  # into a partition that 0001 made
    assert await store.body(body.body_sha256) == body
    assert await store.body(old.bodies[0].body_sha256) == old.bodies[0]
    await store.put_checkpoint(StoredCheckpoint(validator=store.validator, size=3, note="note", signed_ms=1))
    assert len(await store.checkpoints()) == 1
    indexes = await _fetch(
        old.owner_dsn,
        "select count(*) from pg_index i join pg_inherits h on h.inhrelid = i.indrelid"
        " where h.inhparent = 'arena.record'::regclass and i.indisvalid group by i.indrelid",
    )
    assert {row["count"] for row in indexes} == {3}
    await store.close()


async def test_refused_writes_stay_refused_after_the_migration(old: Old) -> None:
    await asyncio.to_thread(migrate, old.owner_dsn)
    victim = await asyncpg.connect(old.dsn_for(VICTIM))
    owner, attacker = await asyncpg.connect(old.owner_dsn), await asyncpg.connect(old.dsn_for(ATTACKER))
    before = await fingerprint(owner)
    tried = await attempts(owner)
    assert [statement for statement in tried if not await is_refused(attacker, statement)] == []
    assert await fingerprint(owner) == before
    for connection in (owner, attacker, victim):
        await connection.close()


async def test_a_store_that_is_open_during_the_migration_goes_on_appending(old: Old) -> None:
    stop = asyncio.Event()
    writing = [asyncio.create_task(_append_until(stop, old, race_id)) for race_id in ("x", "y")]
    await asyncio.sleep(0.1)
    await asyncio.to_thread(migrate, old.owner_dsn)
    stop.set()
    appended = sum(await asyncio.gather(*writing))
    store = await old.store()
    report = await verify_store(store, verify)
    assert report.is_ok, report.defects
    assert report.records == 11 + appended
    await store.close()


async def _append_until(stop: asyncio.Event, old: Old, race_id: str) -> int:
    """Append through a store that does not ask for the schema, as one that was opened before."""
    from arena.store.postgres.connect import open_engine
    from arena.store.postgres.session import Session

    store = PostgresStore(Session(open_engine(old.dsn_for(old.signer.hotkey))), old.signer.hotkey)
    sequencer = Sequencer(store, old.signer, Clock(), HOST)
    appended = 0
    while not stop.is_set():
        payloads, body = episode(appended, race_id=race_id)
        await sequencer.append(payloads, [body])
        appended += len(payloads)
        await asyncio.sleep(0.02)  # or the writer that knows the head wins each time, and the other gives up
    await store.close()
    return appended


async def _fetch(dsn: str, query: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(query)
    finally:
        await connection.close()


async def _rows(old: Old) -> list[str]:
    """Every row of the tables that 0001 has, in the columns that it has."""
    tables = ("head", "record", "body", "item", "lease", "submission", "event", "weights_result", "validator")
    found = []
    for table in tables:
        found += [
            row["row"]
            for row in await _fetch(
                old.owner_dsn, f"select (to_jsonb(t) - 'refused')::text as row from arena.{table} t order by 1"
            )
        ]
    return found
