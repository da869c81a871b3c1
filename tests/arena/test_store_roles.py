"""What a validator's role may not do, tried as that role with its password; and what nobody may do."""

from __future__ import annotations

import asyncpg
import pytest

from arena.chain.keys import generate_signer, verify
from arena.records.sequencer import Sequencer
from arena.records.verify import verify_store
from arena.store.embedded import EmbeddedServer
from arena.store.port import Lease, StoredSubmission, WeightsResult
from arena.store.postgres import PostgresStore
from arena.store.schema import SCHEMA_REVISION, migrate, role_of
from problems.errors import ArenaError
from tests.arena.conftest import OpenStore
from tests.arena.log_stand import HOST, SUBJECT, Clock, attempt, episode, item

ATTACKS = {
    "update a record": "update arena.record set content = ''",
    "update a body": "update arena.body set content = ''",
    "delete a record": "delete from arena.record",
    "delete a body": "delete from arena.body",
    "truncate the log": "truncate arena.record",
    "truncate a partition": "truncate arena.{record}",
    "delete in a partition": "delete from arena.{record}",
    "insert past the function": "insert into arena.record select * from arena.record",
    "move the head": "update arena.head set seq = 0",
    "delete the head": "delete from arena.head",
    "finish a lease": "update arena.lease set state = 'done'",
    "take another name": "insert into arena.validator values (session_user, '5victim')",
    "switch triggers off": "alter table arena.record disable trigger all",
    "become a replica": "set session_replication_role = replica",
    "drop a partition": "drop table arena.{record}",
    "detach a partition": "alter table arena.record detach partition arena.{record}",
    "add a partition": "select arena.add_day('2001-01-01')",
    "replace a trigger": "create or replace function arena.deny() returns trigger language plpgsql"
    " as 'begin return new; end'",
    "become the owner": "set role arena_owner",
    "become the superuser": "set role postgres",
    "speak as another": "set session authorization postgres",
    "make a table": "create table arena.mine (x int)",
    "read the passwords": "select rolpassword from pg_authid",
    "claim for another": "select arena.claim('5victim', '{{race}}', 1, 1000)",
    "enqueue for another": "select arena.enqueue('5victim', '{{i}}', '{{race}}', '{{r}}', '{{a}}', '{{x}}')",
    "renew for another": "select arena.renew('5victim', 1, 1000)",
    "close for another": "select arena.close_items('5victim', 'r', 'race', '')",
    "hold another's hotkey": "select arena.hold('5victim')",
    "an event for another": "select arena.put_event('5victim', 's', 0, 'e')",
    "a submission for another": "select arena.put_submission('5victim', 'a', 'm', 's', 0, '', 'n'::bytea, 's'::bytea,"
    " 'queued', 0, '')",
    "a verdict on another's submission": "select arena.set_submission_state('5victim', 'a', 'rejected', '')",
    "weights for another": "select arena.put_weights_result('5victim', 'r', 1, '{{}}', '{{}}', 'ok', '')",
    "append for another": "select arena.append('5victim', 1, sha256('5victim'), array['x'::bytea],"
    " array['y'::bytea], '{{}}', '{{}}', '{{}}')",
    "append for nobody": "select arena.append(null, 1, null, null, null, null, null, null)",
    "end a lease past append": "select arena.end_lease('5attacker', 1, 'done', 0, false, false)",
}


async def as_owner(postgres: EmbeddedServer, *statements: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(postgres.owner_dsn)
    try:
        return [await connection.fetch(statement) for statement in statements][-1]
    finally:
        await connection.close()


async def partition(postgres: EmbeddedServer) -> str:
    return (await as_owner(postgres, "select 'record_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')"))[0][0]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_validators_role_may_not(attack: str, postgres: EmbeddedServer) -> None:
    connection = await asyncpg.connect(postgres.dsn_for("5attacker"))
    statement = ATTACKS[attack].format(record=await partition(postgres))
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_a_role_is_the_login_and_not_a_name_the_client_gives(postgres: EmbeddedServer) -> None:
    with pytest.raises(ArenaError, match="V2022"):
        await PostgresStore.open(postgres.dsn_for("5attacker"), "5victim")
    assert (await PostgresStore.open(postgres.dsn_for("5attacker"))).validator == "5attacker"


async def test_a_lease_of_another_validator_can_not_be_ended(open_store: OpenStore) -> None:
    signer = generate_signer()
    victim, attacker = await open_store("5victim"), await open_store(signer.hotkey)
    await victim.enqueue([item(1, "roles")])
    leases = await victim.claim(50, 60_000)
    stolen = [Lease(item=held.item, validator=signer.hotkey, fence=held.fence, expires_ms=0) for held in leases]
    sequencer = Sequencer(attacker, signer, Clock(), HOST)
    for lease in stolen:
        with pytest.raises(ArenaError, match="V2022"):
            await sequencer.append([attempt(1)], finish=lease)
        with pytest.raises(ArenaError, match="V2022"):
            await sequencer.abandon(lease, attempt(1))
        assert await victim.renew(lease, 60_000) is not None
    assert (await attacker.head()).seq == 0


OWN_TABLES = ("head", "record", "body", "item", "lease", "submission", "event", "weights_result")


async def _fill(open_store: OpenStore) -> PostgresStore:
    """A validator with something in every table."""
    signer = generate_signer()
    store = await open_store(signer.hotkey)
    payloads, body = episode(1)
    await Sequencer(store, signer, Clock(), HOST).append(payloads, [body])
    await store.enqueue([item(1, "rls")])
    await store.claim(1, 60_000)
    await store.put_submission(
        StoredSubmission(subject=SUBJECT, name="n", state="queued", submitted_block=1), "secret = 1"
    )
    await store.put_event("race", 0, "{}")
    await store.put_weights_result(WeightsResult(race_id="r", block=1, uids=(), weights_u16=(), status="ok"))
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


@pytest.mark.parametrize("table", ["{record}", "{body}", "validator"])
async def test_what_row_security_does_not_cover_is_not_readable_at_all(table: str, postgres: EmbeddedServer) -> None:
    record = await partition(postgres)
    name = table.format(record=record, body=record.replace("record", "body"))
    connection = await asyncpg.connect(postgres.dsn_for("5attacker"))
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch(f"select * from arena.{name}")
    finally:
        await connection.close()


async def test_every_table_with_a_validator_in_it_has_row_security(postgres: EmbeddedServer) -> None:
    open_tables = await as_owner(
        postgres,
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'validator'"
        " where c.relnamespace = 'arena'::regnamespace and c.relkind in ('r', 'p') and not c.relrowsecurity"
        " and has_table_privilege('arena_validator', c.oid, 'select')",
    )
    assert open_tables == []


async def test_a_validator_sees_no_log_body_or_source_of_another_through_its_store(open_store: OpenStore) -> None:
    victim, curious = await _fill(open_store), await _fill(open_store)
    _, body = episode(1)
    assert await curious.validators() == [curious.validator]
    assert (await curious.head(victim.validator)).seq == 0
    assert [record async for record in curious.records(victim.validator)] == []
    assert {record.validator async for record in curious.records()} == {curious.validator}
    assert await curious.body(body.body_sha256, victim.validator) is None
    assert len(await curious.submissions()) == 1
    report = await verify_store(curious, verify)
    assert (report.is_ok, [log.checkpoint.validator for log in report.logs]) == (True, [curious.validator])


async def test_the_owner_verifies_every_log_with_each_validators_own_bodies(
    postgres: EmbeddedServer, open_store: OpenStore
) -> None:
    filled = {(await _fill(open_store)).validator for _ in range(2)}
    reader = await PostgresStore.open(postgres.owner_dsn)
    try:
        logs = {name for name in await reader.validators() if name in filled}
        bodies = [await reader.body(episode(1)[1].body_sha256, name) for name in sorted(filled)]
    finally:
        await reader.close()
    assert (logs, bodies) == (filled, [episode(1)[1]] * 2)


@pytest.mark.parametrize(
    "statement",
    [
        "update arena.record set content = content",
        "delete from arena.record",
        "truncate arena.record",
        "truncate arena.{record}",
        "delete from arena.{record}",
        "update arena.body set size = size",
        "delete from arena.body",
        "truncate arena.body",
        "delete from arena.head",
        "truncate arena.head",
        "update arena.head set seq = seq",
    ],
)
async def test_even_the_superuser_is_refused_while_triggers_stand(
    statement: str, postgres: EmbeddedServer, open_store: OpenStore
) -> None:
    signer = generate_signer()
    sequencer = Sequencer(await open_store(signer.hotkey), signer, Clock(), HOST)
    payloads, body = episode(1)
    await sequencer.append(payloads, [body])
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await as_owner(postgres, statement.format(record=await partition(postgres)))


async def test_the_superuser_can_not_append_for_a_validator(postgres: EmbeddedServer) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await as_owner(postgres, ATTACKS["append for another"].format())


async def test_an_append_after_a_long_sleep_makes_its_own_partitions(
    postgres: EmbeddedServer, open_store: OpenStore
) -> None:
    signer = generate_signer()
    store = await open_store(signer.hotkey)
    names = await as_owner(
        postgres, "select inhrelid::regclass::text from pg_inherits where inhparent = 'arena.body'::regclass order by 1"
    )
    ahead = [row[0] for row in names][1:]  # today's may hold rows of other tests
    assert len(ahead) == 7
    await as_owner(
        postgres,
        *(f"drop table {name}" for name in ahead),
        *(f"drop table {name.replace('body', 'record')}" for name in ahead),
    )
    await Sequencer(store, signer, Clock(), HOST).append([attempt(1)])
    made = await as_owner(postgres, "select count(*) from pg_inherits where inhparent = 'arena.record'::regclass")
    assert made[0][0] == 8


async def test_partitions_made_by_an_append_are_guarded_and_readable(postgres: EmbeddedServer) -> None:
    await as_owner(postgres, "set role arena_owner", "select arena.add_day('2031-05-05')")
    for table in ("record_20310505", "body_20310505"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
            await as_owner(postgres, f"truncate arena.{table}")
        await as_owner(postgres, f"drop table arena.{table}")


async def test_migrating_again_changes_nothing(postgres: EmbeddedServer) -> None:
    assert migrate(postgres.owner_dsn) == SCHEMA_REVISION


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
    finally:
        await as_owner(postgres, f"update arena.alembic_version set version_num = '{SCHEMA_REVISION}'")


async def test_passwords_reach_the_server_as_verifiers_only(postgres: EmbeddedServer) -> None:
    password = postgres.dsn_for("5secret").split(":")[2].split("@")[0]
    stored = await as_owner(postgres, f"select rolpassword from pg_authid where rolname = '{role_of('5secret')}'")
    assert stored[0][0].startswith("SCRAM-SHA-256$")
    assert password not in postgres.log.read_text()


def test_the_code_needs_the_newest_revision_there_is() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "arena.store:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == SCHEMA_REVISION
