"""Verification of logs: signatures, chain, gaps, schema, bodies, and the facts records state about each other.

Promise: verifying trusts nothing but the caller's signature check; it hashes the bytes it is given and never
re-canonicalises. Any changed byte, dropped, doubled or swapped record becomes a `Defect` that names the first record
concerned; a cut tail needs the head (or a checkpoint) to be seen. It reads and never writes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from arena.chain.port import Verifier
from arena.records.body import decode_body, decode_content
from arena.records.chain import first_head, head_after, signing_message
from arena.records.checkpoint import Checkpoint, checkpoint_of
from arena.records.merkle import MerkleFrontier
from arena.records.model import (
    RECORD_VERSION,
    AttemptRecord,
    EvaluationRecord,
    Head,
    Payload,
    RecordContent,
    SignedRecord,
    VerdictRecord,
)
from arena.store.port import Store, StoredBody
from problems.errors import ArenaError
from problems.outcome import OutcomeScore

BATCH = 128
_SHA256 = re.compile("[0-9a-f]{64}")
DEFECTS_KEPT = 1000

Rule = Literal[
    "sequence",  # a gap, a double or a swap of numbers
    "chain",  # prev is not the hash of the record before
    "content",  # the bytes do not have the hash that is signed
    "signature",
    "schema",
    "body",  # missing, changed, or about something else than its record
    "attempt",  # an evaluation without the attempt that made it
    "evaluation",  # an attempt that says it evaluated, without the evaluation
    "verdict",  # a verdict on a body nobody evaluated
    "double",  # two counted evaluations of one (agent version, problem) in one stage of one race
    "tail",  # the log is shorter or other than its head says
    "checkpoint",  # the log does not have the root that was signed for its size
]

BodiesOf = Callable[[Sequence[str], str], Awaitable[Sequence[StoredBody]]]
Progress = Callable[[int], None]


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one record."""

    validator: str
    seq: int
    rule: Rule
    detail: str


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where one verified log ends."""

    head: Head
    checkpoint: Checkpoint


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result: counts, the end of each log, and defects in (validator, seq) order (at most `DEFECTS_KEPT`)."""

    records: int
    kinds: dict[str, int]
    bodies: int
    logs: tuple[LogFacts, ...]
    defects: tuple[Defect, ...]
    defect_count: int

    @property
    def is_ok(self) -> bool:
        """True when nothing is wrong."""
        return self.defect_count == 0


async def verify_records(
    records: AsyncIterator[SignedRecord] | Iterable[SignedRecord],
    *,
    verify_signature: Verifier,
    bodies_of: BodiesOf,
    heads: Mapping[str, Head] | None = None,
    checkpoints: Sequence[Checkpoint] = (),
    progress: Progress | None = None,
) -> VerifyReport:
    """Verify whole logs, each from its first record.

    `bodies_of` gives the stored bodies of some hashes in a validator's log, their bytes unchecked. `heads`: where logs
    must end. `checkpoints`: earlier signed states they must contain. `progress` gets the number of records done so far.
    """
    check = LogCheck(verify_signature, checkpoints)
    await _take_all(check, records, bodies_of, progress)
    for validator, head in (heads or {}).items():
        check.expect_head(validator, head)
    return check.report()


async def verify_store(
    store: Store,
    verify_signature: Verifier,
    *,
    checkpoints: Sequence[Checkpoint] = (),
    progress: Progress | None = None,
) -> VerifyReport:
    """Verify every log of a store against its heads. Records appended meanwhile are verified too."""
    check = LogCheck(verify_signature, checkpoints)
    for validator in await store.validators():
        while True:
            before = check.head(validator)
            await _take_all(check, store.records(validator, after_seq=before.seq), store.bodies, progress)
            head = await store.head(validator)
            if head == check.head(validator) or before == check.head(validator):
                break
        check.expect_head(validator, head)
    return check.report()


async def _take_all(
    check: LogCheck,
    records: AsyncIterator[SignedRecord] | Iterable[SignedRecord],
    bodies_of: BodiesOf,
    progress: Progress | None,
) -> None:
    async for loaded in _ahead(_loaded(records, bodies_of)):
        await asyncio.to_thread(loaded.check, check)
        if progress:
            progress(check.records)


class _Loaded(msgspec.Struct, frozen=True):
    """Some records, their contents, and the bodies they name under validator and hash."""

    records: list[SignedRecord]
    contents: list[RecordContent | None]
    bodies: dict[tuple[str, str], bytes]

    def check(self, check: LogCheck) -> None:
        for record, content in zip(self.records, self.contents, strict=True):
            check.take(record, content, self.bodies)


async def _loaded(
    records: AsyncIterator[SignedRecord] | Iterable[SignedRecord], bodies_of: BodiesOf
) -> AsyncIterator[_Loaded]:
    async for batch in _batches(records):
        contents = [_read(record) for record in batch]
        bodies: dict[tuple[str, str], bytes] = {}
        for validator, wanted in _wanted(batch, contents).items():
            for body in await bodies_of(sorted(wanted), validator):
                bodies[validator, body.body_sha256] = body.content
        yield _Loaded(batch, contents, bodies)


async def _ahead(batches: AsyncIterator[_Loaded]) -> AsyncIterator[_Loaded]:
    """The same batches, each loaded while the one before is checked."""
    upcoming = asyncio.ensure_future(anext(batches, None))
    try:
        while (batch := await upcoming) is not None:
            upcoming = asyncio.ensure_future(anext(batches, None))
            yield batch
    finally:
        upcoming.cancel()


def _wanted(batch: Sequence[SignedRecord], decoded: Sequence[RecordContent | None]) -> dict[str, set[str]]:
    """The bodies that evaluations name, by validator."""
    wanted: dict[str, set[str]] = {}
    for record, content in zip(batch, decoded, strict=True):
        if content and isinstance(content.payload, EvaluationRecord) and _is_sha256(content.payload.body_sha256):
            wanted.setdefault(record.validator, set()).add(content.payload.body_sha256)
    return wanted


async def _batches(
    records: AsyncIterator[SignedRecord] | Iterable[SignedRecord],
) -> AsyncIterator[list[SignedRecord]]:
    batch: list[SignedRecord] = []
    if isinstance(records, AsyncIterator):
        async for record in records:
            batch.append(record)
            if len(batch) == BATCH:
                yield batch
                batch = []
    else:
        for record in records:
            batch.append(record)
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def _read(record: SignedRecord) -> RecordContent | None:
    try:
        return decode_content(record.content)
    except ArenaError:
        return None


def _is_sha256(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


class LogCheck:
    """The running state over any number of logs. Records of one log must come in the order they stand."""

    def __init__(self, verify_signature: Verifier, checkpoints: Sequence[Checkpoint] = ()) -> None:
        self._verify_signature = verify_signature
        self._checkpoints = {(point.validator, point.size): point for point in checkpoints}
        self.records = 0
        self._kinds: dict[str, int] = {}
        self._bodies = 0
        self._heads: dict[str, Head] = {}
        self._trees: dict[str, MerkleFrontier] = {}
        self._defects: list[Defect] = []
        self._defect_count = 0
        self._attempts: dict[tuple[str, str, str], int] = {}  # validator, attempt, body -> seq
        self._unreadable: set[str] = set()  # validators with a record that may once have been any other
        self._evaluations: dict[tuple[str, str, str], int] = {}  # the same of evaluations -> seq
        self._evaluated: set[tuple[str, str]] = set()  # validator, body
        self._verdicts: dict[tuple[str, str], int] = {}  # validator, body -> first seq
        self._counted: dict[tuple[str, ...], int] = {}

    def head(self, validator: str) -> Head:
        """Where a log stands after what was taken."""
        return self._heads.get(validator) or first_head(validator)

    def take(
        self, record: SignedRecord, content: RecordContent | None, bodies: Mapping[tuple[str, str], bytes]
    ) -> None:
        """Check one record. `content` None: its bytes do not decode. `bodies` holds the body it names, if stored, under
        validator and hash."""
        self.records += 1
        message = signing_message(record.validator, record.seq, record.prev, record.content_sha256)
        self._check_place(record)
        self._check_seal(record, message)
        tree = self._trees.setdefault(record.validator, MerkleFrontier())
        tree.append(message)
        self._heads[record.validator] = head_after(record)
        point = self._checkpoints.pop((record.validator, tree.size), None)
        if point and point != checkpoint_of(record.validator, tree):
            self._report(record, "checkpoint", f"the log of {tree.size} records does not have the signed root")
        if content is None or content.version != RECORD_VERSION:
            self._unreadable.add(record.validator)
            self._report(record, "schema", "the content is not a record of this version")
            return
        kind = str(content.payload.__struct_config__.tag)
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        self._note(record, content.payload)
        if isinstance(content.payload, EvaluationRecord):
            self._bodies += 1
            wrong = _body_defect(content.payload, bodies.get((record.validator, content.payload.body_sha256)))
            if wrong:
                self._report(record, "body", wrong)

    def expect_head(self, validator: str, head: Head) -> None:
        """Say where a log must end."""
        if head != self.head(validator):
            detail = f"the head says {head.seq} records, the log ends at {self.head(validator).seq}"
            self._add(Defect(validator=validator, seq=self.head(validator).seq + 1, rule="tail", detail=detail))

    def report(self) -> VerifyReport:
        """Check what records say about each other, and sum up. Call once, at the end."""
        for key, seq in self._evaluations.items():
            if key not in self._attempts:
                self._add(_defect(key[0], seq, "attempt", f"no attempt record says that {key[1]} made body {key[2]}"))
        for key, seq in self._attempts.items():
            if key not in self._evaluations and key[0] not in self._unreadable:
                self._add(_defect(key[0], seq, "evaluation", f"no evaluation says what attempt {key[1]} came to"))
        for (validator, body), seq in self._verdicts.items():
            if (validator, body) not in self._evaluated:
                self._add(_defect(validator, seq, "verdict", f"no evaluation names body {body}"))
        for point in self._checkpoints.values():
            detail = f"the checkpoint says {point.size} records, the log has {self.head(point.validator).seq}"
            self._add(_defect(point.validator, self.head(point.validator).seq + 1, "checkpoint", detail))
        return VerifyReport(
            records=self.records,
            kinds=dict(sorted(self._kinds.items())),
            bodies=self._bodies,
            logs=tuple(
                LogFacts(head=head, checkpoint=checkpoint_of(validator, self._trees[validator]))
                for validator, head in sorted(self._heads.items())
            ),
            defects=tuple(sorted(self._defects, key=lambda defect: (defect.validator, defect.seq))),
            defect_count=self._defect_count,
        )

    def _check_place(self, record: SignedRecord) -> None:
        head = self.head(record.validator)
        if record.seq != head.seq + 1:
            self._report(record, "sequence", f"record {head.seq + 1} was expected here")
        elif record.prev != head.hash:
            self._report(record, "chain", f"it does not follow record {head.seq}")

    def _check_seal(self, record: SignedRecord, message: bytes) -> None:
        if hashlib.sha256(record.content).hexdigest() != record.content_sha256:
            self._unreadable.add(record.validator)
            self._report(record, "content", "the content does not have the hash that was signed")
        if not self._verify_signature(record.validator, message, bytes.fromhex(record.signature)):
            self._report(record, "signature", f"it is not signed by {record.validator}")

    def _note(self, record: SignedRecord, payload: Payload) -> None:
        validator = record.validator
        if isinstance(payload, AttemptRecord):
            if payload.ended == "evaluated":
                self._attempts.setdefault((validator, payload.attempt_id, payload.body_sha256), record.seq)
        elif isinstance(payload, VerdictRecord):
            self._verdicts.setdefault((validator, payload.verdict.body_sha256), record.seq)
        elif isinstance(payload, EvaluationRecord):
            self._evaluated.add((validator, payload.body_sha256))
            self._evaluations.setdefault((validator, payload.attempt_id, payload.body_sha256), record.seq)
            if isinstance(payload.outcome, OutcomeScore):
                self._count(record, payload)

    def _count(self, record: SignedRecord, payload: EvaluationRecord) -> None:
        context = payload.context
        key = (
            record.validator,
            context.stage,
            context.race_id,
            context.problem_id,
            payload.subject.agent_version_id,
        )
        first = self._counted.setdefault(key, record.seq)
        if first != record.seq:
            self._report(record, "double", f"record {first} already counts for this agent, problem and stage")

    def _report(self, record: SignedRecord, rule: Rule, detail: str) -> None:
        self._add(_defect(record.validator, record.seq, rule, detail))

    def _add(self, defect: Defect) -> None:
        self._defect_count += 1
        if len(self._defects) < DEFECTS_KEPT:
            self._defects.append(defect)


def _defect(validator: str, seq: int, rule: Rule, detail: str) -> Defect:
    return Defect(validator=validator, seq=seq, rule=rule, detail=detail)


def _body_defect(record: EvaluationRecord, content: bytes | None) -> str:
    """What is wrong with an evaluation's body, or ""."""
    if content is None:
        return f"body {record.body_sha256} is not stored"
    if hashlib.sha256(content).hexdigest() != record.body_sha256:
        return f"the bytes of body {record.body_sha256} were changed"
    try:
        body = decode_body(content)
    except ArenaError as error:
        return error.failure.detail
    pairs = {
        "agent": (record.subject.agent_sha256, body.agent_sha256),
        "problem": (record.context.problem_id, body.problem_id),
        "policy": (record.conditions.policy_sha256, body.policy_sha256),
        "stop": (record.stop, body.stop),
        "failure": (record.failure, body.failure),
        "is_agentic": (record.is_agentic, body.is_agentic),
        "totals": (record.totals, body.totals),
    }
    other = [name for name, (stated, held) in pairs.items() if stated != held]
    return f"the body holds another {', '.join(other)} than the record states" if other else ""
