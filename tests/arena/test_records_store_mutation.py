"""What a superuser who switched the triggers off did to a log in Postgres is found, and the record named."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import asyncpg
import pytest

from arena.chain.keys import verify
from arena.chain.port import Signer
from arena.records.log import sign_checkpoint
from arena.records.model import StoredCheckpoint
from arena.records.sequencer import Sequencer
from arena.records.verification import VerifyReport, verify_store
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from tests.arena.conftest import OpenStore, running_server
from tests.arena.log_stand import HOST, START_MS, Clock, attempt, episode, release, settlement
from tests.arena.test_store_roles import as_owner

EVIDENCE = ("head", "record", "body", "checkpoint", "anchor")
# What no signature covers: when the server stored a row, which decides nothing, and what the chain alone answers for.
UNSIGNED = {
    ("record", "appended_at"),
    ("body", "day"),
    ("checkpoint", "signed_ms"),
    ("checkpoint", "put_at"),
    ("anchor", "block"),
    ("anchor", "put_at"),
}
CHANGED = {
    "bytea": "set_byte({column}, 7, get_byte({column}, 7) # 1)",
    "text": "{column} || 'x'",
    "bigint": "{column} + 100",
    "integer": "{column} + 100",
    "date": "{column} + 3",
    "timestamp with time zone": "{column} + interval '1 millisecond'",
}
PAGE = 500
PLACES_PER_COLUMN = 6
RECORDS = 9  # an attempt, two episodes, settlement, release
Harm = Callable[..., Awaitable[object]]


@pytest.fixture(scope="module")
def postgres() -> Iterator[EmbeddedServer]:
    """A server of this file alone: its owner reads every log there is, and none may be another test's."""
    with running_server() as server:
        yield server


@pytest.fixture
async def store(open_store: OpenStore, signer: Signer) -> PostgresStore:
    """The store of a hotkey of its own, with every kind of record and a checkpoint."""
    store = await open_store(signer.hotkey)
    sequencer = Sequencer(store, signer, Clock(), HOST)
    await sequencer.append([attempt(0)])
    for problem in (1, 2):
        payloads, body = episode(problem)
        await sequencer.append(payloads, [body])
    await sequencer.append([settlement(), release("r1", [1, 2])])
    point = (await verify_store(store, verify)).logs[0].checkpoint
    note = sign_checkpoint(point, signer)
    await store.put_checkpoint(
        StoredCheckpoint(validator=signer.hotkey, size=point.size, note=note, signed_ms=START_MS)
    )
    return store


@pytest.fixture
async def owner(postgres: EmbeddedServer) -> AsyncIterator[PostgresStore]:
    """The store as its owner reads it: every log of the server."""
    store = await PostgresStore.open(postgres.owner_dsn)
    yield store
    await store.close()


@pytest.fixture
def harm(postgres: EmbeddedServer, signer: Signer) -> Harm:
    """Runs statements about this log as the superuser, without triggers; `{log}` picks its rows."""

    async def run(*statements: str) -> object:
        own = [statement.format(log=f"validator = '{signer.hotkey}'") for statement in statements]
        return await as_owner(postgres, "set session_replication_role = replica", *own)

    return run


async def report_of(store: PostgresStore) -> VerifyReport:
    return await verify_store(store, verify)


@pytest.mark.parametrize("column", ["content", "prev", "sha256", "signature"])
async def test_a_changed_byte_of_any_record_is_found_and_the_record_named(store, harm, column):
    rng = random.Random(column)
    for _ in range(PLACES_PER_COLUMN):
        seq, bit, where = rng.randint(1, RECORDS), 1 << rng.randrange(8), rng.random()
        place = f"floor({where} * length({column}))::int"
        flip = (
            f"update arena.record set {column} = set_byte({column}, {place}, get_byte({column}, {place}) # {bit})"
            f" where {{log}} and seq = {seq}"
        )
        await harm(flip)
        assert seq in {defect.seq for defect in (await report_of(store)).defects}, (seq, where)
        await harm(flip)
    assert (await report_of(store)).is_ok


async def test_a_changed_byte_of_any_body_is_found_and_its_evaluation_named(store, harm):
    rng = random.Random(3)
    for _ in range(PLACES_PER_COLUMN):
        place = f"5 + floor({rng.random()} * (length(content) - 5))::int"  # behind the frame's header
        await harm(
            "create table public.kept as select * from arena.body where {log}",
            f"update arena.body set content = set_byte(content, {place}, get_byte(content, {place}) # 1) where {{log}}",
        )
        assert [(defect.rule, defect.seq) for defect in (await report_of(store)).defects] == [("body", 3), ("body", 6)]
        await harm(
            "update arena.body b set content = k.content from public.kept k"
            " where b.validator = k.validator and b.sha256 = k.sha256",
            "drop table public.kept",
        )
    assert (await report_of(store)).is_ok


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("delete from arena.record where {log} and seq = 4", 5),
        ("delete from arena.record where {log} and seq = 1", 2),
        ("delete from arena.record where {log} and seq = 9", 9),
        ("delete from arena.record where {log}", 1),
        ("update arena.record set seq = 20 - seq where {log} and seq in (9, 11)", 11),
        ("update arena.record r set prev = o.prev, sha256 = o.sha256, signature = o.signature, content = o.content"
         " from arena.record o where r.{log} and o.{log} and r.seq in (4, 5) and o.seq = 9 - r.seq", 4),
        ("update arena.record set content = substring(content from 1 for length(content) - 1) where {log}", 1),
        ("update arena.record set content = '' where {log} and seq = 8", 8),
        ("update arena.record r set content = (select content from arena.record o where o.{log} and o.seq = 2)"
         " where r.{log} and r.seq = 5", 5),
        ("delete from arena.body where {log}", 3),
        ("update arena.body set content = substring(content from 1 for length(content) - 1) where {log}", 3),
        ("update arena.body set size = size + 1 where {log}", 3),
        ("update arena.head set seq = seq - 1 where {log}", 10),
        ("update arena.head set hash = sha256(hash) where {log}", 10),
        ("delete from arena.head where {log}", 10),
        ("update arena.checkpoint set note = replace(note, E'\\n9\\n', E'\\n8\\n') where {log}", 9),
    ],
)  # fmt: skip
async def test_a_dropped_moved_swapped_cut_or_replaced_row_is_found_and_named(store, harm, statement, named):
    await harm(statement)
    report = await report_of(store)
    assert not report.is_ok
    assert report.defects[0].seq == named


async def test_a_doubled_row_is_found_and_named(store, harm):
    columns = "validator, seq, appended_at, kind, race_id, body_sha256, prev, sha256, signature, content"
    await harm(
        f"insert into arena.record (day, {columns}) select day + 3, {columns} from arena.record"
        " where {log} and seq = 4"
    )
    found = [(defect.rule, defect.seq) for defect in (await report_of(store)).defects]
    assert found[:2] == [("filing", 4), ("sequence", 4)]  # it is in another day's partition than it arrived on


async def test_a_change_of_any_column_that_holds_evidence_is_found_by_the_owner(
    store: PostgresStore, owner: PostgresStore, harm: Harm
) -> None:
    (point,) = await store.checkpoints()
    await store.put_anchor(point.size, hashlib.sha256(point.note.encode()).hexdigest(), 70)
    columns = await harm(
        "select table_name, column_name, data_type from information_schema.columns where table_schema = 'arena'"
        f" and table_name in {EVIDENCE} order by 1, 2"
    )
    unseen = set()
    for table, column, kind in columns:
        one = f"ctid in (select ctid from arena.{table} where {{log}} and {column} is not null limit 1)"
        await harm(
            f"create table public.kept as select * from arena.{table} where {{log}}",
            f"update arena.{table} set {column} = {CHANGED[kind].format(column=column)} where {one}",
        )
        if (await report_of(store)).is_ok:  # what went to another's name, only the owner can see
            defects = (await report_of(owner)).defects
            if not any(defect.validator.startswith(store.validator) for defect in defects):
                unseen.add((table, column))
        await harm(
            f"delete from arena.{table} where {{log}} or validator like '{store.validator}%'",
            f"insert into arena.{table} select * from public.kept",
            "drop table public.kept",
        )
    assert unseen == UNSIGNED
    assert (await report_of(store)).is_ok


BYTES = {
    "record": ("content", "prev", "sha256", "signature", "body_sha256"),
    "body": ("content", "sha256"),
    "head": ("hash",),
    "anchor": ("note_sha256",),
}


@pytest.mark.prove
async def test_each_byte_of_each_row_is_found_when_it_is_changed(
    store: PostgresStore, postgres: EmbeddedServer
) -> None:
    (point,) = await store.checkpoints()
    await store.put_anchor(point.size, hashlib.sha256(point.note.encode()).hexdigest(), 70)
    names = [episode(problem)[1].body_sha256 for problem in (1, 2)]
    whole, changed = await store.bodies(names), 0
    connection = await asyncpg.connect(postgres.owner_dsn)
    await connection.execute("set session_replication_role = replica")
    for table, column in ((table, column) for table, columns in BYTES.items() for column in columns):
        put = (
            f"update arena.{table} set {column} = $1 where validator = $2 and ctid = $3::text::tid returning ctid::text"
        )
        rows = f"select ctid::text, {column} from arena.{table} where validator = $1 and {column} is not null"
        for at, value in await connection.fetch(rows, store.validator):
            for place in range(len(value)):
                other = value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
                at = await connection.fetchval(put, other, store.validator, at)
                is_found = not (await report_of(store)).is_ok
                # a frame has bits that say nothing: what comes out of it is the same
                assert is_found or (table == "body" and await store.bodies(names) == whole), (table, column, place)
                changed += 1
            await connection.fetchval(put, value, store.validator, at)
    await connection.close()
    assert changed > 5_000
    assert (await report_of(store)).is_ok


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("kind = 'attempt' where {log} and seq = 9", 9),
        ("race_id = 'r2' where {log} and seq = 8", 8),
        ("race_id = '' where {log} and seq = 2", 2),
        ("body_sha256 = sha256(body_sha256) where {log} and seq = 4", 4),
        ("body_sha256 = null where {log} and seq = 7", 7),
        ("body_sha256 = sha256('') where {log} and seq = 1", 1),
        ("day = day + 2 where {log} and seq = 5", 5),
    ],
)
async def test_a_record_that_is_filed_otherwise_than_it_says_is_found_and_named(store, harm, change, named):
    await harm(f"update arena.record set {change}")
    assert [(defect.rule, defect.seq) for defect in (await report_of(store)).defects] == [("filing", named)]


@pytest.mark.parametrize("left", ["record", "checkpoint"])
async def test_a_log_whose_head_is_gone_is_found_by_its_validator_and_by_the_owner(store, owner, harm, left):
    gone = {"record": "checkpoint", "checkpoint": "record"}[left]
    await harm("delete from arena.head where {log}", f"delete from arena.{gone} where {{log}}")
    for reader in (store, owner):
        assert store.validator in await reader.validators()
        assert store.validator in {status.validator for status in await reader.statuses()}
        assert store.validator in {defect.validator for defect in (await report_of(reader)).defects}


async def test_a_checkpoint_that_only_its_anchor_still_names_is_found(store, harm):
    (point,) = await store.checkpoints()
    await store.put_anchor(point.size, hashlib.sha256(point.note.encode()).hexdigest(), 70)
    assert (await report_of(store)).is_ok
    await harm("delete from arena.checkpoint where {log}")
    report = await report_of(store)
    assert [(defect.rule, defect.seq) for defect in report.defects] == [("checkpoint", RECORDS)]


@pytest.mark.parametrize("which", ["min", "max"])
async def test_a_changed_copy_of_a_body_that_was_stored_on_two_days_is_found(store, harm, which):
    columns = "validator, sha256, size, content"
    await harm(f"insert into arena.body (day, {columns}) select day + 1, {columns} from arena.body where {{log}}")
    assert (await report_of(store)).is_ok
    for there, back in (
        ("content = set_byte(content, 20, get_byte(content, 20) # 1)",) * 2,
        ("size = size + 1", "size = size - 1"),
    ):
        one_day = f" where {{log}} and day = (select {which}(day) from arena.body where {{log}})"
        await harm(f"update arena.body set {there}{one_day}")
        assert [(defect.rule, defect.seq) for defect in (await report_of(store)).defects] == [("body", 3), ("body", 6)]
        await harm(f"update arena.body set {back}{one_day}")
        assert (await report_of(store)).is_ok


async def test_a_doubled_row_at_the_end_of_a_page_is_found_in_full_and_as_a_leaf(open_store, harm, signer, monkeypatch):
    store = await open_store(signer.hotkey)
    await Sequencer(store, signer, Clock(), HOST).append([attempt(number) for number in range(PAGE + 1)])
    point = (await verify_store(store, verify)).logs[0].checkpoint
    columns = "validator, seq, appended_at, kind, race_id, body_sha256, prev, sha256, signature, content"
    await harm(
        f"insert into arena.record (day, {columns}) select day + 3, {columns} from arena.record"
        f" where {{log}} and seq = {PAGE}"
    )
    assert (await report_of(store)).defects[0].seq == PAGE
    monkeypatch.setattr("arena.store.postgres.LEAVES_PER_PAGE", PAGE)
    report = await verify_store(store, verify, since=[point])
    assert report.leaves == PAGE + 2
    assert report.defects[0].seq == PAGE
