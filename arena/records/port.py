"""The values of a validator's store, work items, leases and submissions among them, and what this room asks of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol

import msgspec

from arena.records import model
from foundation.errors import ArenaError, Failure
from harness.inference.gateway import ModelUsage
from judge.verdict import JUDGED_AT

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
    subject: model.Subject
    context: model.Context


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed work item. `fence` is unique and grows.

    `faults` counts its earlier attempts that ended in a fault, of any owner. Two kinds of them use up what the policy
    allows, each its own cap: `counted`, faults of this validator, and `refused`, requests that an endpoint refused.
    `owner` is charged for the worker's time; `agent_ms` is how long the agent's own code ran in the race, or on the
    suite, and `body_bytes` what is stored of it, by the leases of the last day that had ended when this one began.
    """

    item: WorkItem
    validator: str
    fence: int
    expires_ms: int
    faults: int = 0
    counted: int = 0
    refused: int = 0
    owner: str = ""
    agent_ms: int = 0
    body_bytes: int = 0

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

    subject: model.Subject
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

    stage: model.Stage
    race_id: str
    done: int
    total: int


class StoredSource(msgspec.Struct, frozen=True, kw_only=True):
    """The agent file of a submission as a validator keeps it, byte for byte."""

    validator: str
    subject: model.Subject
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
    stage: model.Stage
    agent_version_id: str
    rows: tuple[ModelUsage, ...]


class StoreSize(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a database takes on its server's disk, and those of a day, by the week before today."""

    bytes: int
    day_bytes: int


class UsageTotal(ModelUsage, frozen=True, kw_only=True):
    """Sums over the attempts of one agent in one race (or in qualifying) on one day at one upstream with one model. The
    cost is None where it is not known for all of them."""

    day: str  # YYYY-MM-DD, UTC
    race_id: str
    stage: model.Stage
    agent_version_id: str
    episodes: int

    @property
    def is_judging(self) -> bool:
        """Whether it was asked for verdicts; else agents asked."""
        return self.upstream.startswith(JUDGED_AT)


class HeadMovedError(ArenaError):
    """V2022: the log no longer ends where the record was signed to follow. Read the head and sign again."""


class LeaseLostError(ArenaError):
    """V2022: the lease ran out, was given back or is another's. The work done under it does not count."""


class RecordStore(Protocol):
    """The part of a store that this room writes and reads; `arena.store.postgres.PostgresStore` says what each method
    promises."""

    @property
    def validator(self) -> str: ...

    @property
    def reopen(self) -> Callable[[], Coroutine[Any, Any, RecordStore]]: ...

    async def head(self, validator: str | None = None) -> model.Head: ...

    async def append(
        self,
        records: Sequence[model.SignedRecord],
        bodies: Sequence[model.BodyFrame] = (),
        finish: Lease | None = None,
    ) -> model.Head: ...

    async def abandon(self, lease: Lease, record: model.SignedRecord, requeue: Requeue) -> model.Head: ...

    def records(self, validator: str | None = None, *, after_seq: int = 0) -> AsyncIterator[model.SignedRecord]: ...

    async def every_seq(self, validator: str, step: int, after_seq: int) -> list[int]: ...

    def filed_records(self, validator: str, after_seq: int, to_seq: int | None) -> AsyncIterator[model.Entry]: ...

    def leaves(
        self, validator: str, *, after_seq: int = 0, to_seq: int | None = None
    ) -> AsyncIterator[model.Envelope]: ...

    async def frames(self, body_sha256s: Sequence[str], validator: str | None = None) -> list[model.BodyFrame]: ...

    async def checkpoints(self, validator: str | None = None) -> list[model.StoredCheckpoint]: ...

    async def validators(self) -> list[str]: ...
