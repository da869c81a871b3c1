"""Records: what a validator states, for ever. One tagged payload per kind, one signed, chained log per hotkey.

Canonical bytes of `RecordContent` are what is hashed, signed and stored; the schema is versioned and
snapshot-tested; nothing here names a clock except `recorded_ms`, which the sequencer sets
(docs/architecture.md#records).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foundation.errors import Failure
from harness.sandbox.port import SandboxLevel
from harness.trace import StopReason, Totals
from judge.verdict import UnscoredVerdict, Verdict
from problems.model import OutcomeScore, Pool, UnscoredOutcome, variant_id

RECORD_VERSION = 1
SIGNATURE_DOMAIN = b"agent-arena/record/1"

Stage = Literal["qualifying", "race", "local"]
Hold = Literal["", "heuristic", "likeness"]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Which agent, whose, and where the chain says so."""

    agent_version_id: str
    miner_hotkey: str
    agent_sha256: str
    commitment_block: int = 0
    commitment_sha256: str = ""

    @property
    def is_control(self) -> bool:
        """Nobody's agent: a control agent that a validator ran beside the field (`arena.race.scores`)."""
        return not self.miner_hotkey


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Which problem, in which stage and race. Answers and clusters stand here as commitments only."""

    stage: Stage
    race_id: str
    problem_id: str
    suite: str = ""  # qualifying: the active suite
    batch_sha256: str = ""  # race: the sealed batch release
    partition_sha256: str = ""
    cluster_commitment: str = ""  # keyed HMAC, opened at release
    variant_seed: str = ""  # qualifying: the variant under this seed was asked; "": the problem itself

    @property
    def asked_id(self) -> str:
        """The id of the problem that the agent was given: a variant has its own (`problems.suites`)."""
        return variant_id(self.problem_id, self.variant_seed) if self.variant_seed else self.problem_id


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Under which rules, code and jail."""

    policy_sha256: str
    scoring_pipeline: str
    code_commit: str
    sandbox: SandboxLevel


class EvaluationRecord(msgspec.Struct, frozen=True, kw_only=True, tag="evaluation", tag_field="kind"):
    """One episode and its outcome. The body is content-addressed by `body_sha256`."""

    attempt_id: str
    subject: Subject
    context: Context
    conditions: Conditions
    body_sha256: str
    stop: StopReason
    failure: Failure | None
    is_agentic: bool
    totals: Totals
    outcome: OutcomeScore | UnscoredOutcome


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True, tag="verdict", tag_field="kind"):
    """A verdict on a body, or why there is none yet."""

    subject: Subject
    context: Context
    verdict: Verdict | UnscoredVerdict


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, tag="attempt", tag_field="kind"):
    """One leased attempt at an evaluation, however it ended. An `evaluated` one names the body it produced."""

    attempt_id: str  # "<work item>:<fence>"
    subject: Subject
    context: Context
    ended: Literal["evaluated", "faulted", "abandoned"]
    is_closing: bool = False  # this work item is not tried again: the result stays missing
    body_sha256: str = ""
    failure: Failure | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a settled race. Intervals are 95 % bootstrap, ten-thousandths."""

    rank: int
    agent_version_id: str
    miner_hotkey: str
    race_score_e4: int
    low_e4: int
    high_e4: int
    success_e4: int
    mean_quality_e4: int
    product_of_means_e4: int  # the run-level figure, published beside the score
    agentic_share_e4: int
    problems: int
    missing: int
    crown_score_e4: int = 0  # what promotion compares: the race score, or the window's weighted score
    is_eliminated: bool = False  # leaves later races (policies that eliminate)
    wins: int = 0  # problems scored higher, and lower, than the incumbent on the same problem
    losses: int = 0
    faulted: int = 0  # problems scored 0 for faults, under a policy with a control agent


class HeldEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What one hotkey holds against the top agent. `millionths`: by left-out validator, then by stake."""

    miner_hotkey: str
    races: int
    millionths: tuple[tuple[int, ...], ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of all hotkeys in one reign, as a race carries it to the next (`arena.race.weights`).

    `left_out`: the validators of which one is left out, behind "" for nobody.
    """

    left_out: tuple[str, ...] = ("",)
    held: tuple[HeldEvidence, ...] = ()


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Whose an agent is, under policies with classes of likeness (`arena.gate.likeness`).

    `owner`: the coldkey of its hotkey in the block of its commitment; `head`: the agent version at the head of its
    class, "" for nobody's; `order`: where its commitment stands among the extrinsics of that block.
    """

    owner: str
    head: str
    order: int


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version that wants to race. `qualifying_score_e4` is its lower median over validators, where stated;
    `origin` is what most of them say."""

    subject: Subject
    qualifying_score_e4: int | None
    is_incumbent: bool = False
    origin: Origin | msgspec.UnsetType = msgspec.UNSET

    @property
    def owner(self) -> str:
        """Who has one seat, one place and one share: the coldkey where it is stated, else the hotkey."""
        return (self.origin.owner if self.origin else "") or self.subject.miner_hotkey

    @property
    def head(self) -> str:
        """The agent version at the head of its class of likeness, itself where none is stated; "" for nobody's."""
        return self.origin.head if self.origin else self.subject.agent_version_id

    @property
    def place(self) -> tuple[int, int, str]:
        """Sorts commitments: by block and extrinsic, which nobody can grind."""
        order = self.origin.order if self.origin else 0
        return (self.subject.commitment_block, order, self.subject.agent_version_id)


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The agent at the top, and since when (the close of the race that promoted it)."""

    agent_version_id: str
    miner_hotkey: str
    promoted_ms: int


class SettlingNeuron(msgspec.Struct, frozen=True, kw_only=True):
    """A hotkey that matters to a race (of its field, its top or its validators) as registered at the settling block."""

    uid: int
    hotkey: str
    stake_rao: int
    coldkey: str | msgspec.UnsetType = msgspec.UNSET


class CountedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log whose records count, up to the checkpoint that the chain held at the settling block."""

    validator: str
    note_sha256: str
    size: int
    root: str


class PastSettlement(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier settlement that this one depends on, by the hash of its canonical bytes."""

    race_id: str
    settlement_sha256: str


class RaceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a settlement follows from, beside the records of the counted logs: enough to compute it again from records
    alone. Every tuple is sorted, so that equal inputs are equal bytes."""

    policy: str  # what the policy states (`Policy.stated`), whose hash the settlement names
    problem_ids: tuple[str, ...]  # of the sealed batch
    closes_ms: int
    field: tuple[Candidate, ...]
    validators: tuple[str, ...]
    neurons: tuple[SettlingNeuron, ...]
    incumbent: Top | None
    history: tuple[PastSettlement, ...]  # oldest first
    eliminated: tuple[str, ...]  # agents that left the races before this one
    logs: tuple[CountedLog, ...]
    beacon_network: str
    beacon_signature: str  # hex; "" where nothing was drawn
    undrawn_why: str


class SettlementRecord(msgspec.Struct, frozen=True, kw_only=True, tag="settlement", tag_field="kind"):
    """The settled race: inputs by hash, standings, promotion and the weights that follow.

    `inputs` is None in records of releases that did not state them.
    """

    race_id: str
    policy_sha256: str
    closing_block: int
    settling_block: int
    beacon_round: int
    seed: str
    batch_sha256: str
    record_set_sha256: str
    drawn: tuple[str, ...]
    void: tuple[str, ...]
    state: Literal["settled", "cancelled"]
    reason: str = ""
    standings: tuple[Standing, ...]
    top_agent_version_id: str
    is_promotion: bool
    uids: tuple[int, ...]  # evidence, of the settling block; what is set on chain: `arena.race.machine.vector_at`
    weights_u16: tuple[int, ...]
    inputs: RaceInputs | None = None
    evidence: Evidence | msgspec.UnsetType = msgspec.UNSET  # against the top agent, where the policy crowns by it
    places: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # who is paid, best first, where classes share


class ReleasedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a released batch. `cluster_id` is what the salt opens `Context.cluster_commitment` to."""

    problem_id: str
    pool: Pool
    cluster_id: str


class ReleaseRecord(msgspec.Struct, frozen=True, kw_only=True, tag="release", tag_field="kind"):
    """The race's problems become public: each with its pool and cluster, and the salt that opens the commitments.

    `opens_ms`: until then source and traces of the race are under embargo (`arena.visibility`); 0: they are not.
    """

    race_id: str
    batch_sha256: str
    partition_sha256: str = ""
    problems: tuple[ReleasedProblem, ...]
    salt: str  # 32 bytes, hex
    opens_ms: int = 0


class GateRecord(msgspec.Struct, frozen=True, kw_only=True, tag="gate", tag_field="kind"):
    """What one validator says of one submission: the gate's verdict, or a person's on one that the gate held.

    The gate is deterministic, so the three hashes, the source's (in `subject`) and the rules' version are all it takes
    to repeat a verdict. No finding stands here: a record is read by others while a winner's source is still closed.
    """

    subject: Subject
    policy_sha256: str
    decided_by: Literal["gate", "person"]
    outcome: Literal["accept", "review", "reject"]
    severity: Literal["", "integrity", "security", "form"] = ""  # of a rejection by the gate
    hold: Hold = ""  # of a review: what it was held for
    rules_version: str = ""
    knowledge_sha256: str = ""  # catalogue ids, known texts and published agents that it was compared with
    neighbours_sha256: str = ""  # the submissions committed earlier, and the winners revealed by then
    origin: Origin | msgspec.UnsetType = msgspec.UNSET


Payload = EvaluationRecord | VerdictRecord | AttemptRecord | SettlementRecord | ReleaseRecord | GateRecord


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the host that never influence a score."""

    machine: str = ""
    cores: int = 0
    episode_ms: int = 0
    agent_time_ms: int = 0
    model_ms: int = 0


class RecordContent(msgspec.Struct, frozen=True, kw_only=True):
    """What is hashed and signed."""

    version: int = RECORD_VERSION
    recorded_ms: int  # unix milliseconds at append
    blind: str = ""  # 16 random bytes, hex: the content's hash can be published without saying anything about it
    host: HostFacts
    payload: Payload


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """Where a record stands in its log, what it holds by hash, and its signature: all that chain and tree need. Hex."""

    validator: str
    seq: int
    prev: str  # hash of the record before
    content_sha256: str
    signature: str  # 64 bytes


class SignedRecord(Envelope, frozen=True, kw_only=True):
    """A record as it stands in the log. `content` holds the canonical bytes."""

    content: bytes


class Head(msgspec.Struct, frozen=True):
    """The end of one validator's log: hash(0) = sha256(validator), hash(n) = sha256(hash(n-1) || sha(n))."""

    seq: int
    hash: str


class Filing(msgspec.Struct, frozen=True, array_like=True):
    """What a record is found by. `body_sha256`: hex, "" for a record that names no body."""

    kind: str
    race_id: str
    body_sha256: str


def filing_of(payload: Payload) -> Filing:
    """What a store finds a record of this payload by; a NUL, which its texts can't hold, stands there as U+0001."""
    match payload:
        case GateRecord():
            race_id, body_sha256 = "", ""
        case SettlementRecord() | ReleaseRecord():
            race_id, body_sha256 = payload.race_id, ""
        case VerdictRecord():
            race_id, body_sha256 = payload.context.race_id, payload.verdict.body_sha256
        case EvaluationRecord() | AttemptRecord():
            race_id, body_sha256 = payload.context.race_id, payload.body_sha256
    return Filing(str(payload.__struct_config__.tag), race_id.replace("\0", "\1"), body_sha256.lower())


class StoredBody(msgspec.Struct, frozen=True, kw_only=True):
    """Canonical bytes of an EvaluationBody, content-addressed."""

    body_sha256: str
    content: bytes


class BodyFrame(StoredBody, frozen=True, kw_only=True):
    """A body at rest: one zstd frame of its canonical bytes. `size` is the number of bytes before compression."""

    size: int


class Entry(Envelope, frozen=True, kw_only=True, array_like=True):
    """One record as a store or an export holds it, and the body it names.

    `content` None makes it a stub: only chain, tree and signature can be checked. `body` is the canonical bytes of the
    body, or, where `frame_size` > 0, a zstd frame of that many bytes; None where none is stored. `filing`: what a store
    finds the record by, and whether it lies with the day it arrived on (`is_dated`); None in an export.
    """

    content: bytes | None
    body: bytes | None = None
    frame_size: int = 0
    filing: Filing | None = None
    is_dated: bool = True


def entry_of(record: Envelope, content: bytes | msgspec.Raw | None, body: msgspec.Raw | None = None) -> Entry:
    """A record that was read elsewhere, as it is looked at."""
    raw, shown = (None if part is None else bytes(part) for part in (content, body))
    return Entry(**envelope_of(record), content=raw, body=shown)


def envelope_of(record: Envelope) -> dict[str, Any]:
    """What surrounds a record's content, by name."""
    return {name: getattr(record, name) for name in Envelope.__struct_fields__}


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A signed checkpoint of a log (`arena.records.log`), and where the chain holds its sha256, once it
    does.

    `anchor_block` 0: not anchored. The anchor is a commitment of the validator's hotkey to sha256(note) in that block;
    `anchored_sha256` is the hash that the store keeps of it, "" for none. `note` "" with an anchor: the checkpoint is
    gone from the store, which no use of it allows.
    """

    validator: str
    size: int
    note: str
    signed_ms: int
    anchor_block: int = 0
    anchored_sha256: str = ""
