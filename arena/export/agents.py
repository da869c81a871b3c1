"""The agents of an export: one row each beside the trajectories, and the files of those whose embargo has ended.

Pure. A row follows from the trajectories, the promotions that this export may show and the moment it was begun
at, so verification makes it again; a name, and why an open file is not here, are the exporter's word. A source is here
byte for byte, as its hash is in every record of its agent, or not at all: nothing can be removed from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from arena.records.model import SettlementRecord, Subject
from arena.visibility.rule import Moment, may_see, source_opening_ms
from foundation.errors import ArenaError

AGENTS, SOURCES, POLICIES, LAYOUT = "agents.jsonl", "agents", "policies", "FORMATS.md"
LICENCE = "its author's: published by the rules of the race, which grant no licence"

SourceState = Literal[
    "here",  # in `file`
    "embargo",  # closed until `embargo_ends_ms`
    "not_promoted",  # no promotion that this export may show opens it
    "secret",  # open, and held back: it holds what looks like a credential
    "missing",  # open, and not kept by this validator
]
Kept = Literal["secret", "missing"]


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One agent version of an export's trajectories: a line of `agents.jsonl`. What does not exist is None."""

    agent_version_id: str
    name: str | None  # under which it was submitted; None where this validator does not know it
    miner_hotkey: str
    source_sha256: str
    commitment_block: int
    trajectories: int  # of this agent in this export
    promoted_race_id: str | None  # the first settled race that made it the top agent
    settlement_seq: int | None  # the record that says so
    embargo_ends_ms: int | None
    embargo_ends: str | None  # the same, ISO 8601, UTC
    source: SourceState
    file: str | None
    licence: str | None  # of the file


class AgentTally(msgspec.Struct):
    """What an export's trajectories come to for one agent version."""

    subject: Subject
    trajectories: int = 0


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """A settlement record that made an agent the top one, and when its source opens (unix ms)."""

    seq: int
    race_id: str
    agent_version_id: str
    opens_ms: int


def promotion_of(seq: int, settlement: SettlementRecord) -> Promotion | None:
    """The promotion a settlement record tells of; None where there is none, or none that names its time."""
    try:
        opens_ms = source_opening_ms(settlement)
    except (ArenaError, ValueError, OverflowError, OSError, KeyError):
        return None  # it states no time, or none that any calendar has: it opens nothing
    if opens_ms is None:
        return None
    agent = settlement.top_agent_version_id
    return Promotion(seq=seq, race_id=settlement.race_id, agent_version_id=agent, opens_ms=opens_ms)


def first_promotions(promotions: Iterable[Promotion]) -> dict[str, Promotion]:
    """By agent version, the earliest: a source that was open once is not closed again."""
    first: dict[str, Promotion] = {}
    for one in sorted(promotions, key=lambda promotion: promotion.seq):
        first.setdefault(one.agent_version_id, one)
    return first


def is_source_open(promotion: Promotion | None, at_ms: int) -> bool:
    """Whether anybody may see the source of the agent that a settlement promoted, if one did, at a moment (unix ms)."""
    if promotion is None:
        return False
    moment: Moment = "published" if at_ms >= promotion.opens_ms else "settled"
    return may_see("public", "source", moment, is_winner=True).is_seen


def agent_rows(
    tallies: Mapping[str, AgentTally],
    promotions: Mapping[str, Promotion],
    names: Mapping[str, str],
    kept: Mapping[str, Kept],
    at_ms: int,
) -> tuple[AgentRow, ...]:
    """A row for each agent version, by its id. `kept`: the open sources that are not here, and why."""
    rows = []
    for agent, tally in sorted(tallies.items()):
        subject, promotion = tally.subject, promotions.get(agent)
        opens_ms = promotion.opens_ms if promotion else None
        state: SourceState = "not_promoted" if opens_ms is None else "embargo"
        if is_source_open(promotion, at_ms):
            state = kept.get(agent, "here")
        rows.append(
            AgentRow(
                agent_version_id=agent,
                name=names.get(agent),
                miner_hotkey=subject.miner_hotkey,
                source_sha256=subject.agent_sha256,
                commitment_block=subject.commitment_block,
                trajectories=tally.trajectories,
                promoted_race_id=promotion.race_id if promotion else None,
                settlement_seq=promotion.seq if promotion else None,
                embargo_ends_ms=opens_ms,
                embargo_ends=None if opens_ms is None else datetime.fromtimestamp(opens_ms / 1000, UTC).isoformat(),
                source=state,
                file=source_path(subject.agent_sha256) if state == "here" else None,
                licence=LICENCE if state == "here" else None,
            )
        )
    return tuple(rows)


def source_path(source_sha256: str) -> str:
    """Where a source stands in the export."""
    return f"{SOURCES}/{source_sha256}.py"


def policy_path(policy_sha256: str) -> str:
    """Where a policy stands in the export."""
    return f"{POLICIES}/{policy_sha256}.json"
