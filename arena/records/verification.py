"""Verification of whole logs: every record inspected, then held against the ones before it and against checkpoints.

Verifying trusts nothing but the caller's signature check; it hashes the bytes it is given and never
re-canonicalises. Any changed byte, dropped, doubled or swapped record becomes a `Defect` that names the first record
concerned; a cut tail needs the head (or a checkpoint) to be seen. Memory does not grow with the bytes of a log, only
with its number of records. It reads and never writes. Wherever records are inspected, from a store or an export, it is
one path: entries -> `inspect` -> `LogCheck`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from arena.chain.port import Subtensor, Verifier
from arena.records import model
from arena.records.body import restore_frame
from arena.records.inspection import RecordFinding, Rule, inspect
from arena.records.log import (
    SHA256,
    Checkpoint,
    LogStart,
    LogWalk,
    agent_version_id,
    cluster_commitment,
    commitment_sha256,
    note_sha256,
    read_checkpoint,
    require_anchor,
)
from arena.records.port import RecordStore, StoredSource
from foundation.codes import VERIFIER_DIED
from foundation.errors import ArenaError
from foundation.executors import HERE, Executor
from foundation.long_work import PhaseProgress, rare_collections
from problems.model import OutcomeScore

DEFECTS_KEPT = 1000
_EVALUATION = str(model.EvaluationRecord.__struct_config__.tag)


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one record. For a checkpoint or an anchor, `seq` is its last record."""

    validator: str
    seq: int
    rule: Rule
    detail: str


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where one verified log ends."""

    head: model.Head
    checkpoint: Checkpoint


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result: counts, the end of each log, and defects in (validator, seq) order (at most `DEFECTS_KEPT`)."""

    records: int  # everything that was taken, whole or not
    kinds: dict[str, int]  # whole records of formats this release reads
    bodies: int
    logs: tuple[LogFacts, ...]
    defects: tuple[Defect, ...]
    defect_count: int
    stubs: int = 0  # records given without their content: chain, tree and signature were checked
    checkpoints: int = 0  # signed checkpoints the logs were compared with
    anchors: int = 0  # stored checkpoints that are said to be committed on chain
    anchors_checked: int = 0  # of them, compared with the chain just now
    sources: int = 0  # agents' files that were compared with what names them

    @property
    def is_ok(self) -> bool:
        """True when nothing is wrong."""
        return self.defect_count == 0


class _RaceReferences(msgspec.Struct):
    """What one log says of one race. `contexts`: the distinct ones of its records, each with its first record."""

    contexts: dict[model.Context, int] = {}
    settlement: tuple[int, model.SettlementRecord] | None = None
    release: tuple[int, model.ReleaseRecord] | None = None


# What is said of a record that refers to what no record of its log states, by what it would take.
_LACKING: dict[Rule, str] = {
    "attempt": "no attempt record says that {} made body {}",
    "evaluation": "no evaluation says what attempt {} came to",
    "verdict": "no evaluation names body {}",
    "gate": "no verdict of the gate on {.agent_version_id} stands before it",
}


class References:
    """The facts of all logs, kept by validator: one's records never speak for another's."""

    def __init__(self) -> None:
        self._stated: dict[tuple[Any, ...], int] = {}  # rule, validator and fact -> the first record that states it
        self._wanted: dict[tuple[Any, ...], int] = {}  # the same -> the first record that refers to it
        self._races = defaultdict[tuple[str, str], _RaceReferences](_RaceReferences)  # by validator and race

    def take(self, validator: str, seq: int, payload: model.Payload) -> tuple[Rule, str] | None:
        """Note one record; what is wrong with it beside the ones before, or None."""
        stated, wanted = self._stated.setdefault, self._wanted.setdefault
        if (
            isinstance(payload, model.AttemptRecord | model.EvaluationRecord | model.VerdictRecord)
            and payload.context.stage == "race"
        ):
            self._races[validator, payload.context.race_id].contexts.setdefault(payload.context, seq)
        match payload:
            case model.AttemptRecord(ended="evaluated"):
                stated(("attempt", validator, payload.attempt_id, payload.body_sha256), seq)
                wanted(("evaluation", validator, payload.attempt_id, payload.body_sha256), seq)
            case model.EvaluationRecord():
                stated(("evaluation", validator, payload.attempt_id, payload.body_sha256), seq)
                stated(("verdict", validator, payload.body_sha256), seq)
                wanted(("attempt", validator, payload.attempt_id, payload.body_sha256), seq)
                context, about = payload.context, (payload.subject.agent_version_id, payload.conditions.policy_sha256)
                key = ("double", validator, context.stage, context.race_id, context.problem_id, *about)
                if isinstance(payload.outcome, OutcomeScore) and (first := stated(key, seq)) != seq:
                    return "double", f"record {first} already counts for this agent, problem, stage and policy"
            case model.VerdictRecord():
                wanted(("verdict", validator, payload.verdict.body_sha256), seq)
            case model.SettlementRecord():
                race = self._races[validator, payload.race_id]
                if race.settlement:
                    return "settlement", f"record {race.settlement[0]} already settles race {payload.race_id}"
                race.settlement = (seq, payload)
            case model.ReleaseRecord():
                race = self._races[validator, payload.race_id]
                if race.release:
                    return "release", f"record {race.release[0]} already releases race {payload.race_id}"
                race.release = (seq, payload)
            case model.GateRecord(decided_by="gate"):
                stated(("gate", validator, payload.subject), seq)
            case model.GateRecord() if ("gate", validator, payload.subject) not in self._stated:
                wanted(("gate", validator, payload.subject, "before"), seq)
        return None

    def defects(self, whole: Collection[str]) -> Iterator[tuple[str, int, Rule, str]]:
        """What does not hold between the records taken: validator, record, rule and detail. `whole`: the validators
        whose logs were read from their first record on, every one."""
        for key, seq in self._wanted.items():
            rule, validator, *about = key
            if validator in whole and key not in self._stated:
                yield validator, seq, rule, _LACKING[rule].format(*about)
        for (validator, _), race in self._races.items():
            found: list[tuple[int, Rule, str]] = []
            if race.settlement:
                found += _settlement_defects(*race.settlement, race.contexts)
            if race.release:
                found += _release_defects(*race.release, race.contexts)
            if race.settlement and race.release:
                (seq, settled), (released_at, released) = race.settlement, race.release
                if released.batch_sha256 != settled.batch_sha256:
                    found.append(
                        (released_at, "release", f"record {seq} settled another batch of race {settled.race_id}")
                    )
                elif missing := set(settled.drawn) - {problem.problem_id for problem in released.problems}:
                    found.append((released_at, "release", f"drawn problem {min(missing)} is not released"))
            yield from ((validator, *defect) for defect in found)


def _settlement_defects(
    seq: int, settled: model.SettlementRecord, contexts: dict[model.Context, int]
) -> Iterator[tuple[int, Rule, str]]:
    """A settlement against itself, and the race's records that name a batch against it."""
    drawn = set(settled.drawn)
    if len(settled.uids) != len(settled.weights_u16) or not set(settled.void) <= drawn:
        yield seq, "settlement", "its weights do not fit its uids, or a void problem was not drawn"
    for context, stated_at in contexts.items():
        if not context.batch_sha256:
            continue
        if context.batch_sha256 != settled.batch_sha256:
            yield stated_at, "settlement", f"record {seq} settles another batch of race {settled.race_id}"
        elif settled.state == "settled" and context.problem_id not in drawn:
            yield stated_at, "settlement", f"{context.problem_id} was not drawn, says record {seq}"


def _release_defects(
    seq: int, released: model.ReleaseRecord, contexts: dict[model.Context, int]
) -> Iterator[tuple[int, Rule, str]]:
    """The race's records against the clusters its release opens: the salt turns each into what was committed to."""
    if not SHA256.fullmatch(released.salt):
        yield seq, "release", "a salt is 64 lower-case hex digits"
        return
    clusters = {problem.problem_id: problem.cluster_id for problem in released.problems}
    for context, stated_at in contexts.items():
        if context.batch_sha256 and context.batch_sha256 != released.batch_sha256:
            yield stated_at, "release", f"record {seq} releases another batch of race {released.race_id}"
        elif context.cluster_commitment and context.problem_id not in clusters:
            yield stated_at, "release", f"{context.problem_id} is not among the problems record {seq} releases"
        elif context.cluster_commitment and context.cluster_commitment != cluster_commitment(
            released.salt, context.problem_id, clusters[context.problem_id]
        ):
            yield stated_at, "release", f"its cluster commitment does not open with the salt of record {seq}"


class LogCheck:
    """The running state over any number of logs. Records of one log must come in the order they stand.

    `checkpoints`: signed states the logs must contain, their signatures checked (`read_checkpoint`). `starts`: where
    logs begin that are not given from their first record. Raises ArenaError V2050 for a start that is malformed and for
    a checkpoint before its log's start, which could not be checked.
    """

    def __init__(self, checkpoints: Iterable[Checkpoint] = (), *, starts: Iterable[LogStart] = ()) -> None:
        self.counts = Counter[str]()  # by field of the report
        self._logs = {start.validator: LogWalk(start) for start in starts}
        self._points: dict[tuple[str, int], set[Checkpoint]] = {}
        self._references = References()
        self._kinds = Counter[str]()
        self._defects: list[Defect] = []
        self._defect_count = 0
        for point in checkpoints:
            self.expect_checkpoint(point)

    def head(self, validator: str) -> model.Head:
        """Where a log stands after what was taken."""
        return self._log(validator).head

    def expect_checkpoint(self, point: Checkpoint) -> None:
        """Name a signed state the log must contain. Raises ArenaError V2050 when the log is beyond it already."""
        log = self._log(point.validator)
        self.counts["checkpoints"] += 1
        if point.size < log.tree.size:
            raise ArenaError("V2050", f"a checkpoint of {point.size} records, the check begins after {log.tree.size}")
        self._points.setdefault((point.validator, point.size), set()).add(point)
        self._check_points(log)

    def take(self, finding: RecordFinding) -> None:
        """Take the next record, whole or as a stub."""
        self.counts["records"] += 1
        for rule, detail in finding.faults:
            self.report_defect(finding.validator, finding.seq, rule, detail)
        log = self._log(finding.validator)
        if not finding.is_envelope:
            log.is_whole = False
            return
        if wrong := log.misplaced(finding):
            self.report_defect(log.validator, finding.seq, *wrong)
        log.take(finding)
        self._check_points(log)
        self.counts["stubs"] += finding.is_stub
        if finding.payload is None or any(rule == "content" for rule, _ in finding.faults):
            log.is_whole = False  # it may once have been, or may be, whatever another record refers to
        if finding.payload is not None:
            self._kinds[str(finding.payload.__struct_config__.tag)] += 1
            if found := self._references.take(finding.validator, finding.seq, finding.payload):
                self.report_defect(finding.validator, finding.seq, *found)

    def take_source(self, kept: StoredSource) -> None:
        """Hold an agent's file that is kept beside a log against the hashes by which records and the chain name it."""
        self.counts["sources"] += 1
        subject, wrong = kept.subject, ""
        if hashlib.sha256(kept.source).hexdigest() != subject.agent_sha256:
            wrong = "its source does not have the hash that was submitted"
        elif agent_version_id(subject.miner_hotkey, subject.agent_sha256) != subject.agent_version_id:
            wrong = "its id does not follow from its miner and its source"
        elif commitment_sha256(subject.miner_hotkey, kept.source.decode(errors="replace")) != subject.commitment_sha256:
            wrong = "its source is not the one that stands on chain"
        if wrong:
            self.report_defect(kept.validator, 0, "source", f"agent {subject.agent_version_id}: {wrong}")

    def report_defect(self, validator: str, seq: int, rule: Rule, detail: str) -> None:
        """Add a defect that was found elsewhere (a stored checkpoint that is not signed)."""
        self._defect_count += 1
        if len(self._defects) < DEFECTS_KEPT:
            self._defects.append(Defect(validator=validator, seq=seq, rule=rule, detail=detail))

    def report(self) -> VerifyReport:
        """Check what records say about each other, and sum up. Call once, at the end."""
        whole = {validator for validator, log in self._logs.items() if log.is_whole}
        for validator, seq, rule, detail in self._references.defects(whole):
            self.report_defect(validator, seq, rule, detail)
        for (validator, size), points in self._points.items():
            for _ in points:
                detail = f"the checkpoint says {size} records, the log has {self.head(validator).seq}"
                self.report_defect(validator, self.head(validator).seq + 1, "checkpoint", detail)
        return VerifyReport(
            kinds=dict(sorted(self._kinds.items())),
            bodies=self._kinds[_EVALUATION],
            logs=tuple(
                LogFacts(head=log.head, checkpoint=log.checkpoint)
                for _, log in sorted(self._logs.items())
                if log.tree.size
            ),
            defects=tuple(sorted(self._defects, key=lambda defect: (defect.validator, defect.seq))),
            defect_count=self._defect_count,
            **{"records": 0} | self.counts,
        )

    def _log(self, validator: str) -> LogWalk:
        if validator not in self._logs:
            self._logs[validator] = LogWalk(LogStart(validator=validator))
        return self._logs[validator]

    def _check_points(self, log: LogWalk) -> None:
        """Compare the tree with the checkpoints of its size, where there are any."""
        for point in self._points.pop((log.validator, log.tree.size), ()):
            if point != log.checkpoint:
                detail = f"the log of {point.size} records does not have the signed root"
                self.report_defect(log.validator, log.seq, "checkpoint", detail)


T = TypeVar("T")
BATCH = 128  # records that are read, inspected and taken together


async def verify_store(
    store: RecordStore,
    verify_signature: Verifier,
    *,
    checkpoints: Sequence[Checkpoint] = (),
    sources: AsyncIterable[StoredSource] | None = None,
    subtensor: Subtensor | None = None,
    executor: Executor = HERE,
    progress: PhaseProgress | None = None,
) -> VerifyReport:
    """Verify every log of a store against its heads, its stored checkpoints and these. Records appended meanwhile are
    verified too.

    `sources`: the agents' files that are kept beside the logs. `subtensor`: compare anchors with the chain; without it
    they are counted as unchecked. `executor`: who inspects records; `verify_signature` is a function of a module, so
    that other processes can import it. Raises ArenaError V2021, V2052 for records that are lost again and again with
    their process, and U3030 when the chain is away.
    """
    check, loop, is_over = LogCheck(checkpoints), asyncio.get_running_loop(), False

    def look(stretch: _Stretch) -> bytes:
        return _inspected(verify_signature, asyncio.run_coroutine_threadsafe(_read(store, stretch), loop).result())

    def take(stretches: Sequence[_Stretch]) -> None:
        """On a thread. Other processes read for themselves, so that they send findings and are sent nothing."""
        is_alone = len(stretches) == 1 or not executor.slots
        work = look if is_alone else functools.partial(_inspect_stretch, verify_signature, store.reopen)
        jobs = itertools.takewhile(lambda _: not is_over, stretches)
        for packed in (HERE if is_alone else executor).map(work, jobs, died=VERIFIER_DIED):
            for finding in _FINDINGS.decode(packed):
                check.take(finding)
            if progress:
                progress(check.counts["records"], 0)

    with rare_collections():
        for validator in await store.validators():
            stored = await store.checkpoints(validator)
            _expect_stored(check, validator, stored, verify_signature)
            while True:  # up to a head that did not move while its records were read
                before = check.head(validator)
                ends = [before.seq, *await store.every_seq(validator, BATCH, before.seq), None]
                stretches = [(validator, behind or 0, end) for behind, end in itertools.pairwise(ends)]
                try:
                    await asyncio.to_thread(take, stretches)
                except BaseException:
                    is_over = True  # a thread can't be cancelled
                    raise
                head = await store.head(validator)
                if head == check.head(validator) or before == check.head(validator):
                    break
            if head != (end := check.head(validator)):
                detail = f"the head says {head.seq} records, the log ends at {end.seq}"
                check.report_defect(validator, end.seq + 1, "tail", detail)
            for checkpoint in stored:
                if checkpoint.anchor_block and checkpoint.note:
                    await _check_anchor(check, checkpoint, subtensor, verify_signature)
        if sources is not None:
            async for kept in sources:
                check.take_source(kept)
    return check.report()


def _expect_stored(
    check: LogCheck, validator: str, stored: Sequence[model.StoredCheckpoint], verify_signature: Verifier
) -> None:
    """Hold the log against its stored checkpoints; one that is not what it is stored as is a defect."""
    for checkpoint in stored:
        if not checkpoint.note:
            detail = f"block {checkpoint.anchor_block} is said to anchor it, and it is not stored"
            check.report_defect(validator, checkpoint.size, "checkpoint", detail)
            continue
        try:
            point = read_checkpoint(checkpoint.note, verify_signature)
        except ArenaError as error:
            check.report_defect(validator, checkpoint.size, "checkpoint", error.failure.detail)
            continue
        if (point.validator, point.size) == (validator, checkpoint.size):
            check.expect_checkpoint(point)
        else:
            detail = f"stored as of {checkpoint.size} records, signed by {point.validator} of {point.size}"
            check.report_defect(validator, checkpoint.size, "checkpoint", detail)


async def _check_anchor(
    check: LogCheck, checkpoint: model.StoredCheckpoint, subtensor: Subtensor | None, verify_signature: Verifier
) -> None:
    """Ask the chain whether it held this checkpoint in the block its anchor names; and the store, of which hash."""
    is_other = checkpoint.anchored_sha256 not in ("", note_sha256(checkpoint.note))
    wrong = "its anchor is stored under another hash than its note has" if is_other else ""
    if subtensor is not None:
        commitment = await subtensor.commitment(checkpoint.validator, checkpoint.anchor_block)
        try:
            require_anchor(checkpoint, commitment, verify_signature)
        except ArenaError as error:
            wrong = error.failure.detail
    check.counts.update(anchors=1, anchors_checked=subtensor is not None)
    if wrong:
        check.report_defect(checkpoint.validator, checkpoint.size, "anchor", wrong)


_ENTRIES = msgspec.msgpack.Decoder(list[model.Entry])
_FINDINGS = msgspec.msgpack.Decoder(list[RecordFinding])
_Stretch = tuple[str, int, int | None]  # of a validator's log: behind which record, up to which one (None: its end)
_Reopen = Callable[[], Coroutine[Any, Any, RecordStore]]


def inspect_all(
    verify_signature: Verifier, executor: Executor, batches: Iterable[list[model.Entry]]
) -> Iterator[list[RecordFinding]]:
    """What each record is by itself, in order. Batches go to other processes as MessagePack, a fifth of what pickle
    costs. Raises ArenaError V2052 for records that are lost again and again."""
    look, jobs = functools.partial(_inspect_packed, verify_signature), map(msgspec.msgpack.encode, batches)
    yield from map(_FINDINGS.decode, executor.map(look, jobs, died=VERIFIER_DIED))


def _inspect_packed(verify_signature: Verifier, packed: bytes) -> bytes:
    return _inspected(verify_signature, _ENTRIES.decode(packed))


def _inspected(verify_signature: Verifier, entries: list[model.Entry]) -> bytes:
    return msgspec.msgpack.encode([inspect(entry, verify_signature) for entry in entries])


def _inspect_stretch(verify_signature: Verifier, reopen: _Reopen, stretch: _Stretch) -> bytes:
    runner, store = _reopened(reopen)
    return _inspected(verify_signature, runner.run(_read(store, stretch)))


@functools.cache  # a process of an executor reads on until it ends
def _reopened(reopen: _Reopen) -> tuple[asyncio.Runner, RecordStore]:
    runner = asyncio.Runner()
    return runner, runner.run(reopen())


async def _read(store: RecordStore, stretch: _Stretch) -> list[model.Entry]:
    """The entries of a stretch, each evaluation with the body it names where one is stored."""
    entries = [entry async for entry in store.filed_records(*stretch)]
    named = {
        entry.seq: entry.filing.body_sha256
        for entry in entries
        if entry.filing and entry.filing.kind == _EVALUATION and entry.filing.body_sha256
    }
    found: dict[str, model.BodyFrame] = {}
    for body in await store.frames(sorted(set(named.values())), stretch[0]) if named else ():
        is_first = found.setdefault(body.body_sha256, body) is body
        if not is_first and hashlib.sha256(restore_frame(body.content, body.size)).hexdigest() != body.body_sha256:
            found[body.body_sha256] = body  # of several copies a damaged one is to be seen
    return [
        msgspec.structs.replace(entry, body=frame.content, frame_size=frame.size)
        if (frame := found.get(named.get(entry.seq, "")))
        else entry
        for entry in entries
    ]


async def batches_of(rows: AsyncIterable[T], size: int = BATCH) -> AsyncIterator[list[T]]:
    """What comes, `size` at a time."""
    batch: list[T] = []
    async for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
