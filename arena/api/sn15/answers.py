"""The values of the published SN15 API that its reads answer with: field names, types and words are that API's.

Source: the models of the generated client `oro-sdk`, 7.0.0 and 7.0.2 alike. Scores are fractions here, times ISO 8601
text in UTC, ids UUIDs made from ours (`arena.api.sn15.names`). A field this arena has no value for is null, as the
client allows.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RaceStatus = Literal["QUALIFYING_OPEN", "RACE_RUNNING", "RACE_COMPLETE", "RACE_CANCELLED"]
AgentVersionState = Literal["CANCELLED", "DISCARDED", "ELIGIBLE", "QUEUED", "RECEIVED", "RUNNING"]
RunStatus = Literal["CANCELLED", "CLAIMED", "FAILED", "RUNNING", "STALE", "SUCCESS", "TIMED_OUT"]


class SuitePublic(msgspec.Struct, frozen=True, kw_only=True):
    """A suite. `suite_id` is the number in its name."""

    suite_id: int
    suite_version: int
    is_active: bool
    execution_kind: Literal["legacy_shoppingbench"] = "legacy_shoppingbench"


class ProblemPublic(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a suite; `metadata` holds what an agent is asked."""

    problem_id: str
    suite_id: int
    metadata: dict[str, str]


class SuiteWithProblems(msgspec.Struct, frozen=True, kw_only=True):
    """A suite and its problems."""

    suite: SuitePublic
    problems: tuple[ProblemPublic, ...]


class AgentVersionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent version stands."""

    agent_version_id: str
    agent_name: str
    miner_hotkey: str
    version_number: int
    submitted_at: str
    state: AgentVersionState
    suite_id: int | None
    final_score: float | None
    race_score: float | None
    release_state: Literal["HIDDEN", "RELEASED"]
    code_available_at: str | None
    is_active_qualifier: bool
    success_count: int  # 1 once the suite is through
    active_count: int
    is_closed: bool
    required_successes: int = 1


class AgentVersionPublic(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version whose code is released."""

    agent_version_id: str
    agent_id: str
    agent_name: str
    miner_hotkey: str
    version_number: int
    submitted_at: str
    released_at: str
    code_available_at: str
    suite_id: int | None
    latest_final_score: float | None


class RacePublic(msgspec.Struct, frozen=True, kw_only=True):
    """A race. `scored_count` is what may be known of it while it runs."""

    race_id: str
    suite_id: int
    status: RaceStatus
    race_number: int
    qualifying_closes_at: str | None
    winner_agent_version_id: str | None
    winner_score: float | None
    winner_agent_name: str | None
    qualifier_count: int
    scored_count: int


class RaceQualifierPublic(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of a race's field. Score and rank are null until the race is settled."""

    agent_version_id: str
    qualification_type: Literal["INCUMBENT", "SCORED"]
    agent_name: str | None
    miner_hotkey: str
    version_number: int
    qualifying_score: float | None
    race_score: float | None
    race_rank: int | None
    weighted_score: float | None


class RaceWithField(msgspec.Struct, frozen=True, kw_only=True):
    """A race with its field; `race` is null where there is none."""

    race: RacePublic | None
    qualifiers: tuple[RaceQualifierPublic, ...]


class RaceHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Races that are over, newest first."""

    total: int
    limit: int
    offset: int
    races: tuple[RacePublic, ...]


class LeaderboardEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version that has a qualifying score."""

    rank: int
    agent_version_id: str
    agent_name: str
    miner_hotkey: str
    version_number: int
    final_score: float
    race_score: float | None
    is_current_top: bool
    was_top: bool


class Leaderboard(msgspec.Struct, frozen=True, kw_only=True):
    """Agents by their score in the latest settled race, then by their qualifying score."""

    total: int
    limit: int
    offset: int
    suite: SuitePublic
    entries: tuple[LeaderboardEntry, ...]
    unique_miners: int
    challenge_threshold: float | None


class TopAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Who is at the top, and the score that beats it now."""

    suite_id: int
    computed_at: str
    top_agent_version_id: str | None
    top_miner_hotkey: str | None
    top_score: float | None
    challenge_threshold: float | None
    margin: float | None


class TopHistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version that came to the top."""

    agent_version_id: str
    agent_name: str
    miner_hotkey: str
    version_number: int
    final_score: float
    top_at: str
    is_current_top: bool
    was_top: bool
    suite_id: int


class TopHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Who came to the top, newest first."""

    suite_id: int
    entries: tuple[TopHistoryEntry, ...]


class ArtifactRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which file is asked for."""

    artifact_type: str
    agent_version_id: str
    eval_run_id: str | None = None
    problem_id: str | None = None


class ArtifactUrl(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is."""

    download_url: str
    expires_at: str


class RunPublic(msgspec.Struct, frozen=True, kw_only=True):
    """What one validator runs of an agent version: the suite, or one race. No run has a lease here; `lease_expires_at`
    and `last_heartbeat_at` are when its last record was made. `validator_score` is the settled score, on which the
    validators agree."""

    eval_run_id: str
    agent_version_id: str
    suite_id: int
    validator_hotkey: str
    status: RunStatus
    claimed_at: str
    lease_expires_at: str
    last_heartbeat_at: str
    completed_at: str | None
    is_included: bool
    validator_score: float | None
    phase: Literal["QUALIFYING", "RACE"]
    race_id: str | None
    race_number: int | None


class RunDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One run and whose it is."""

    eval_run_id: str
    agent_version_id: str
    agent_name: str
    validator_hotkey: str
    status: RunStatus
    version_number: int
    claimed_at: str
    completed_at: str | None
    score: float | None
    is_included: bool
    execution_kind: Literal["legacy_shoppingbench"] = "legacy_shoppingbench"


class RunUnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is not over. `progress_percent` is 0 in a race: how much it draws is told when it is settled."""

    eval_run_id: str
    agent_version_id: str
    agent_name: str
    version_number: int
    miner_hotkey: str
    validator_hotkey: str
    status: RunStatus
    started_at: str
    progress_percent: float
    phase: Literal["QUALIFYING", "RACE"]
    race_id: str | None


class WaitingVersion(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version that no run has begun of."""

    work_item_id: str
    agent_version_id: str
    agent_name: str
    version_number: int
    miner_hotkey: str
    suite_id: int
    queued_at: str
    required_successes: int = 1
    completed_successes: int = 0
    active_runs: int = 0
    remaining: int = 1
    phase: Literal["QUALIFYING"] = "QUALIFYING"


class WaitingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How many versions wait, and how many runs are under way."""

    total_pending: int
    total_runs_needed: int
    total_runs_active: int


class WaitingVersions(msgspec.Struct, frozen=True, kw_only=True):
    """The versions that wait for their first run."""

    summary: WaitingSummary
    items: tuple[WaitingVersion, ...]


class CurrentAgent(msgspec.Struct, frozen=True, kw_only=True):
    """What a validator runs now."""

    agent_name: str
    version_id: str
    version_number: int
    started_at: str


class ValidatorPublic(msgspec.Struct, frozen=True, kw_only=True):
    """A validator whose log is served here. `registered_at` is when this log begins."""

    hotkey: str
    status: Literal["available", "evaluating"]
    registered_at: str
    last_seen_at: str
    current_agent: CurrentAgent | None


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate, or the door before it, has against a file. `line` 0: the file as a whole."""

    rule: str
    severity: str
    message: str
    line: int


class AuthDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Why a signed request was not let through."""

    code: str
    message: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error of these routes. `error_code` is left out where that API names none for the status: its generated client
    refuses to decode any other."""

    detail: str | AuthDetail
    error_code: str = ""
    violations: tuple[Violation, ...] = ()
    remaining_seconds: int | None = None
