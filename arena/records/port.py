"""The store port: one log per validator, bodies by content, leases with fencing, and the arena's working state.

Promise of every adapter: an append either happens whole, with its bodies and the finish of its lease, or not at all;
an append for another hotkey is refused; a lease that was lost can't be finished. The server's clock decides expiry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

import msgspec

from arena.records.model import (
    BodyFrame,
    Context,
    Entry,
    Envelope,
    Head,
    SignedRecord,
    Stage,
    StoredBody,
    StoredCheckpoint,
    Subject,
)
from foundation.errors import ArenaError, Failure
from harness.inference.gateway import ModelUsage

RECORDS_PER_PAGE = 500

SubmissionState = Literal[
    "waiting", "withdrawn", "refused", "rejected", "review", "accepted", "qualified", "unqualified"
]
GATED: tuple[SubmissionState, ...] = ("rejected", "review", "accepted", "qualified", "unqualified")
EVERY_STATE: tuple[SubmissionState, ...] = ("waiting", "withdrawn", "refused", *GATED)


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    """One (agent, problem) for this validator to evaluate. `item_id` is derived from its content.

    Queues are per validator: which validators evaluate a pair follows from the race's assignment, so nobody can put an
    item into, or take one from, another's queue.
    """

    item_id: str
    subject: Subject
    context: Context


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed work item. `fence` is unique and grows.

    `faults` counts its earlier attempts that ended in a fault, whoever's. Two kinds of them use up what the policy
    allows, each its own cap: `counted`, faults of this validator, and `refused`, requests that an endpoint refused.
    """

    item: WorkItem
    validator: str
    fence: int
    expires_ms: int
    faults: int = 0
    counted: int = 0
    refused: int = 0

    @property
    def attempt_id(self) -> str:
        """Identity of this attempt in records."""
        return f"{self.item.item_id}:{self.fence}"


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """How an item goes back to the queue. It can't be claimed again before `delay_ms` have passed by the server's
    clock, and stands behind items that wait for nothing. The others raise the lease's counters."""

    delay_ms: int = 0
    is_fault: bool = False
    is_counted: bool = False
    is_refused: bool = False


class AgreedStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submission stood with all validators when a race's field was fixed: how many of `speakers` let it through
    the gate or rejected it, and how many passed it on the suite, with how many it takes."""

    is_racing: bool
    state: Literal["accepted", "rejected", "held", "cooldown"]
    accepts: int
    rejects: int
    speakers: int
    needed: int
    suite_passes: int
    suite_finished: int
    suite_needed: int
    allowed_block: int = 0  # of a cooldown


class StoredSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """A submission and where it stands, without its source: one row from the request that brought it to its last
    decision. It is judged by the commitment in its subject's block. `report` is the gate report as JSON text."""

    subject: Subject
    name: str
    state: SubmissionState
    submitted_ms: int = 0  # unix milliseconds, as its miner signed them
    signature: str = ""  # hex; "": none, the commitment speaks
    received_ms: int = 0  # unix milliseconds, by the server's clock
    report: str = ""
    failure: Failure | None = None  # why it was refused, or what a person said who rejected it
    qualifying_e4: int | None = None  # mean score on the suite, once it is known
    agreed: AgreedStanding | None = None  # at the last close, where several validators share races


class HotkeyState(msgspec.Struct, frozen=True, kw_only=True):
    """What a door has to know of one hotkey, all of one moment: its submissions in every state. `event` is the last of
    the stream asked for, or ""."""

    event: str
    submissions: tuple[StoredSubmission, ...]


class ItemCount(msgspec.Struct, frozen=True, kw_only=True):
    """Work items of one agent in one race ("" for qualifying): how many are done, and how many there are."""

    stage: Stage
    race_id: str
    done: int
    total: int


class StoredSource(msgspec.Struct, frozen=True, kw_only=True):
    """The agent file of a submission as a validator keeps it, byte for byte."""

    validator: str
    subject: Subject
    source: bytes


class WeightsResult(msgspec.Struct, frozen=True, kw_only=True):
    """One try at setting weights, as the chain answered."""

    race_id: str
    block: int
    uids: tuple[int, ...]
    weights_u16: tuple[int, ...]
    status: Literal["ok", "rate_limited", "not_registered", "failed"]
    detail: str = ""


class AttemptUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the model endpoints were asked for in one attempt: a row for each upstream and model."""

    attempt_id: str
    race_id: str  # "" in qualifying
    stage: Stage
    agent_version_id: str
    rows: tuple[ModelUsage, ...]


class UsageTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the attempts of one agent in one race (or in qualifying) at one upstream with one model."""

    race_id: str
    stage: Stage
    agent_version_id: str
    upstream: str
    model: str
    episodes: int
    requests: int
    attempts: int
    probes: int
    prompt_tokens: int
    completion_tokens: int
    latency_ms: int
    cost_micro_usd: int | None = None  # None: not known for all of them


class HeadMovedError(ArenaError):
    """V2022: the log no longer ends where the record was signed to follow. Read the head and sign again."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("V2022", detail)


class LeaseLostError(ArenaError):
    """V2022: the lease ran out, was given back or is another's. The work done under it does not count."""

    def __init__(self, detail: str = "") -> None:
        super().__init__("V2022", detail)


class Store(Protocol):
    """Everything durable a validator needs. Opened for one hotkey; all times are unix milliseconds."""

    @property
    def validator(self) -> str: ...

    # -- the log
    async def head(self, validator: str | None = None) -> Head: ...

    async def append(
        self, records: Sequence[SignedRecord], bodies: Sequence[StoredBody] = (), finish: Lease | None = None
    ) -> Head:
        """Append in order, in one transaction with `finish`. Raises ArenaError V2022 when the head moved, the lease was
        lost or the hotkey is another's; V2025 when the store can't hold the records; V2021 when the server is away."""
        ...

    def records(
        self,
        validator: str | None = None,
        *,
        after_seq: int = 0,
        kinds: Sequence[str] = (),
        race_id: str | None = None,
        page: int = RECORDS_PER_PAGE,
    ) -> AsyncIterator[SignedRecord]:
        """Records in (validator, seq) order, streamed; `page` is how many are read, and held, at a time."""
        ...

    def filed_records(self, validator: str, *, after_seq: int = 0) -> AsyncIterator[Entry]:
        """Every row of one log in order, doubled ones too, with what each is filed under: what verification reads."""
        ...

    async def validators(self) -> list[str]:
        """The hotkeys that have a log this login may see, sorted: on a shared server its own alone. A log that lost
        its head is one too."""
        ...

    async def body(self, body_sha256: str, validator: str | None = None) -> StoredBody | None:
        """The body as a validator (None: we) stored it, or None. Raises ArenaError V2050 when its bytes do not have
        this hash."""
        ...

    async def frames(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[BodyFrame]:
        """Those of a validator's bodies (None: our own) that are stored, as they are, every copy of a body that was
        stored on several days: their reader restores and checks them."""
        ...

    async def verdicts_on(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[SignedRecord]:
        """Every verdict record of a validator (None: we) on these bodies, in log order."""
        ...

    def leaves(self, validator: str, *, after_seq: int = 0, to_seq: int | None = None) -> AsyncIterator[Envelope]:
        """Leaves of one log in order, without contents: some ten times as fast to read as `records`."""
        ...

    # -- checkpoints
    async def put_checkpoint(self, checkpoint: StoredCheckpoint) -> None:
        """Keep a signed checkpoint of this hotkey. One of the same size and note is kept once; another note of that
        size is V2022 (a validator does not sign two states of one size)."""
        ...

    async def put_anchor(self, size: int, note_sha256: str, block: int) -> None:
        """Say in which finalized block the chain holds the checkpoint of that size.

        Raises ArenaError V2022 when there is no such checkpoint, or its anchor is in another block."""
        ...

    async def checkpoints(self, validator: str | None = None, *, after_size: int = 0) -> list[StoredCheckpoint]:
        """The checkpoints of a validator (None: our own), by size."""
        ...

    # -- work
    async def enqueue(self, items: Sequence[WorkItem]) -> int:
        """Add items that are not there yet; returns how many were new."""
        ...

    async def claim(self, count: int, ttl_ms: int, stages: Sequence[Stage] = ("race", "qualifying")) -> list[Lease]: ...

    async def renew(self, lease: Lease, ttl_ms: int) -> Lease | None:
        """The lease with a later expiry, or None when it was lost."""
        ...

    async def expired(self) -> list[Lease]:
        """This validator's leases that ran out unfinished. They stay listed until `abandon` is called for each, so
        that no attempt goes without a record."""
        ...

    async def abandon(self, lease: Lease, record: SignedRecord, requeue: Requeue) -> Head:
        """Return an unfinished lease to the queue and append its `attempt` record, in one transaction."""
        ...

    async def close_items(self, race_id: str, stage: Stage, agent_version_id: str = "") -> int:
        """Close this validator's unfinished items of a race and stage (of one agent, when named): nobody claims them
        again, and `renew` and a finish of their leases answer that the lease is lost. Returns how many."""
        ...

    async def open_items(self, race_id: str, stage: Stage) -> int:
        """Work items of a race and stage that are not finished."""
        ...

    # -- submissions
    async def put_submission(
        self, submission: StoredSubmission, source: str, *, is_alone: bool = False
    ) -> StoredSubmission:
        """Store a submission, unless this version is there already; one that was withdrawn, or refused with an earlier
        commitment, is replaced. `is_alone`: and unless another of its hotkey waits. Returns the row that stands then:
        this version's, or the waiting one's."""
        ...

    async def submissions(
        self, states: Sequence[SubmissionState] = GATED, *, miner_hotkey: str = ""
    ) -> list[StoredSubmission]:
        """Submissions of these states in the order they came, of everybody or of one hotkey. Sources are not loaded:
        see `source`."""
        ...

    async def source(self, agent_version_id: str) -> str | None:
        """The agent file of a stored submission, or None. That of a withdrawn or refused one is ""."""
        ...

    async def set_submission_state(
        self,
        agent_version_id: str,
        state: SubmissionState,
        report: str = "",
        *,
        was: SubmissionState | Literal[""] = "",
        failure: Failure | None = None,
        qualifying_e4: int | None = None,
        commitment_block: int = 0,
    ) -> bool:
        """Move a submission, with the reason of a refusal. An empty report, no score and block 0 keep the last ones.

        `was`: only from this state; False where it is in another. Raises ArenaError V2025 when there is none."""
        ...

    async def put_agreed(self, agent_version_id: str, agreed: AgreedStanding) -> None:
        """Say where a submission stood with all validators at the last close."""
        ...

    # -- submissions over HTTP
    async def spend_and_look(
        self, hotkey: str, nonce_ns: int, *, keep_ms: int, most: int, stream: str
    ) -> HotkeyState | None:
        """Let a signed request through once, whichever process asks, and say what is known of the hotkey then; None for
        one that was let through before. It is kept for `keep_ms` (milliseconds), `most` of one hotkey at once."""
        ...

    async def item_counts(self, agent_version_id: str) -> list[ItemCount]:
        """This validator's work on an agent, by race in the order of their names."""
        ...

    # -- races and weights: events in order, JSON text, one writer
    async def put_event(self, stream: str, index: int, event: str) -> None:
        """Append event number `index` (from 0) of a stream. Raises ArenaError V2022 when that number exists."""
        ...

    async def events(self, stream: str) -> list[str]: ...

    async def streams(self, prefix: str) -> list[str]:
        """The streams whose names begin so, in the order in which they were begun."""
        ...

    # -- what models cost: an account for the operator, no evidence
    async def put_usage(self, usage: AttemptUsage) -> None:
        """Keep the account of an attempt. The first one of an attempt stands."""
        ...

    async def usage_totals(self) -> list[UsageTotal]:
        """All accounts, summed, in the order of their keys."""
        ...

    async def put_weights_result(self, result: WeightsResult) -> None: ...

    async def weights_results(self, limit: int = 20) -> list[WeightsResult]: ...
