"""What a race takes over from the races before it: who is at the top, who left, and the settlements in force.

Pure. A race that ended without a settlement in force changes nothing. An adopted settlement (it has the
quorum, and is not this validator's own) states what it followed from, so a validator that was away, or began later,
goes on from there as the others do.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from arena.chain.port import Metagraph
from arena.race.consensus.reducer import RaceRecords
from arena.race.model import Candidate, SettlementInputs, Top
from arena.race.state.machine import IllegalEventError, RaceState, promoted
from arena.records.model import CountedLog, SettlementRecord, Subject


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
        if settlement is None or state.opened is None:
            continue
        field, top, closes_ms = state.field.field if state.field else (), now.top, state.opened.closes_ms
        history, eliminated = now.history, now.eliminated
        if state.is_adopted:  # it says itself what it followed from
            stated = settlement.inputs
            if stated is None:
                continue
            known = {past.race_id: past for past in (*now.history, *state.adopted_history)}
            history = tuple(known[race_id] for race_id in sorted(known))
            field, top, eliminated, closes_ms = stated.field, stated.incumbent, stated.eliminated, stated.closes_ms
        left = {row.agent_version_id for row in settlement.standings if row.is_eliminated}
        now = Succession(
            top=promoted(settlement, closes_ms) if settlement.is_promotion else top,
            history=(*history, settlement),
            eliminated=tuple(sorted(left.union(eliminated))),
            subjects=now.subjects | {candidate.subject.agent_version_id: candidate.subject for candidate in field},
        )
    return now


def settlement_inputs(
    state: RaceState,
    metagraph: Metagraph,
    records: RaceRecords,
    before: Succession,
    logs: tuple[CountedLog, ...] = (),
) -> SettlementInputs:
    """The inputs of `settle` for a race in stage `settling`, under the policy it was opened under.

    `metagraph` is the subnet at the settling block, `logs` what `records` were read from where several validators
    agreed on that. Raises IllegalEventError in any other stage.
    """
    if state.stage != "settling" or state.opened is None or state.closed is None or state.due is None:
        raise IllegalEventError(f"{state.race_id} is {state.stage}, not settling")
    return SettlementInputs(
        race_id=state.race_id,
        policy=state.opened.policy,
        batch=state.opened.batch,
        closing_block=state.closed.closing_block,
        closes_ms=state.opened.closes_ms,
        settling_block=state.due.settling_block,
        field=state.field.field if state.field else (),
        validators=state.field.validators if state.field else (),
        beacon=state.draw.beacon if state.draw else None,
        undrawn_why=state.due.why,
        evaluations=tuple(records.evaluations),
        verdicts=tuple(records.verdicts),
        attempts=tuple(records.attempts),
        metagraph=metagraph,
        incumbent=state.field.incumbent if state.field else None,
        history=before.history,
        eliminated=before.eliminated,
        logs=logs,
    )
