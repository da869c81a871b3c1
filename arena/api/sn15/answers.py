"""The values of the published SN15 API that its reads answer with: field names, types and words are that API's.

Source: the models of the generated client `oro-sdk` 7.0.0. Scores are fractions here, times ISO 8601 text in UTC, ids
UUIDs made from ours (`arena.api.sn15.names`). A field this arena has no value for is null, as the client allows.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RaceStatus = Literal["QUALIFYING_OPEN", "RACE_RUNNING", "RACE_COMPLETE", "RACE_CANCELLED"]
AgentVersionState = Literal["CANCELLED", "DISCARDED", "ELIGIBLE", "QUEUED", "RECEIVED", "RUNNING"]


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


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An error of these routes."""

    detail: str
    error_code: str
