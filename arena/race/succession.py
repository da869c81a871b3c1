"""What a race takes over from the races before it: who is at the top, who left, and the settlements in force.

Promise: pure. A race that ended without a settlement in force changes nothing. An adopted settlement (it has the
quorum, and is not this validator's own) states what it followed from, so a validator that was away, or began later,
goes on from there as the others do.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from arena.race.model import Candidate, Top
from arena.race.state import RaceState, top_after
from arena.records.model import SettlementRecord, Subject


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """`history`: the settlements in force, oldest first; `subjects`: the agents that raced in them, by version id."""

    top: Top | None = None
    history: tuple[SettlementRecord, ...] = ()
    eliminated: tuple[str, ...] = ()
    subjects: dict[str, Subject] = {}

    @property
    def incumbent(self) -> Candidate | None:
        """The top agent as it races on: whatever else its hotkey submitted. None: nobody is at the top."""
        if self.top is None or self.top.agent_version_id not in self.subjects:
            return None
        subject = self.subjects[self.top.agent_version_id]
        return Candidate(subject=subject, qualifying_score_e4=0, is_incumbent=True)


def succession(earlier: Iterable[RaceState]) -> Succession:
    """What follows from the races so far, oldest first."""
    now = Succession()
    for state in earlier:
        settlement = state.settlement
        if settlement is None:
            continue
        now = _after_adopted(now, state, settlement) if state.is_adopted else _after_own(now, state, settlement)
    return now


def _after_own(now: Succession, state: RaceState, settlement: SettlementRecord) -> Succession:
    field = state.field.field if state.field else ()
    return replace(
        now,
        top=top_after(state) if settlement.is_promotion else now.top,
        history=(*now.history, settlement),
        eliminated=_eliminated(now.eliminated, settlement),
        subjects=now.subjects | _subjects(field),
    )


def _after_adopted(now: Succession, state: RaceState, settlement: SettlementRecord) -> Succession:
    stated = settlement.inputs
    if stated is None:
        return now
    known = {past.race_id: past for past in (*now.history, *state.adopted_history)}
    top = stated.incumbent
    if settlement.is_promotion:
        top = Top(
            agent_version_id=settlement.top_agent_version_id,
            miner_hotkey=next(
                row.miner_hotkey
                for row in settlement.standings
                if row.agent_version_id == settlement.top_agent_version_id
            ),
            promoted_ms=stated.closes_ms,
        )
    return replace(
        now,
        top=top,
        history=(*(known[race_id] for race_id in sorted(known)), settlement),
        eliminated=_eliminated(stated.eliminated, settlement),
        subjects=now.subjects | _subjects(stated.field),
    )


def _eliminated(before: Iterable[str], settlement: SettlementRecord) -> tuple[str, ...]:
    left = {row.agent_version_id for row in settlement.standings if row.is_eliminated}
    return tuple(sorted(left.union(before)))


def _subjects(field: Iterable[Candidate]) -> dict[str, Subject]:
    return {candidate.subject.agent_version_id: candidate.subject for candidate in field}
