"""What a settlement states of its inputs is enough to settle again, and what was changed is named."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.policies import SN15_2026_08
from arena.race.settle import differences, inputs_again, policy_of, settle, settlement_sha256
from arena.records.body import decode_content
from arena.records.model import CountedLog, RecordContent, SettlementRecord, Top
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from tests.arena import log_stand
from tests.arena.race_stand import candidate, changed, inputs, policy, solves

FIELD = (candidate("a"), candidate("b"), candidate("c"))
VALS = ("val-a", "val-b")
LOGS = tuple(CountedLog(validator=name, note_sha256="ab" * 32, size=10_000, root="cd" * 32) for name in VALS)
SOLVES = solves({"a": 8, "b": 5, "c": 2})


def made(**changes: object):
    given = inputs(FIELD, SOLVES, validators=VALS, rules=policy(validators_per_problem=2))
    top = Top(agent_version_id="v-b", miner_hotkey="hk-b", promoted_ms=5)
    return changed(given, **{"logs": LOGS, "incumbent": top, **changes})


@given(st.booleans(), st.integers(0, 20), st.sampled_from(["", "batch"]), st.booleans())
def test_a_settlement_is_made_again_from_records_alone_byte_for_byte(has_beacon, size, why, states_defaults):
    first = made(logs=tuple(replace(log, size=size) for log in LOGS))
    within = [row for row in first.evaluations if row.seq <= size]
    first = replace(first, evaluations=tuple(within), verdicts=tuple(row for row in first.verdicts if row.seq <= size))
    if not has_beacon:
        first = changed(first, beacon=None, undrawn_why=why or first.stated.undrawn_why)
    record, words = settle(first), canonical_bytes(first.policy).decode()  # with defaults, as before 0.2.0
    record = replace(record, inputs=replace(record.inputs, policy=words)) if states_defaults else record
    everything = made()  # the whole logs: what stands beyond the anchored size does not count
    again = settle(inputs_again(record, everything.evaluations, everything.verdicts))
    assert canonical_bytes(again) == canonical_bytes(record)
    stored = decode_content(canonical_bytes(RecordContent(recorded_ms=1, host=log_stand.HOST, payload=record)))
    assert stored.payload == record


def test_a_record_that_was_changed_is_named_by_what_differs():
    first = made()
    record = settle(first)
    rows = list(first.evaluations)
    rows[3] = replace(rows[3], content_sha256="00" * 32)
    assert differences(settle(inputs_again(record, rows, first.verdicts)), record) == ("record_set_sha256",)
    assert "standings" in differences(settle(inputs_again(record, first.evaluations[:12], first.verdicts)), record)
    other = replace(record, inputs=replace(record.inputs, closes_ms=1))
    assert differences(other, record) == ("inputs.closes_ms",)
    assert differences(record, record) == differences(bare := replace(record, inputs=None), bare) == ()
    assert differences(record, bare) == ("inputs",)


FIRST = made()
RECORD = settle(FIRST)
OUTCOME = canonical_bytes(replace(RECORD, inputs=None))
READ_FROM_CHAIN = {"closing_block", "settling_block"}  # named, not computed: the chain says whether they are right


@given(st.integers(0, len(OUTCOME) - 1), st.integers(0, 7))
def test_no_byte_of_an_outcome_can_be_flipped_without_being_named(place, bit):
    text = bytearray(OUTCOME)
    text[place] ^= 1 << bit
    try:
        flipped = replace(msgspec.json.decode(bytes(text), type=SettlementRecord), inputs=RECORD.inputs)
        again = settle(inputs_again(flipped, FIRST.evaluations, FIRST.verdicts))
    except (msgspec.DecodeError, UnicodeDecodeError, ArenaError):
        return  # refused
    assert differences(again, flipped) or set(differences(flipped, RECORD)) <= READ_FROM_CHAIN


def test_the_same_records_settle_otherwise_under_another_policy():
    first = made()
    record = settle(first)
    winner = replace(policy_of(record), weights=replace(policy_of(record).weights, kind="winner_takes_all"))
    other = settle(inputs_again(record, first.evaluations, first.verdicts, policy=winner))
    assert other.standings and other.uids != record.uids and policy_of(other) == winner
    assert "policy_sha256" in differences(other, record)


def test_history_is_named_by_hash_and_one_that_is_another_is_refused():
    rules = replace(policy(), promotion=SN15_2026_08.promotion)
    past = settle(inputs(FIELD, SOLVES, rules=rules))
    first = replace(inputs(FIELD, SOLVES, rules=rules), history=(past,))
    record = settle(first)
    assert [row.settlement_sha256 for row in record.inputs.history] == [settlement_sha256(past)]
    again = settle(inputs_again(record, first.evaluations, first.verdicts, (past,)))
    assert canonical_bytes(again) == canonical_bytes(record)
    with pytest.raises(ArenaError, match=r"V2050.*settlement of race-000001 is missing"):
        inputs_again(record, first.evaluations, first.verdicts, (replace(past, seed="ff"),))


def test_a_policy_that_is_not_the_one_named_is_refused():
    record = settle(made())
    for policy_text, why in (
        (canonical_bytes(SN15_2026_08).decode(), "not the one named"),
        ("{", "policy: Input"),
    ):
        lying = replace(record, inputs=replace(record.inputs, policy=policy_text))
        with pytest.raises(ArenaError, match=f"V2050.*{why}"):
            inputs_again(lying, (), ())
