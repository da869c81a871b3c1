"""The values a race is made of. All of them are public or become public at the race's release.

Frozen, serialisable to JSON by msgspec, no clock and no I/O. A settled race is a function of these values
(docs/architecture.md#the-mechanism).
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec

from arena.bank.batch import Batch, SealedProblem
from arena.chain.port import BeaconRound, Metagraph
from arena.policy import Policy
from arena.records.model import (
    AttemptRecord,
    Candidate,
    CountedLog,
    EvaluationRecord,
    SettlementRecord,
    Top,
    VerdictRecord,
)

__all__ = [
    "NO_BEACON",
    "AgentScore",
    "Batch",
    "Candidate",
    "LoggedRecord",
    "ProblemScore",
    "RacePayload",
    "SealedProblem",
    "SettlementInputs",
    "Top",
    "TrajectoryResult",
]

RacePayload = EvaluationRecord | VerdictRecord | AttemptRecord
Kind = TypeVar("Kind", bound=RacePayload, covariant=True)


class LoggedRecord(msgspec.Struct, Generic[Kind], frozen=True, kw_only=True):
    """A record of a race as it stands in a validator's log."""

    validator: str
    seq: int
    content_sha256: str
    record: Kind


NO_BEACON = "the beacon did not come"


class SettlementInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a settlement depends on. Order of the tuples never matters.

    `validators` hold a permit at the closing block; `metagraph` is the subnet at the settling block. `beacon` is None
    when nothing was drawn; `undrawn_why` then says why: it never came, or the batch did not open with it. `history`
    holds earlier settlements, newest last; `eliminated` the agents that had left the races before this one; `logs` is
    what the evaluations and verdicts were read from, empty where one validator settles from its own log alone.
    """

    race_id: str
    policy: Policy
    batch: Batch
    closing_block: int
    closes_ms: int
    settling_block: int
    field: tuple[Candidate, ...]
    validators: tuple[str, ...]
    beacon: BeaconRound | None
    undrawn_why: str = NO_BEACON
    evaluations: tuple[LoggedRecord[EvaluationRecord], ...]
    verdicts: tuple[LoggedRecord[VerdictRecord], ...]
    attempts: tuple[LoggedRecord[AttemptRecord], ...] = ()  # without a result; for a control agent
    metagraph: Metagraph
    incumbent: Top | None = None
    history: tuple[SettlementRecord, ...] = ()
    eliminated: tuple[str, ...] = ()
    logs: tuple[CountedLog, ...] = ()
    recorded_under: str = ""  # hash of the policy the records were written under; "": of `policy`


class TrajectoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """One validator's counted result for one (agent, problem). `quality_e4` is None for an unjudged failure."""

    validator: str
    agent_version_id: str
    problem_id: str
    is_success: bool
    is_agentic: bool
    score_e4: int  # outcome (0 or 1) x coefficient
    quality_e4: int | None


class ProblemScore(msgspec.Struct, frozen=True, kw_only=True):
    """One agent on one problem, over validators: lower medians. `missing` and `faulted` score 0 and are published as
    such."""

    problem_id: str
    state: Literal["scored", "missing", "faulted"]
    score_e4: int = 0
    is_success: bool = False
    is_agentic: bool = False
    quality_e4: int | None = None


class AgentScore(msgspec.Struct, frozen=True, kw_only=True):
    """One agent over the non-void problems, in the order of the draw."""

    candidate: Candidate
    problems: tuple[ProblemScore, ...]
