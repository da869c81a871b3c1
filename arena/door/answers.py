"""What a door answers: where a miner's versions stand, and what anybody may know of the door. Values alone, so that a
miner's commands load no server."""

from __future__ import annotations

import msgspec

from arena.api.rows import AgentRace, RaceRow
from arena.gate.rules import Finding
from arena.records.port import AgreedStanding, SubmissionState
from foundation.errors import Failure


class PauseState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether submissions are taken. `reason` is shown to every miner that is turned away."""

    is_paused: bool = False
    reason: str = ""
    since_ms: int = 0  # unix milliseconds


class OwnRace(msgspec.Struct, frozen=True, kw_only=True):
    """One race of an agent: the race as everybody knows it, and how the agent stood in it once that may be shown.
    `done` of `total` episodes are this validator's; `against`: the name of the agent that was at the top."""

    race: RaceRow
    stood: AgentRace | None = None
    reason: str = ""  # of a cancelled one
    against: str = ""
    done: int = 0
    total: int = 0


class RacedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One episode of a released race: `record`, its number in this validator's log; what was missed, `product 2: price`
    or how it ended; and what the judge said, a sentence of each model (quality None: nothing)."""

    race_id: str
    problem_id: str
    record: int
    is_solved: bool
    missed: tuple[str, ...] = ()
    quality_e4: int | None = None
    sentences: tuple[str, ...] = ()


class QualifyingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Progress on the public suite at this validator. Scores are ten-thousandths; None until it is decided."""

    done: int
    total: int
    score_e4: int | None
    needed_e4: int


class SubmissionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where one agent version stands with this validator."""

    agent_version_id: str
    name: str
    hotkey: str
    state: SubmissionState
    commitment_block: int
    received_ms: int  # unix milliseconds
    next_allowed_block: int  # for this hotkey's next commitment
    block: int  # final now
    failure: Failure | None
    findings: tuple[Finding, ...]
    held_until_block: int  # of a hold that runs out; else 0
    qualifying: QualifyingStatus | None
    agreed: AgreedStanding | None
    races: tuple[OwnRace, ...]
    problems: tuple[RacedProblem, ...]  # of the newest released race
    what_to_do: str


class DoorState(msgspec.Struct, frozen=True, kw_only=True):
    """What anybody may know: for whom to sign requests, under which rules, whether submissions are taken, and at which
    port of the same host races and agents can be read (`arena/api`); 0: nowhere."""

    validator: str
    netuid: int
    policy: str
    policy_sha256: str
    traces_licence: str = ""  # as the policy states it
    pause: PauseState
    reads_port: int = 0
