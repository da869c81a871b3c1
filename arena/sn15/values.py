"""The values of the published SN15 API: field names, types and words are that API's.

Source: the models of the generated client `oro-sdk`, 7.0.0 and 7.0.2 alike. Scores are fractions here, times ISO 8601
text in UTC. A field this arena has no value for is null, as the client allows. A miner is told more of its own versions
than that API knows (`detail`, `violations`): its clients keep fields they do not know.

Ids are UUIDs of version 8 (RFC 9562, section 5.8) made from ours: 122 bits of a sha256 beside the six that say so, the
same on every node. An agent version's id is a sha256 itself, so its UUID begins with the same digits: `arena withdraw`
takes the eight before the first dash.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from datetime import UTC, datetime
from typing import Literal

import msgspec

_DIGITS = re.compile(r"\d{1,6}$")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def version_uuid(agent_version_id: str) -> str:
    """The UUID of an agent version."""
    is_sha256 = _SHA256.fullmatch(agent_version_id)
    return _uuid8(bytes.fromhex(agent_version_id)) if is_sha256 else _of("version", agent_version_id)


def agent_uuid(miner_hotkey: str, name: str) -> str:
    """The UUID of all versions that a hotkey submits under one name."""
    return _of("agent", miner_hotkey, name)


def race_uuid(race_id: str) -> str:
    """The UUID of a race."""
    return _of("race", race_id)


def problem_uuid(problem_id: str) -> str:
    """The UUID of a problem."""
    return _of("problem", problem_id)


def run_uuid(validator: str, race_id: str, agent_version_id: str) -> str:
    """The UUID of what one validator runs of an agent version: in a race, or ("") on the suite."""
    return _of("run", validator, race_id, agent_version_id)


def suite_number(suite: str) -> int:
    """The number at the end of a suite's name; 0 for a name without one."""
    found = _DIGITS.search(suite)
    return int(found.group()) if found else 0


def utc_text(unix_ms: int) -> str:
    """A time as that API writes it."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def fraction(score_e4: int | None) -> float | None:
    """A score in ten-thousandths as a fraction."""
    return None if score_e4 is None else score_e4 / 10_000


def _of(kind: str, *parts: str) -> str:
    return _uuid8(hashlib.sha256("\n".join((f"agent-arena/sn15/{kind}", *parts)).encode()).digest())


def _uuid8(digest: bytes) -> str:
    """48 bits, the version, 12 bits, the variant, 62 bits. The standard library makes these from Python 3.14 on."""
    bits = int.from_bytes(digest[:16])
    bits = bits & ~(0xF << 76) & ~(0x3 << 62) | 8 << 76 | 2 << 62
    return str(uuid.UUID(int=bits))


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


class VersionNames(msgspec.Struct, frozen=True, kw_only=True):
    """Which agent version."""

    agent_version_id: str
    agent_name: str
    miner_hotkey: str
    version_number: int


class AgentVersionStatus(VersionNames, frozen=True, kw_only=True):
    """Where an agent version stands."""

    submitted_at: str
    state: AgentVersionState
    suite_id: int | None
    success_count: int  # 1 once the suite is through
    active_count: int
    is_closed: bool
    final_score: float | None = None
    race_score: float | None = None
    release_state: Literal["HIDDEN", "RELEASED"] = "HIDDEN"
    code_available_at: str | None = None
    is_active_qualifier: bool = False
    required_successes: int = 1


class AgentVersionPublic(VersionNames, frozen=True, kw_only=True):
    """An agent version whose code is released."""

    agent_id: str
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


class LeaderboardEntry(VersionNames, frozen=True, kw_only=True):
    """An agent version that has a qualifying score."""

    rank: int
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


class TopHistoryEntry(VersionNames, frozen=True, kw_only=True):
    """An agent version that came to the top."""

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


class VersionRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one validator runs of an agent version: the suite, or one race."""

    eval_run_id: str
    agent_version_id: str
    validator_hotkey: str
    status: RunStatus
    claimed_at: str
    completed_at: str | None
    is_included: bool


class RunPublic(VersionRun, frozen=True, kw_only=True):
    """A run and its race. No run has a lease here; `lease_expires_at` and `last_heartbeat_at` are when its last record
    was made. `validator_score` is the settled score, on which the validators agree."""

    suite_id: int
    lease_expires_at: str
    last_heartbeat_at: str
    validator_score: float | None
    phase: Literal["QUALIFYING", "RACE"]
    race_id: str | None
    race_number: int | None


class RunDetail(VersionRun, frozen=True, kw_only=True):
    """One run and whose it is."""

    agent_name: str
    version_number: int
    score: float | None
    execution_kind: Literal["legacy_shoppingbench"] = "legacy_shoppingbench"


class RunUnderWay(VersionNames, frozen=True, kw_only=True):
    """A run that is not over. `progress_percent` is 0 in a race: how much it draws is told when it is settled."""

    eval_run_id: str
    validator_hotkey: str
    status: RunStatus
    started_at: str
    progress_percent: float
    phase: Literal["QUALIFYING", "RACE"]
    race_id: str | None


class WaitingVersion(VersionNames, frozen=True, kw_only=True):
    """An agent version that no run has begun of."""

    work_item_id: str
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


PROVIDER = "validator"  # who pays for model calls


class SubmitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that was taken. What was not taken is answered with an error's status, never like this."""

    agent_id: str
    agent_version_id: str
    hotkey: str
    next_allowed_at: str  # estimated from blocks
    message: str
    admission_status: Literal["ACCEPTED"] = "ACCEPTED"
    admission_reason: None = None


class OwnVersionStatus(AgentVersionStatus, frozen=True, kw_only=True):
    """Where one of the caller's versions stands."""

    detail: str
    violations: tuple[Violation, ...]


class ProviderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether calls of models are paid for through a provider."""

    connected: bool
    provider: str


class ProviderList(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays for calls of models: the validator, with every miner."""

    providers: tuple[ProviderStatus, ...] = (ProviderStatus(connected=True, provider=PROVIDER),)
    default_provider: str = PROVIDER


class OwnVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an agent. Nothing is pinned here: of a hotkey's versions the one that qualified best races."""

    agent_version_id: str
    version_number: int
    submitted_at: str
    state: AgentVersionState
    final_score: float | None
    is_selected_for_race: bool = False
    is_pinnable: bool = False


class OwnAgent(msgspec.Struct, frozen=True, kw_only=True):
    """All versions of one name."""

    agent_id: str
    miner_hotkey: str
    agent_name: str
    created_at: str
    latest_version: OwnVersion


class OwnAgents(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's agents, and when it may submit again. `racing_*`: its version in the race that is under way."""

    agents: tuple[OwnAgent, ...]
    can_submit: bool
    next_allowed_at: str | None
    racing_agent_version_id: str | None
    racing_agent_id: str | None
