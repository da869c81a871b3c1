"""What a validator's role may not do, tried as that role with its password; and what nobody may do."""

from __future__ import annotations

import hashlib

import asyncpg
import pytest

from arena.chain.keys import generate_signer, verify
from arena.records.log import sign_checkpoint
from arena.records.model import StoredCheckpoint
from arena.records.port import AttemptUsage, StoredSubmission, WeightsResult
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from arena.store.schema import SCHEMA_REVISION, migrate
from foundation.errors import ArenaError
from harness.inference.gateway import ModelUsage
from tests.arena.conftest import OpenStore
from tests.arena.log_stand import HOST, SUBJECT, Clock, episode, item
from tests.arena.store_attacks import (
    ATTACKER,
    OWN_TABLES,
    VICTIM,
    attacks,
    is_refused,
    partition_day,
)


async def as_owner(postgres: EmbeddedServer, *statements: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(postgres.owner_dsn)
    try:
        return [await connection.fetch(statement) for statement in statements][-1]
    finally:
        await connection.close()


async def as_role(postgres: EmbeddedServer, hotkey: str) -> asyncpg.Connection:
    """A connection as a validator's own role, with its password."""
    return await asyncpg.connect(postgres.dsn_for(hotkey))


async def day_of(postgres: EmbeddedServer) -> str:
    """A day whose partitions the shared server has."""
    connection = await asyncpg.connect(postgres.owner_dsn)
    try:
        return await partition_day(connection)
    finally:
        await connection.close()


@pytest.fixture
async def victim(postgres: EmbeddedServer, open_store: OpenStore) -> PostgresStore:
    """The victim, whose role exists."""
    return await open_store(VICTIM)


@pytest.mark.usefixtures("victim")
@pytest.mark.parametrize("attack", attacks("of_a_day"))
async def test_a_validators_role_may_not(attack: str, postgres: EmbeddedServer) -> None:
    connection, day = await as_role(postgres, ATTACKER), await day_of(postgres)
    try:
        assert await is_refused(connection, attacks(day)[attack])
    finally:
        await connection.close()


async def _fill(open_store: OpenStore) -> PostgresStore:
    """A validator with something in every table."""
    signer = generate_signer()
    store = await open_store(signer.hotkey)
    payloads, body = episode(1)
    await Sequencer(store, signer, Clock(), HOST).append(payloads, [body])
    await store.enqueue([item(1, "rls")])
    await store.claim(1, 60_000)
    await store.put_submission(StoredSubmission(subject=SUBJECT, name="n", state="review"), "secret = 1")
    await store.spend_and_look("5m", 1, keep_ms=60_000, most=9, stream="door")
    await store.put_event("race", 0, "{}")
    await store.put_weights_result(WeightsResult(race_id="r", block=1, uids=(), weights_u16=(), status="ok"))
    rows = (ModelUsage(upstream="u", model="m", requests=1),)
    await store.put_usage(
        AttemptUsage(attempt_id="a", race_id="r", stage="race", agent_version_id=SUBJECT.agent_version_id, rows=rows)
    )
    note = sign_checkpoint((await verify_store(store, verify)).logs[0].checkpoint, signer)
    await store.put_checkpoint(StoredCheckpoint(validator=store.validator, size=3, note=note, signed_ms=1))
    await store.put_anchor(3, hashlib.sha256(note.encode()).hexdigest(), 9)
    return store


@pytest.mark.parametrize("table", OWN_TABLES)
async def test_a_validators_role_reads_its_own_rows_only_and_the_owner_reads_all(
    table: str, postgres: EmbeddedServer, open_store: OpenStore
) -> None:
    first, second = await _fill(open_store), await _fill(open_store)
    connection = await asyncpg.connect(postgres.dsn_for(first.validator))
    try:
        seen = await connection.fetch(f"select distinct validator from arena.{table}")
    finally:
        await connection.close()
    assert [row["validator"] for row in seen] == [first.validator]
    everybody = {row["validator"] for row in await as_owner(postgres, f"select validator from arena.{table}")}
    assert {first.validator, second.validator} <= everybody


async def test_every_table_with_a_validator_in_it_has_row_security(postgres: EmbeddedServer) -> None:
    open_tables = await as_owner(
        postgres,
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'validator'"
        " where c.relnamespace = 'arena'::regnamespace and c.relkind in ('r', 'p') and not c.relrowsecurity"
        " and has_table_privilege('arena_validator', c.oid, 'select')",
    )
    assert open_tables == []


@pytest.mark.parametrize(
    "statement",
    [
        "update arena.record set content = content",
        "delete from arena.record",
        "truncate arena.record",
        "delete from arena.record_of_a_day",
        "delete from arena.body",
        "delete from arena.head",
        "update arena.head set seq = seq",
        "delete from arena.checkpoint",
        "update arena.anchor set block = block",
    ],
)
async def test_even_the_superuser_is_refused_while_triggers_stand(
    statement: str, postgres: EmbeddedServer, open_store: OpenStore
) -> None:
    await _fill(open_store)
    # Of a day that holds rows: a trigger for each row has nothing to refuse in a partition that is empty, as the first
    # one is where the server was started before midnight.
    (filled,) = (await as_owner(postgres, "select max(tableoid::regclass::text) from arena.record"))[0]
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await as_owner(postgres, statement.replace("arena.record_of_a_day", filled))


async def test_a_database_without_the_schema_is_refused_by_name(postgres: EmbeddedServer) -> None:
    await as_owner(postgres, "create database bare")
    with pytest.raises(ArenaError, match=r"V2023.*no schema"):
        await PostgresStore.open(postgres.dsn_for("5attacker").replace("@/postgres", "@/bare"))
    await as_owner(postgres, "drop database bare")


async def test_a_schema_of_another_revision_is_refused(postgres: EmbeddedServer, open_store: OpenStore) -> None:
    await as_owner(postgres, "update arena.alembic_version set version_num = '9999'")
    try:
        with pytest.raises(ArenaError, match=r"V2023.*9999"):
            await PostgresStore.open(postgres.dsn_for("5attacker"))
        with pytest.raises(ArenaError, match=r"V2023.*9999.*newer"):
            migrate(postgres.owner_dsn)
    finally:
        await as_owner(postgres, f"update arena.alembic_version set version_num = '{SCHEMA_REVISION}'")
