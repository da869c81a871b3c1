"""What a superuser who switched the triggers off did to a log in Postgres is found, and the record named."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

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
    ("record", "archive_sha256"),  # null here; of an archived record: test_store_archive
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


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("delete from arena.record where {log} and seq = 4", 5),
        ("delete from arena.record where {log}", 1),
        ("update arena.record set seq = 20 - seq where {log} and seq in (9, 11)", 11),
        ("update arena.record r set prev = o.prev, sha256 = o.sha256, signature = o.signature, content = o.content"
         " from arena.record o where r.{log} and o.{log} and r.seq in (4, 5) and o.seq = 9 - r.seq", 4),
        ("update arena.record set content = substring(content from 1 for length(content) - 1) where {log}", 1),
        ("update arena.record r set content = (select content from arena.record o where o.{log} and o.seq = 2)"
         " where r.{log} and r.seq = 5", 5),
        ("delete from arena.body where {log}", 3),
        ("update arena.body set content = substring(content from 1 for length(content) - 1) where {log}", 3),
        ("update arena.body set size = size + 1 where {log}", 3),
        ("update arena.head set seq = seq - 1 where {log}", 10),
        ("delete from arena.head where {log}", 10),
        ("update arena.checkpoint set note = replace(note, E'\\n9\\n', E'\\n8\\n') where {log}", 9),
    ],
)  # fmt: skip
async def test_a_dropped_moved_swapped_cut_or_replaced_row_is_found_and_named(store, harm, statement, named):
    await harm(statement)
    report = await report_of(store)
    assert not report.is_ok
    assert report.defects[0].seq == named


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


@pytest.mark.parametrize("left", ["record", "checkpoint"])
async def test_a_log_whose_head_is_gone_is_found_by_its_validator_and_by_the_owner(store, owner, harm, left):
    gone = {"record": "checkpoint", "checkpoint": "record"}[left]
    await harm("delete from arena.head where {log}", f"delete from arena.{gone} where {{log}}")
    for reader in (store, owner):
        assert store.validator in await reader.validators()
        assert store.validator in {defect.validator for defect in (await report_of(reader)).defects}


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
