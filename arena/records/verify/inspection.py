"""One record looked at alone: envelope, content hash, signature, schema and body. Pure, so that it can run anywhere.

`inspect` reads the bytes it is given, never canonicalises, never raises whatever they are, and returns a
`RecordFinding` that is small, whatever the record holds: what is wrong with the record alone, and the facts that others
refer to. What records say about each other is `arena.records.verify.log_check`.
"""

from __future__ import annotations

import hashlib
import re
import threading

import msgspec
import zstandard

from arena.chain.port import Verifier
from arena.records.body import Unread, read_body, read_content
from arena.records.log.filing import Filing, filing_of
from arena.records.log.hash_chain import signing_message
from arena.records.model import (
    AttemptRecord,
    Context,
    EvaluationRecord,
    GateRecord,
    Payload,
    ReleaseRecord,
    SettlementRecord,
    SignedRecord,
    Subject,
    VerdictRecord,
)
from arena.records.verify.report import Rule
from arena.store.port import FiledRecord
from foundation.errors import ArenaError
from problems.outcome import OutcomeScore

BODY_BYTES_MAX = 64 << 20
SEQ_MAX = 2**53 - 1
VALIDATOR_BYTES_MAX = 128
_SHA256 = re.compile("[0-9a-f]{64}")
_SIGNATURE = re.compile("[0-9a-f]{128}")
_THREAD = threading.local()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One record as a store or an export holds it, and the body it names.

    `content` None makes it a stub: only chain, tree and signature can be checked. `body` is the canonical bytes of the
    body, or, where `frame_size` > 0, a zstd frame of that many bytes; None where none is stored. `filing`: what a store
    finds the record by, and whether it lies with the day it arrived on (`is_dated`); None in an export.
    """

    validator: str
    seq: int
    prev: str
    content_sha256: str
    signature: str
    content: bytes | None
    body: bytes | None = None
    frame_size: int = 0
    filing: Filing | None = None
    is_dated: bool = True


class AttemptFacts(msgspec.Struct, frozen=True, array_like=True, tag="attempt"):
    """What others refer to in an attempt. `is_evaluated`: it says an evaluation came of it."""

    attempt_id: str
    body_sha256: str
    is_evaluated: bool
    context: Context


class EvaluationFacts(msgspec.Struct, frozen=True, array_like=True, tag="evaluation"):
    """What others refer to in an evaluation. `is_counted`: it has an outcome."""

    attempt_id: str
    body_sha256: str
    is_counted: bool
    agent_version_id: str
    context: Context


class VerdictFacts(msgspec.Struct, frozen=True, array_like=True, tag="verdict"):
    """What others refer to in a verdict."""

    body_sha256: str
    context: Context


class SettlementFacts(msgspec.Struct, frozen=True, array_like=True, tag="settlement"):
    """A settlement, whole: there is one a race."""

    record: SettlementRecord


class ReleaseFacts(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """A release, whole: there is one a race."""

    record: ReleaseRecord


class GateFacts(msgspec.Struct, frozen=True, array_like=True, tag="gate"):
    """What a person's word refers to: the submission, as the gate's own word before it names it."""

    subject: Subject
    is_of_person: bool


Facts = AttemptFacts | EvaluationFacts | VerdictFacts | SettlementFacts | ReleaseFacts | GateFacts


class RecordFinding(msgspec.Struct, frozen=True, array_like=True):
    """What one record is, looked at alone.

    `faults`: what is wrong with it. `facts`: of a whole record this release reads. `unread`: "kind/version" of a later
    format, of the record or of its body. `is_envelope`: number and hashes are well formed, so that it has a place in
    chain and tree.
    """

    validator: str
    seq: int
    prev: str
    content_sha256: str
    faults: tuple[tuple[Rule, str], ...] = ()
    facts: Facts | None = None
    unread: str = ""
    is_stub: bool = False
    is_envelope: bool = True


def entry_of(record: SignedRecord, body: bytes | None = None, frame_size: int = 0) -> Entry:
    """A stored record as an entry, with its body as canonical bytes or as a zstd frame of `frame_size` bytes."""
    filed = (record.filing, record.is_dated) if isinstance(record, FiledRecord) else ()
    return Entry(
        record.validator,
        record.seq,
        record.prev,
        record.content_sha256,
        record.signature,
        record.content,
        body,
        frame_size,
        *filed,
    )


def inspect(entry: Entry, verify_signature: Verifier) -> RecordFinding:
    """Everything one record shows by itself."""
    place = (entry.validator, entry.seq, entry.prev, entry.content_sha256)
    if malformed := _malformed(entry):
        return RecordFinding(*place, (("envelope", malformed),), is_stub=entry.content is None, is_envelope=False)
    faults: list[tuple[Rule, str]] = []
    if entry.content is not None and hashlib.sha256(entry.content).hexdigest() != entry.content_sha256:
        faults.append(("content", "the content does not have the hash that was signed"))
    if not verify_signature(entry.validator, signing_message(*place), bytes.fromhex(entry.signature)):
        faults.append(("signature", f"it is not signed by {entry.validator}"))
    if entry.content is None:
        return RecordFinding(*place, tuple(faults), is_stub=True)
    if entry.filing is not None:
        held, stated = entry.filing, filing_of(entry.content)
        if stated is not None and held != stated:
            wrong = [name for name in Filing.__struct_fields__ if getattr(held, name) != getattr(stated, name)]
            faults.append(("filing", f"the store files it under another {', '.join(wrong)} than its content states"))
        elif not entry.is_dated:
            faults.append(("filing", "the store files it under another day than it arrived on"))
    try:
        content = read_content(entry.content)
    except ArenaError as error:
        faults.append(("schema", error.failure.detail))
        return RecordFinding(*place, tuple(faults))
    if isinstance(content, Unread):
        return RecordFinding(*place, tuple(faults), unread=content.name)
    unread = ""
    if isinstance(content.payload, EvaluationRecord):
        unread, unsound = _inspect_body(content.payload, entry)
        faults += [("body", unsound)] if unsound else []
    return RecordFinding(*place, tuple(faults), _facts(content.payload), unread)


def _malformed(entry: Entry) -> str:
    """What is no hash, number, name or signature in the envelope, or ""."""
    if not 0 < entry.seq <= SEQ_MAX:
        return f"{entry.seq} is no record number"
    if not entry.validator.isascii() or not 0 < len(entry.validator) <= VALIDATOR_BYTES_MAX:
        return "the validator is no address"
    if not _SHA256.fullmatch(entry.prev) or not _SHA256.fullmatch(entry.content_sha256):
        return "prev and content_sha256 are 64 lower-case hex digits each"
    return "" if _SIGNATURE.fullmatch(entry.signature) else "a signature is 128 lower-case hex digits"


def _facts(payload: Payload) -> Facts:
    match payload:
        case AttemptRecord():
            is_evaluated = payload.ended == "evaluated"
            return AttemptFacts(payload.attempt_id, payload.body_sha256, is_evaluated, payload.context)
        case EvaluationRecord():
            return EvaluationFacts(
                payload.attempt_id,
                payload.body_sha256,
                isinstance(payload.outcome, OutcomeScore),
                payload.subject.agent_version_id,
                payload.context,
            )
        case VerdictRecord():
            return VerdictFacts(payload.verdict.body_sha256, payload.context)
        case SettlementRecord():
            return SettlementFacts(payload)
        case ReleaseRecord():
            return ReleaseFacts(payload)
        case GateRecord():
            return GateFacts(payload.subject, payload.decided_by == "person")


def _inspect_body(record: EvaluationRecord, entry: Entry) -> tuple[str, str]:
    """("body/version" of a body of a later format, or ""; what is wrong with the evaluation's body, or "")."""
    if entry.body is None:
        return "", f"body {record.body_sha256} is not stored"
    content = _restored(entry.body, entry.frame_size) if entry.frame_size else entry.body
    if hashlib.sha256(content).hexdigest() != record.body_sha256:
        return "", f"the bytes of body {record.body_sha256} were changed"
    try:
        body = read_body(content)
    except ArenaError as error:
        return "", error.failure.detail
    if isinstance(body, Unread):
        return body.name, ""
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
    return "", f"the body holds another {', '.join(other)} than the record states" if other else ""


def _restored(frame: bytes, size: int) -> bytes:
    """The bytes of a zstd frame; empty when it is none, or does not hold `size` bytes."""
    try:
        if not 0 < size <= BODY_BYTES_MAX or zstandard.frame_content_size(frame) != size:
            return b""
        # One a thread: making one costs a quarter of what restoring a usual body does, and they can't be shared.
        if not hasattr(_THREAD, "decompressor"):
            _THREAD.decompressor = zstandard.ZstdDecompressor()
        decompressor: zstandard.ZstdDecompressor = _THREAD.decompressor
        return decompressor.decompress(frame, max_output_size=size)
    except zstandard.ZstdError:
        return b""
