"""Verification from a point: `--since` a checkpoint, from an export's cursor, over stubs, against stored checkpoints
and their anchors on chain, and over records of a later format."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec
import pytest

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Commitment
from arena.records.inspection import RecordFinding, inspect
from arena.records.log import Checkpoint, sign_checkpoint
from arena.records.model import Entry, SignedRecord, StoredCheckpoint
from arena.records.sequencer import Sequencer
from arena.records.verification import LogCheck, VerifyReport, verify_store
from tests.arena.log_stand import HOST, Clock, MemoryLog, attempt, episode, release, settlement

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")


def made_log() -> MemoryLog:
    """Every kind of record: an attempt, two episodes of three, settlement and release."""
    log = MemoryLog(ALICE.hotkey)
    sequencer = Sequencer(log, ALICE, Clock(), HOST)

    async def fill() -> None:
        await sequencer.append([attempt(0)])
        for problem in (1, 2):
            payloads, body = episode(problem)
            await sequencer.append(payloads, [body])
        await sequencer.append([settlement(), release()])

    asyncio.run(fill())
    return log


def append(log: MemoryLog, *payloads: object) -> MemoryLog:
    asyncio.run(Sequencer(log, ALICE, Clock(), HOST).append(payloads))
    return log


def findings(log: MemoryLog, records: Sequence[SignedRecord], stubs: Sequence[int] = ()) -> list[RecordFinding]:
    return [inspect(entry(log, record, record.seq in stubs), verify) for record in records]


def entry(log: MemoryLog, record: SignedRecord, is_stub: bool = False) -> Entry:
    names = [name for name in log.stored if name in record.content.decode()]
    body = log.stored[names[0]].content if names else None
    whole = Entry(**msgspec.structs.asdict(record), body=body)
    return msgspec.structs.replace(whole, content=None, body=None) if is_stub else whole


def take(check: LogCheck, found: Sequence[RecordFinding]) -> LogCheck:
    for finding in found:
        check.take(finding)
    return check


def rules(report: VerifyReport) -> list[tuple[str, int]]:
    return [(defect.rule, defect.seq) for defect in report.defects]


def point_at(log: MemoryLog, size: int) -> Checkpoint:
    return take(LogCheck(), findings(log, log.log[:size])).report().logs[0].checkpoint


def stored(log: MemoryLog, size: int, anchor_block: int = 0) -> StoredCheckpoint:
    note = sign_checkpoint(point_at(log, size), ALICE)
    return StoredCheckpoint(validator=ALICE.hotkey, size=size, note=note, signed_ms=1, anchor_block=anchor_block)


class OneSlot:
    """The part of a chain that verification asks: one commitment."""

    def __init__(self, held: Commitment | None) -> None:
        self.held = held
        self.asked: list[tuple[str, int | None]] = []

    async def commitment(self, hotkey: str, block: int | None = None) -> Commitment | None:
        self.asked.append((hotkey, block))
        return self.held


def test_a_check_continues_where_another_stood_and_ends_in_the_same_tree() -> None:
    log = made_log()
    whole = take(LogCheck(), findings(log, log.log)).report()
    for size in range(len(log.log)):
        first = take(LogCheck(), findings(log, log.log[:size]))
        check = LogCheck([whole.logs[0].checkpoint], starts=[first.position(ALICE.hotkey)])
        take(check, findings(log, log.log[size:])).expect_head(ALICE.hotkey, log.end)
        report = check.report()
        assert (report.is_ok, report.records, report.logs) == (True, len(log.log) - size, whole.logs), report.defects


def test_stubs_keep_chain_tree_and_signature_and_hide_what_others_refer_to() -> None:
    log = made_log()
    whole = take(LogCheck(), findings(log, log.log)).report()
    for stubs in ([2], [3], [4], range(1, 10)):
        report = take(LogCheck([whole.logs[0].checkpoint]), findings(log, log.log, stubs)).report()
        assert (report.is_ok, report.stubs, report.logs) == (True, len(stubs), whole.logs), report.defects
    forged = [msgspec.structs.replace(log.log[4], signature="00" * 64)]
    report = take(LogCheck(), findings(log, [*log.log[:4], *forged, *log.log[5:]], [5])).report()
    assert rules(report) == [("signature", 5)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", 0),
        ("seq", 2**63),
        ("prev", "AB" * 32),
        ("content_sha256", "zz" * 32),
        ("signature", "00" * 63),
        ("validator", "5é"),
        ("validator", "5" * 70_000),
    ],
)
def test_an_envelope_that_is_none_is_a_defect_and_not_an_exception(field: str, value: object) -> None:
    log = made_log()
    found = inspect(msgspec.structs.replace(entry(log, log.log[0]), **{field: value}), verify)
    assert [rule for rule, _ in found.faults] == ["envelope"]
    assert take(LogCheck(), [found]).report().defects[0].rule == "envelope"


def test_stored_checkpoints_are_compared_and_one_that_is_not_its_validators_is_a_defect() -> None:
    log = made_log()
    log.signed = [stored(log, size) for size in (1, 4, 9)]
    report = asyncio.run(verify_store(log, verify))
    assert (report.is_ok, report.checkpoints, report.anchors) == (True, 3, 0)
    wrong_root = sign_checkpoint(msgspec.structs.replace(point_at(log, 4), root="00" * 32), ALICE)
    foreign = sign_checkpoint(Checkpoint(validator=BOB.hotkey, size=4, root="00" * 32), BOB)
    for note in (wrong_root, foreign, log.signed[0].note, log.signed[1].note.replace("\n4\n", "\n5\n"), ""):
        log.signed[1] = msgspec.structs.replace(log.signed[1], note=note)
        assert rules(asyncio.run(verify_store(log, verify))) == [("checkpoint", 4)]
    log.signed = [stored(made_log(), 9)]
    assert rules(asyncio.run(verify_store(log, verify))) == [("checkpoint", 9)]


def test_anchors_are_listed_without_a_chain_and_compared_with_one() -> None:
    log = made_log()
    log.signed = [stored(log, 4, anchor_block=70), stored(log, 9)]
    report = asyncio.run(verify_store(log, verify))
    assert (report.anchors, report.anchors_checked) == (1, 0)
    sha256 = hashlib.sha256(log.signed[0].note.encode()).hexdigest()
    held = Commitment(hotkey=ALICE.hotkey, sha256=sha256, block=70)
    chain = OneSlot(held)
    report = asyncio.run(verify_store(log, verify, subtensor=chain))
    assert (report.is_ok, report.anchors_checked, chain.asked) == (True, 1, [(ALICE.hotkey, 70)])
    others = [
        None,
        msgspec.structs.replace(held, sha256="00" * 32),
        msgspec.structs.replace(held, hotkey=BOB.hotkey),
        msgspec.structs.replace(held, block=71),
    ]
    for other in others:
        report = asyncio.run(verify_store(log, verify, subtensor=OneSlot(other)))
        assert rules(report) == [("anchor", 4)]


def test_a_body_of_another_version_is_a_defect_that_says_so() -> None:
    log = made_log()
    name, old = next(iter(log.stored.items()))
    later = old.content.replace(b'"version":1', b'"version":2')
    sha256 = hashlib.sha256(later).hexdigest()
    (made, evaluation, _), _ = episode(3)
    append(log, *[msgspec.structs.replace(payload, body_sha256=sha256) for payload in (made, evaluation)])
    log.stored[sha256] = msgspec.structs.replace(old, body_sha256=sha256, content=later)
    (defect,) = asyncio.run(verify_store(log, verify)).defects
    assert (defect.rule, defect.seq, "version 2" in defect.detail) == ("body", 11, True)
    assert name != sha256
