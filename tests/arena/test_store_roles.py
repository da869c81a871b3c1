"""What a validator's role may not do, tried as that role with its password; and what nobody may do."""

from __future__ import annotations

import hashlib

import asyncpg
import pytest

from arena.chain.keys import verify
from arena.records.log import sign_checkpoint
from arena.records.model import StoredCheckpoint
from arena.records.port import AttemptUsage, StoredSubmission, WeightsResult
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.connect import coded_errors, login_dsn
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from arena.store.schema import SCHEMA_REVISION, migrate, role_of
from foundation.errors import ArenaError
from harness.inference.gateway import ModelUsage
from tests.arena.conftest import OpenStore
from tests.arena.log_stand import HOST, SUBJECT, Clock, episode, item
from tests.keys import generate_signer

ATTACKER, VICTIM = "5attacker", "5victim"
OWN_TABLES = (  # each row belongs to one validator
    "head", "record", "body", "item", "lease", "submission", "event", "weights_result", "checkpoint", "anchor", "usage",
    "nonce",
)  # fmt: skip
TABLES = {**dict.fromkeys(OWN_TABLES, "validator"), "validator": "hotkey", "alembic_version": "version_num"}

_ON_TABLES = {
    "update": "update arena.{table} set {column} = {column}",
    "delete from": "delete from arena.{table}",
    "truncate": "truncate arena.{table} cascade",
    "insert into": "insert into arena.{table} default values",
    "switch triggers off on": "alter table arena.{table} disable trigger all",
    "switch row security off on": "alter table arena.{table} disable row level security",
    "take over": "alter table arena.{table} owner to current_user",
    "hang a trigger on": "create trigger mine before insert on arena.{table}"
    " for each row execute function arena.deny()",
    "drop": "drop table arena.{table} cascade",
}

_OTHERS = {
    "detach a partition": "alter table arena.record detach partition arena.{record}",
    "add a partition": "select arena.add_day('2001-01-01')",
    "read a partition": "select * from arena.{record}",
    "read who is who": "select * from arena.validator",
    "read past row security": "set row_security = off; select * from arena.record",
    "read the passwords": "select rolpassword from pg_authid",
    "run a program": "copy (select 1) to program 'true'",
    "become the victim": "set role {victim_role}",
    "join the victim": "grant {victim_role} to current_user",
    "rise": "alter role current_user superuser",
    "end the victim's sessions": "select pg_terminate_backend(pid) from pg_stat_activity"
    " where usename = '{victim_role}'",
    "rekey the victim": "alter role {victim_role} password 'x'",
    "take another name": "insert into arena.validator values (session_user, '5victim')",
    "shadow the check": "create function pg_temp.require(text) returns void language sql as '';"
    " set search_path = pg_temp, arena; select arena.hold('5victim')",
    "drop the schema": "drop schema arena cascade",
    "act as the group": "set role arena_validator; select arena.hold('5victim')",
    "turn fences back": "select setval('arena.fence', 1)",
    "append for another": "select arena.append('5victim', 1, sha256('5victim'), array['x'::bytea],"
    " array['y'::bytea], '{{}}', '{{}}', '{{}}')",
    "end a lease past append": "select arena.end_lease('5attacker', 1, 'done', 0, false, false)",
    "fill the disk with a large object": "select lo_from_bytea(0, 'x')",
    "fill the log with messages": "select pg_logical_emit_message(false, 'x', 'y')",
    "fill the disk with a temporary table": "create temp table filler as select 1 as x",
    "anchor for another": "select arena.put_anchor('5victim', 1, '\\x00', 1)",
    "sign a state for another": "select arena.put_checkpoint('5victim', 1, 'note', 1)",
}


async def as_owner(postgres: EmbeddedServer, *statements: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(postgres.owner_dsn)
    try:
        return [await connection.fetch(statement) for statement in statements][-1]
    finally:
        await connection.close()


async def is_refused(connection: asyncpg.Connection, statement: str) -> bool:
    """True when the server refuses for want of a right; whatever the statement did is rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        return True
    finally:
        await transaction.rollback()
    return False


async def test_a_validators_role_may_not(postgres: EmbeddedServer, open_store: OpenStore) -> None:
    await open_store(VICTIM)  # whose role exists
    first = "select min(inhrelid::regclass::text) from pg_inherits where inhparent = 'arena.record'::regclass"
    day = (await as_owner(postgres, first))[0][0].removeprefix("arena.record_")  # of a partition that exists
    parts = {f"{table}_{day}": "validator" for table in ("record", "body")}
    names = {"record": f"record_{day}", "body": f"body_{day}", "victim_role": role_of(VICTIM)}
    attacks = {
        f"{what} {table}": sql.format(table=table, column=column)
        for table, column in (TABLES | parts).items()
        for what, sql in _ON_TABLES.items()
    } | {what: sql.format(**names) for what, sql in _OTHERS.items()}
    connection = await asyncpg.connect(postgres.dsn_for(ATTACKER))
    try:
        assert [what for what, statement in attacks.items() if not await is_refused(connection, statement)] == []
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


async def test_a_validators_role_reads_its_own_rows_only_and_the_owner_reads_all(
    postgres: EmbeddedServer, open_store: OpenStore
) -> None:
    first, second = await _fill(open_store), await _fill(open_store)
    connection = await asyncpg.connect(postgres.dsn_for(first.validator))
    try:
        for table in OWN_TABLES:
            seen = await connection.fetch(f"select distinct validator from arena.{table}")
            assert [row["validator"] for row in seen] == [first.validator], table
            everybody = {row["validator"] for row in await as_owner(postgres, f"select validator from arena.{table}")}
            assert {first.validator, second.validator} <= everybody, table
    finally:
        await connection.close()
    assert not await as_owner(  # a table that is added without row security
        postgres,
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'validator'"
        " where c.relnamespace = 'arena'::regnamespace and c.relkind in ('r', 'p') and not c.relrowsecurity"
        " and has_table_privilege('arena_validator', c.oid, 'select')",
    )


async def test_even_the_superuser_is_refused_while_triggers_stand(
    postgres: EmbeddedServer, open_store: OpenStore
) -> None:
    await _fill(open_store)
    # Of a day that holds rows: a trigger for each row has nothing to refuse in a partition that is empty, as the first
    # one is where the server was started before midnight.
    (filled,) = (await as_owner(postgres, "select max(tableoid::regclass::text) from arena.record"))[0]
    for statement in (
        "update arena.record set content = content",
        "truncate arena.record",
        f"delete from {filled}",
        "delete from arena.body",
        "delete from arena.head",
        "update arena.head set seq = seq",
        "delete from arena.checkpoint",
        "update arena.anchor set block = block",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
            await as_owner(postgres, statement)


async def test_a_login_is_of_one_hotkey_and_its_store_takes_no_record_of_another(open_store: OpenStore) -> None:
    store = await open_store(ATTACKER)
    with pytest.raises(ArenaError, match=r"V2022.*a record of .* in the store of 5attacker"):
        await Sequencer(store, generate_signer(), Clock(), HOST).append([episode(1)[0][0]])


@pytest.mark.parametrize("dsn", ["nonsense", "mysql://h/d", "postgresql://h:x/d"])
def test_a_dsn_that_cannot_be_read_is_refused(dsn: str) -> None:
    with pytest.raises(ArenaError, match="V2030"):
        login_dsn(dsn, "role", None)
    assert login_dsn("postgresql://u:p@h/d?sslmode=require", "r", None) == "postgresql://r@h/d?sslmode=require"


async def test_a_database_that_hung_up_is_away_and_one_without_the_schema_refused(postgres: EmbeddedServer) -> None:
    with pytest.raises(ArenaError, match="V2021"), coded_errors():
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")
    await as_owner(postgres, "create database bare")
    with pytest.raises(ArenaError, match=r"V2022.*belongs to hotkey 5attacker, not 5victim"):
        await PostgresStore.open(postgres.dsn_for(ATTACKER), VICTIM)
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
