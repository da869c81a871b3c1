"""The values of the published SN15 API that its miner's routes answer with. Source: as `arena.api.sn15.answers`.

A miner is told more here than that API knows: `detail` says what to do next, `violations` what the gate found. Its
clients keep fields they do not know.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from arena.api.sn15.answers import AgentVersionState, AgentVersionStatus, Violation

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
