"""One record looked at alone: envelope, content hash, signature, schema and body.

`inspect` is pure: it reads the bytes it is given, never canonicalises, and never raises, whatever they are. What
records say about each other is `arena.records.verification`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Literal

from arena.chain.port import Verifier
from arena.records.body import decode_body, decode_content, restore_frame
from arena.records.log import SHA256, message_of
from arena.records.model import Entry, Envelope, EvaluationRecord, Filing, Payload, envelope_of, filing_of
from foundation.errors import ArenaError

SEQ_MAX = 2**53 - 1
VALIDATOR_BYTES_MAX = 128
_SIGNATURE = re.compile("[0-9a-f]{128}")

Rule = Literal[
    "envelope",  # a malformed number, hash or signature
    "sequence",  # a gap, a double or a swap of numbers
    "chain",  # prev is not the hash of the record before
    "content",  # the bytes do not have the hash that is signed
    "signature",
    "filing",  # the store finds it by a kind, race or body its content does not state, or on another day
    "schema",  # the content is no record that this software reads
    "body",  # missing, changed, or about something else than its record
    "attempt",  # an evaluation without the attempt that made it
    "evaluation",  # an attempt that says it evaluated, without the evaluation
    "verdict",  # a verdict on a body without an evaluation
    "double",  # two counted evaluations of one (agent version, problem) in one stage of one race
    "settlement",  # a race's records contradict its settlement, or it has two
    "release",  # a problem that the race's release does not name, or whose commitment its salt does not open
    "gate",  # a person's word on a submission that the gate said nothing of
    "source",  # an agent's file beside the log that is not the submitted one
    "tail",  # the log is shorter or other than its head says
    "checkpoint",  # the log does not have the root that was signed for its size
    "anchor",  # the chain does not hold the checkpoint where it is said to
]


class RecordFinding(Envelope, frozen=True, kw_only=True, array_like=True):
    """What one record is, looked at alone.

    `faults`: what is wrong with it. `payload`: what it states, None for a stub and where that can't be read.
    `is_envelope`: number and hashes are well formed, so that it has a place in chain and tree.
    """

    faults: tuple[tuple[Rule, str], ...] = ()
    payload: Payload | None = None
    is_stub: bool = False
    is_envelope: bool = True


def inspect(entry: Entry, verify_signature: Verifier) -> RecordFinding:
    """Everything one record shows by itself."""
    malformed, faults, payload = malformation_of(entry), list[tuple[Rule, str]](), None
    if malformed:
        faults.append(("envelope", malformed))
    else:
        if entry.content is not None and hashlib.sha256(entry.content).hexdigest() != entry.content_sha256:
            faults.append(("content", "the content does not have the hash that was signed"))
        if not verify_signature(entry.validator, message_of(entry), bytes.fromhex(entry.signature)):
            faults.append(("signature", f"it is not signed by {entry.validator}"))
        if entry.content is not None:
            try:
                payload = decode_content(entry.content).payload
            except ArenaError as error:
                faults.append(("schema", error.failure.detail))
            else:
                faults += _filing_faults(entry, payload)
                if isinstance(payload, EvaluationRecord) and (unsound := _body_fault(payload, entry)):
                    faults.append(("body", unsound))
    return RecordFinding(
        **envelope_of(entry) | {"seq": max(0, min(entry.seq, SEQ_MAX + 1))},  # any number can stand in a file
        faults=tuple(faults),
        payload=payload,
        is_stub=entry.content is None,
        is_envelope=not malformed,
    )


def _filing_faults(entry: Entry, payload: Payload) -> Iterator[tuple[Rule, str]]:
    """Where a store would look for a record in vain."""
    held, stated = entry.filing, filing_of(payload)
    if held is not None and held != stated:
        wrong = [name for name in Filing.__struct_fields__ if getattr(held, name) != getattr(stated, name)]
        yield "filing", f"the store files it under another {', '.join(wrong)} than its content states"
    elif not entry.is_dated:
        yield "filing", "the store files it under another day than it arrived on"


def malformation_of(entry: Envelope) -> str:
    """What is no hash, number, name or signature in the envelope, or ""."""
    if not 0 < entry.seq <= SEQ_MAX:
        return f"{entry.seq} is not a record number"
    if not entry.validator.isascii() or not 0 < len(entry.validator) <= VALIDATOR_BYTES_MAX:
        return "the validator is not an address"
    if not SHA256.fullmatch(entry.prev) or not SHA256.fullmatch(entry.content_sha256):
        return "prev and content_sha256 are 64 lower-case hex digits each"
    return "" if _SIGNATURE.fullmatch(entry.signature) else "a signature is 128 lower-case hex digits"


def _body_fault(record: EvaluationRecord, entry: Entry) -> str:
    """What is wrong with the body that an evaluation names, or ""."""
    if entry.body is None:
        return f"body {record.body_sha256} is not stored"
    content = restore_frame(entry.body, entry.frame_size) if entry.frame_size else entry.body
    if hashlib.sha256(content).hexdigest() != record.body_sha256:
        return f"the bytes of body {record.body_sha256} were changed"
    try:
        body = decode_body(content)
    except ArenaError as error:
        return error.failure.detail
    pairs = {
        "agent": (record.subject.agent_sha256, body.agent_sha256),
        "problem": (record.context.asked_id, body.problem_id),
        "policy": (record.conditions.policy_sha256, body.policy_sha256),
        "stop": (record.stop, body.stop),
        "failure": (record.failure, body.failure),
        "is_agentic": (record.is_agentic, body.is_agentic),
        "totals": (record.totals, body.totals),
    }
    other = [name for name, (stated, held) in pairs.items() if stated != held]
    return f"the body holds another {', '.join(other)} than the record states" if other else ""
