"""What a superuser who switched the triggers off did to a log in Postgres is found, and the record named."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from arena.chain.keys import verify
from arena.chain.port import Signer
from arena.records.checkpoint import sign_checkpoint
from arena.records.report import VerifyReport
from arena.records.sequencer import Sequencer
from arena.records.verify import verify_store
from arena.store.embedded import EmbeddedServer
from arena.store.port import StoredCheckpoint
from arena.store.postgres import PostgresStore
from tests.arena.conftest import OpenStore
from tests.arena.log_stand import HOST, START_MS, Clock, attempt, episode, release, settlement
from tests.arena.test_store_roles import as_owner

PLACES_PER_COLUMN = 6
RECORDS = 9  # an attempt, two episodes, settlement, release
Harm = Callable[..., Awaitable[object]]


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
        f"insert into arena.record (day, {columns}) select day + 1, {columns} from arena.record"
        " where {log} and seq = 4"
    )
    report = await report_of(store)
    assert [(defect.rule, defect.seq) for defect in report.defects][:1] == [("sequence", 4)]
