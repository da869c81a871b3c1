"""Verification finds every tampering it promises to find, and names the first record concerned."""

from __future__ import annotations

import asyncio
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.keys import keypair_signer, verify
from arena.records.log import checkpoint_of, read_checkpoint, sign_checkpoint
from arena.records.merkle import MerkleFrontier
from arena.records.model import SignedRecord, Subject, UnscoredOutcome
from arena.records.sequencer import Sequencer
from arena.records.verification import VerifyReport
from foundation.errors import ArenaError, Failure
from harness.trace import Totals
from tests.arena.log_stand import (
    CONDITIONS,
    HOST,
    Clock,
    MemoryLog,
    attempt,
    context,
    episode,
    gate,
    release,
    settlement,
)
from tests.arena.whole_log import verify_records

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")


@cache
def good_log() -> MemoryLog:
    """Every kind of record, in one valid log."""
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


def log_of(*payload_lists, bodies=()) -> MemoryLog:
    log = MemoryLog(ALICE.hotkey)
    sequencer = Sequencer(log, ALICE, Clock(), HOST)

    async def fill() -> None:
        for payloads in payload_lists:
            await sequencer.append(payloads, bodies)

    asyncio.run(fill())
    return log


def check(log: MemoryLog, records: list[SignedRecord], **expected) -> VerifyReport:
    return asyncio.run(verify_records(records, verify_signature=verify, bodies_of=log.frames, **expected))


def test_a_whole_log_verifies_and_is_counted() -> None:
    log = good_log()
    report = check(log, log.log, heads={ALICE.hotkey: log.end})
    assert report.is_ok, report.defects
    assert report.kinds == {"attempt": 3, "evaluation": 2, "release": 1, "settlement": 1, "verdict": 2}
    assert (report.records, report.bodies, report.logs[0].head) == (9, 2, log.end)


@given(st.data())
def test_any_flipped_byte_of_content_signature_or_prev_names_its_record(data: st.DataObject) -> None:
    log = good_log()
    place = data.draw(st.integers(0, len(log.log) - 1))
    field = data.draw(st.sampled_from(["content", "signature", "prev", "content_sha256"]))
    record = log.log[place]
    value = getattr(record, field)
    raw = bytearray(value if field == "content" else bytes.fromhex(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    changed = msgspec.structs.replace(record, **{field: bytes(raw) if field == "content" else raw.hex()})
    report = check(log, [*log.log[:place], changed, *log.log[place + 1 :]])
    assert (report.defects[0].validator, report.defects[0].seq) == (ALICE.hotkey, record.seq)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("stop", "steps"),
        ("failure", Failure(code="A1024")),
        ("is_agentic", False),
        ("totals", Totals(steps=9)),
        ("subject", Subject(agent_version_id="a1" * 32, miner_hotkey="5miner", agent_sha256="00" * 32)),
        ("context", context(2)),
        ("conditions", msgspec.structs.replace(CONDITIONS, policy_sha256="00")),
    ],
)
def test_a_fact_of_an_evaluation_that_its_body_contradicts_is_found(fact: str, value: object) -> None:
    (made, evaluation, verdict), body = episode(1)
    log = log_of([made, msgspec.structs.replace(evaluation, **{fact: value}), verdict], bodies=[body])
    assert [(d.rule, d.seq) for d in check(log, log.log).defects] == [("body", 2)]


def test_an_attempt_that_says_it_evaluated_without_its_evaluation_is_found() -> None:
    (made, evaluation, _), body = episode(1)
    log = log_of([made], [attempt(2, ended="faulted")])
    assert [(d.rule, d.seq) for d in check(log, log.log).defects] == [("evaluation", 1)]
    other = msgspec.structs.replace(made, attempt_id="another:1")
    log = log_of([made, evaluation, other], bodies=[body])
    assert [(d.rule, d.seq) for d in check(log, log.log).defects] == [("evaluation", 3)]


def test_two_counted_evaluations_of_one_problem_are_found_and_an_unscored_one_does_not_count() -> None:
    first, body = episode(1, attempt_id="i:1")
    again, _ = episode(1, attempt_id="i:2")
    log = log_of(first, again, bodies=[body])
    assert [(d.rule, d.seq) for d in check(log, log.log).defects] == [("double", 5)]
    unscored = msgspec.structs.replace(first[1], outcome=UnscoredOutcome(failure=Failure(code="V2040")))
    log = log_of([first[0], unscored], again, bodies=[body])
    assert check(log, log.log).is_ok


def test_a_checkpoint_survives_its_text_and_any_change_of_the_text_is_refused() -> None:
    tree = MerkleFrontier()
    tree.append(b"one")
    note = sign_checkpoint(checkpoint_of(ALICE.hotkey, tree), ALICE)
    assert note.startswith(f"agent-arena/log/1/{ALICE.hotkey}\n1\n")
    assert read_checkpoint(note, verify) == checkpoint_of(ALICE.hotkey, tree)
    changes = [note.replace("\n1\n", "\n2\n"), note.replace("\n1\n", "\n01\n"), note.split("\n\n")[0], "", note[:-4]]
    changes.append(note.replace(ALICE.hotkey, BOB.hotkey))
    changes += [note.replace("\n1\n", "\n-1\n"), _other_base64(note), note.rstrip("\n"), note[:-1] + "\x85"]
    for changed in changes:
        with pytest.raises(ArenaError, match="V2050"):
            read_checkpoint(changed, verify)


def _other_base64(note: str) -> str:
    """The note with an unused bit of its signature's base64 set: other text, the same bytes."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    assert note.endswith("=\n")
    last = note[-3]
    return note[:-3] + alphabet[alphabet.index(last) ^ 1] + note[-2:]


def test_a_persons_word_on_a_submission_stands_after_one_of_the_gate() -> None:
    held, person = gate(1), gate(1, decided_by="person", outcome="accept")
    sound = log_of([held, person, gate(2), person])
    report = check(sound, sound.log)
    assert report.is_ok and report.kinds == {"gate": 4}
    other = msgspec.structs.replace(held, subject=msgspec.structs.replace(held.subject, commitment_block=8))
    for payloads in ([person, held], [other, person]):
        log = log_of(payloads)
        place = payloads.index(person) + 1
        assert [(d.rule, d.seq) for d in check(log, log.log).defects] == [("gate", place)]


def test_an_evaluation_without_its_attempt_is_found() -> None:
    payloads, body = episode(1)
    log = log_of(payloads[1:], bodies=[body])
    assert [(d.rule, d.seq) for d in check(log, log.log).defects] == [("attempt", 1)]


def test_a_verdict_on_a_body_nobody_evaluated_is_found() -> None:
    log = log_of(episode(1)[0][2:])
    assert [(d.rule, d.seq) for d in check(log, log.log).defects] == [("verdict", 1)]
