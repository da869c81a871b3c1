"""Verification finds every tampering it promises to find, and names the first record concerned."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from copy import copy
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Commitment, Signer
from arena.records import log as logs
from arena.records import model, verification
from arena.records.inspection import RecordFinding, inspect
from arena.records.port import StoredSource
from arena.records.sequencer import Sequencer
from arena.records.verification import BATCH, LogCheck, VerifyReport, verify_store
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from arena.submissions.submission import make_submission
from foundation.errors import ArenaError, Failure
from foundation.executors import ProcessExecutor
from harness.trace import Totals
from tests.arena import log_stand
from tests.arena.conftest import OpenStore, running_server
from tests.arena.test_store_roles import as_owner

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")
replace = msgspec.structs.replace
Part = tuple[list[model.Payload], model.StoredBody] | model.Payload


def log_of(*parts: Part) -> log_stand.MemoryLog:
    """A log of these records, and episodes with their bodies."""
    log = log_stand.MemoryLog(ALICE.hotkey)

    async def fill() -> None:
        sequencer = Sequencer(log, ALICE, log_stand.Clock(), log_stand.HOST)
        for part in parts:
            payloads, bodies = (part[0], [part[1]]) if isinstance(part, tuple) else ([part], [])
            await sequencer.append(payloads, bodies)

    asyncio.run(fill())
    return log


def check(log: log_stand.MemoryLog, **options: object) -> VerifyReport:
    return asyncio.run(verify_store(log, verify, **options))


def defects(*parts: Part) -> list[tuple[str, int]]:
    """(rule, seq) of what verification says about a log of these parts."""
    return [(defect.rule, defect.seq) for defect in check(log_of(*parts)).defects]


@cache
def good_log() -> log_stand.MemoryLog:
    """Every kind of record, in one valid log."""
    return log_of(
        log_stand.attempt(0),
        log_stand.episode(1),
        log_stand.episode(2),
        log_stand.gate(1),
        log_stand.settlement(),
        log_stand.release(),
    )


def test_a_whole_log_verifies_and_is_counted() -> None:
    log, report = good_log(), check(good_log())
    assert report.is_ok, report.defects
    assert report.kinds == {"attempt": 3, "evaluation": 2, "gate": 1, "release": 1, "settlement": 1, "verdict": 2}
    assert (report.records, report.bodies, report.logs[0].head) == (10, 2, log.end)


@given(st.data())
def test_any_flipped_byte_of_content_signature_or_prev_names_its_record(data: st.DataObject) -> None:
    log = good_log()
    place = data.draw(st.integers(0, len(log.log) - 1))
    field = data.draw(st.sampled_from(["content", "signature", "prev", "content_sha256"]))
    record = log.log[place]
    value = getattr(record, field)
    raw = bytearray(value if field == "content" else bytes.fromhex(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = copy(log)
    damaged.log = list(log.log)
    damaged.log[place] = replace(record, **{field: bytes(raw) if field == "content" else raw.hex()})
    report = check(damaged)
    assert (report.defects[0].validator, report.defects[0].seq) == (ALICE.hotkey, record.seq)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("stop", "steps"),
        ("failure", Failure(code="A1024")),
        ("is_agentic", False),
        ("totals", Totals(steps=9)),
        ("subject", model.Subject(agent_version_id="a1" * 32, miner_hotkey="5miner", agent_sha256="00" * 32)),
        ("context", log_stand.context(2)),
        ("conditions", replace(log_stand.CONDITIONS, policy_sha256="00")),
    ],
)
def test_a_fact_of_an_evaluation_that_its_body_contradicts_is_found(fact: str, value: object) -> None:
    (made, evaluation, verdict), body = log_stand.episode(1)
    assert defects(([made, replace(evaluation, **{fact: value}), verdict], body)) == [("body", 2)]


def test_what_records_refer_to_stands_in_the_same_log_and_counts_once() -> None:
    (made, evaluation, verdict), body = log_stand.episode(1)
    assert defects(made, log_stand.attempt(2, ended="faulted")) == [("evaluation", 1)]
    assert defects(([made, evaluation, replace(made, attempt_id="another:1")], body)) == [("evaluation", 3)]
    assert defects(([evaluation, verdict], body)) == [("attempt", 1)]
    assert defects(verdict) == [("verdict", 1)]
    first, again = log_stand.episode(1, attempt_id="i:1"), log_stand.episode(1, attempt_id="i:2")
    assert defects(first, again) == [("double", 5)]
    other = replace(again[0][1], conditions=replace(log_stand.CONDITIONS, policy_sha256="00"))
    assert ("double", 5) not in defects(first, ([again[0][0], other, again[0][2]], again[1]))  # qualifies anew
    unscored = replace(evaluation, outcome=model.UnscoredOutcome(failure=Failure(code="V2040")))
    assert defects(([made, unscored], body), again) == []


def test_a_persons_word_on_a_submission_stands_after_one_of_the_gate() -> None:
    held, person = log_stand.gate(1), log_stand.gate(1, decided_by="person", outcome="accept")
    other = replace(held, subject=replace(held.subject, commitment_block=8))
    assert defects(held, person, log_stand.gate(2), person) == []
    assert (defects(person, held), defects(other, person)) == ([("gate", 1)], [("gate", 2)])


def test_a_checkpoint_survives_its_text_and_any_change_of_the_text_is_refused() -> None:
    point = logs.Checkpoint(validator=ALICE.hotkey, size=1, root="ab" * 32)
    note = logs.sign_checkpoint(point, ALICE)
    assert note.startswith(f"agent-arena/log/1/{ALICE.hotkey}\n1\n")
    assert logs.read_checkpoint(note, verify) == point
    changes = [note.replace("\n1\n", "\n2\n"), note.replace("\n1\n", "\n01\n"), note.split("\n\n")[0], "", note[:-4]]
    changes.append(note.replace(ALICE.hotkey, BOB.hotkey))
    changes += [note.replace("\n1\n", "\n-1\n"), note.rstrip("\n"), note[:-1] + "\x85", note[:-4] + "!!!\n"]
    assert logs.read_checkpoint(note.replace("\n\n", "\n\n— another.log AAAA\n"), verify) == point
    for changed in changes:
        with pytest.raises(ArenaError, match="V2050"):
            logs.read_checkpoint(changed, verify)


def test_a_record_that_does_not_come_next_is_not_followed() -> None:
    with pytest.raises(ArenaError, match=r"V2050.*record 1 was expected here, 2 came"):
        logs.LogWalk(logs.LogStart(validator=ALICE.hotkey)).follow(good_log().log[1])


# -- what the records of one race say about each other

SALT, BATCH_SHA256 = "99" * 32, "77" * 32
CLUSTERS = {"p0001": "cluster-a", "p0002": "cluster-b", "p0003": "cluster-c"}
PROBLEMS = tuple(model.ReleasedProblem(problem_id=name, pool="train", cluster_id=of) for name, of in CLUSTERS.items())
SETTLED = replace(log_stand.settlement(), batch_sha256=BATCH_SHA256, drawn=("p0001", "p0002"))
RELEASED = replace(log_stand.release(), batch_sha256=BATCH_SHA256, problems=PROBLEMS, salt=SALT)


def run(problem: int, **changes: object) -> tuple[list[model.Payload], model.StoredBody]:
    """An episode's records in a race's context: batch named, cluster committed to."""
    problem_id = f"p{problem:04d}"
    commitment = logs.cluster_commitment(SALT, problem_id, CLUSTERS[problem_id])
    sealed = model.Context(
        stage="race", race_id="r1", problem_id=problem_id, batch_sha256=BATCH_SHA256, cluster_commitment=commitment
    )
    payloads, body = log_stand.episode(problem)
    return [replace(payload, context=replace(sealed, **changes)) for payload in payloads], body


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ((run(1), run(2), SETTLED, RELEASED), []),
        ((run(1), SETTLED, SETTLED), [("settlement", 5)]),
        ((SETTLED, replace(SETTLED, race_id="r2")), []),
        ((run(1), run(2, batch_sha256="00" * 32), SETTLED), [("settlement", 4)]),
        ((run(1), run(3), SETTLED), [("settlement", 4)]),
        ((run(1), run(3), replace(SETTLED, state="cancelled", drawn=())), []),
        ((run(1), replace(SETTLED, uids=(0,))), [("settlement", 4)]),
        ((run(1), replace(SETTLED, void=("p0003",))), [("settlement", 4)]),
        ((run(1), RELEASED, RELEASED), [("release", 5)]),
        ((run(1), replace(RELEASED, salt="98" * 32)), [("release", 1)]),
        ((run(1), replace(RELEASED, salt="zz" * 32)), [("release", 4)]),
        ((run(1), replace(RELEASED, problems=PROBLEMS[1:])), [("release", 1)]),
        ((SETTLED, replace(RELEASED, problems=PROBLEMS[1:])), [("release", 2)]),
        ((run(1), replace(RELEASED, batch_sha256="00" * 32)), [("release", 1)]),
        ((SETTLED, replace(RELEASED, batch_sha256="00" * 32)), [("release", 2)]),
    ],
)
def test_the_records_of_a_race_agree(parts: tuple[Part, ...], found: list[tuple[str, int]]) -> None:
    assert defects(*parts) == found


# -- signed states, and where the chain holds them


def point_at(size: int) -> logs.Checkpoint:
    log = copy(good_log())
    log.log, log.end = log.log[:size], logs.head_after(log.log[size - 1])
    return check(log).logs[0].checkpoint


def signed(size: int, anchor_block: int = 0) -> model.StoredCheckpoint:
    note = logs.sign_checkpoint(point_at(size), ALICE)
    return model.StoredCheckpoint(validator=ALICE.hotkey, size=size, note=note, signed_ms=1, anchor_block=anchor_block)


class OneSlot:
    """The part of a chain that verification asks: one commitment."""

    def __init__(self, held: Commitment | None) -> None:
        self.held = held
        self.asked: list[tuple[str, int | None]] = []

    async def commitment(self, hotkey: str, block: int | None = None) -> Commitment | None:
        self.asked.append((hotkey, block))
        return self.held


def test_stored_checkpoints_are_compared_and_one_that_is_not_its_validators_is_a_defect() -> None:
    log = copy(good_log())
    log.signed = [signed(size) for size in (1, 4, 9)]
    assert (check(log).is_ok, check(log).checkpoints, check(log).anchors) == (True, 3, 0)
    wrong_root = logs.sign_checkpoint(replace(point_at(4), root="00" * 32), ALICE)
    foreign = logs.sign_checkpoint(logs.Checkpoint(validator=BOB.hotkey, size=4, root="00" * 32), BOB)
    for note in (wrong_root, foreign, log.signed[0].note, log.signed[1].note.replace("\n4\n", "\n5\n"), ""):
        log.signed[1] = replace(log.signed[1], note=note)
        assert [(defect.rule, defect.seq) for defect in check(log).defects] == [("checkpoint", 4)]


def test_anchors_are_listed_without_a_chain_and_compared_with_one() -> None:
    log = copy(good_log())
    log.signed = [signed(4, anchor_block=70), signed(9)]
    assert (check(log).anchors, check(log).anchors_checked) == (1, 0)
    held = Commitment(hotkey=ALICE.hotkey, sha256=logs.note_sha256(log.signed[0].note), block=70)
    chain = OneSlot(held)
    report = check(log, subtensor=chain)
    assert (report.is_ok, report.anchors_checked, chain.asked) == (True, 1, [(ALICE.hotkey, 70)])
    for other in (None, replace(held, sha256="00" * 32), replace(held, hotkey=BOB.hotkey), replace(held, block=71)):
        report = check(log, subtensor=OneSlot(other))
        assert [(defect.rule, defect.seq) for defect in report.defects] == [("anchor", 4)]
    with pytest.raises(ArenaError, match=r"V2050.*checkpoint 5 holds the note of .* 4"):
        logs.require_anchor(replace(log.signed[0], size=5), held, verify)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": 0},
        {"seq": 2**70},
        {"prev": "AB" * 32},
        {"content_sha256": "zz" * 32},
        {"signature": "00" * 63},
        {"validator": "5é"},
    ],
)
def test_an_envelope_that_is_none_is_a_defect_and_not_an_exception(wrong: dict[str, object]) -> None:
    packed = msgspec.msgpack.encode(inspect(replace(log_stand.filed(good_log().log[0]), **wrong), verify))
    assert [rule for rule, _ in msgspec.msgpack.decode(packed, type=RecordFinding).faults] == ["envelope"]


# -- the agents' files beside the logs


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": b"x = 2"},
        {"source": b""},
        {"agent_sha256": "ab" * 32},
        {"miner_hotkey": BOB.hotkey},
        {"commitment_sha256": "ab" * 32},
        {"agent_version_id": "ab" * 32},
        {"source": b"\xff", "agent_sha256": hashlib.sha256(b"\xff").hexdigest()},
    ],
)
def test_a_source_that_is_not_the_submitted_one_is_found(wrong: dict[str, Any]) -> None:
    made = make_submission(ALICE, "agent", "x = 1  # \0 ü\r\n", 1)
    names = ("agent_version_id", "agent_sha256", "commitment_sha256")
    about = model.Subject(miner_hotkey=made.hotkey, **{name: getattr(made, name) for name in names})
    kept = StoredSource(validator=ALICE.hotkey, subject=about, source=made.source.encode())
    sound, harmed = LogCheck(), LogCheck()
    sound.take_source(kept)
    source = wrong.pop("source", kept.source)
    harmed.take_source(replace(kept, source=source, subject=replace(about, **wrong)))
    assert (sound.report().is_ok, sound.report().sources) == (True, 1)
    assert [defect.rule for defect in harmed.report().defects] == ["source"]


# -- in processes


def dies_on_the_last_record(hotkey: str, message: bytes, signature: bytes) -> bool:
    """A signature check in whose process something goes fatally wrong, once the log is nearly done."""
    if int.from_bytes(message[-72:-64], "big") == BATCH * 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return verify(hotkey, message, signature)


def test_processes_find_what_one_thread_finds_and_one_that_dies_ends_the_verification() -> None:
    log = log_of(*(log_stand.episode(problem) for problem in range(BATCH)))  # several batches
    with pytest.raises(ArenaError, match="V2052"):
        asyncio.run(verify_store(log, dies_on_the_last_record, executor=ProcessExecutor(2)))
    assert check(log, executor=ProcessExecutor(2)).is_ok
    for place, field, value in ((40, "content", b"{}"), (200, "signature", "00" * 64), (300, "prev", "00" * 32)):
        log.log[place] = replace(log.log[place], **{field: value})
    del log.log[350]
    name = next(iter(log.stored))
    log.stored[name] = replace(log.stored[name], content=b"other")
    thread, processes = check(log), check(log, executor=ProcessExecutor(2))
    assert thread == processes
    assert {defect.rule for defect in thread.defects} >= {"content", "signature", "chain", "sequence", "body"}


# -- what a superuser who switched the triggers off did to a log in Postgres is found, and the record named


EVIDENCE = ("head", "record", "body", "checkpoint", "anchor")
# What no signature covers: when the server stored a row, which decides nothing, and what the chain alone answers for.
UNSIGNED = {
    ("record", "appended_at"),
    ("record", "archive_sha256"),  # null here; of an archived record: test_store_objects
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
    sequencer = Sequencer(store, signer, log_stand.Clock(), log_stand.HOST)
    await sequencer.append([log_stand.attempt(0)])
    for problem in (1, 2):
        payloads, body = log_stand.episode(problem)
        await sequencer.append(payloads, [body])
    await sequencer.append([log_stand.settlement(), log_stand.release("r1", [1, 2])])
    point = (await verify_store(store, verify)).logs[0].checkpoint
    note = logs.sign_checkpoint(point, signer)
    await store.put_checkpoint(
        model.StoredCheckpoint(validator=signer.hotkey, size=point.size, note=note, signed_ms=log_stand.START_MS)
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


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("delete from arena.record where {log} and seq = 4", 5),
        ("delete from arena.record where {log}", 1),
        ("update arena.record set seq = 20 - seq where {log} and seq in (9, 11)", 11),
        ("update arena.record r set prev = o.prev, sha256 = o.sha256, signature = o.signature, content = o.content"
         " from arena.record o where r.{log} and o.{log} and r.seq in (4, 5) and o.seq = 9 - r.seq", 4),
        ("update arena.record r set content = (select content from arena.record o where o.{log} and o.seq = 2)"
         " where r.{log} and r.seq = 5", 5),
        ("delete from arena.body where {log}", 3),
        ("delete from arena.head where {log}", 10),
    ],
)  # fmt: skip
async def test_a_dropped_moved_swapped_or_replaced_row_is_found_and_named(store, harm, statement, named, monkeypatch):
    await harm(statement)
    report = await verify_store(store, verify)
    monkeypatch.setattr(verification, "BATCH", 2)
    assert await verify_store(store, verify, executor=ProcessExecutor(1)) == report  # it reads for itself
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
        if (await verify_store(store, verify)).is_ok:  # what went to another's name, only the owner can see
            defects = (await verify_store(owner, verify)).defects
            if not any(defect.validator.startswith(store.validator) for defect in defects):
                unseen.add((table, column))
        await harm(
            f"delete from arena.{table} where {{log}} or validator like '{store.validator}%'",
            f"insert into arena.{table} select * from public.kept",
            "drop table public.kept",
        )
    assert unseen == UNSIGNED
    assert (await verify_store(store, verify)).is_ok


@pytest.mark.parametrize("left", ["record", "checkpoint"])
async def test_a_log_whose_head_is_gone_is_found_by_its_validator_and_by_the_owner(store, owner, harm, left):
    gone = {"record": "checkpoint", "checkpoint": "record"}[left]
    await harm("delete from arena.head where {log}", f"delete from arena.{gone} where {{log}}")
    for reader in (store, owner):
        assert store.validator in await reader.validators()
        assert store.validator in {defect.validator for defect in (await verify_store(reader, verify)).defects}


@pytest.mark.parametrize("which", ["min", "max"])
async def test_a_changed_copy_of_a_body_that_was_stored_on_two_days_is_found(store, harm, which):
    columns = "validator, sha256, size, content"
    await harm(f"insert into arena.body (day, {columns}) select day + 1, {columns} from arena.body where {{log}}")
    assert (await verify_store(store, verify)).is_ok
    for there, back in (
        ("content = set_byte(content, 20, get_byte(content, 20) # 1)",) * 2,
        ("size = size + 1", "size = size - 1"),
    ):
        one_day = f" where {{log}} and day = (select {which}(day) from arena.body where {{log}})"
        await harm(f"update arena.body set {there}{one_day}")
        assert [(defect.rule, defect.seq) for defect in (await verify_store(store, verify)).defects] == [
            ("body", 3),
            ("body", 6),
        ]
        await harm(f"update arena.body set {back}{one_day}")
        assert (await verify_store(store, verify)).is_ok
