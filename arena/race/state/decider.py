"""What is due in a race: one machine for one validator and for many.

Pure; `decide` never asks for something that has happened, and no clock is read here: time is a fact. Racing
alone is a quorum of one: with nobody to agree with, no roll and no countersignature is due, and the race goes on as
soon as its work is done. With others every stage follows the race's timeline (`arena.race.state.timeline`), what
decides is read from the chain at blocks that follow from the race alone, and nobody waits for another validator longer
than that. The protocol: `arena/race/AGREEMENT.md`; the loop contract: `arena/race/README.md`.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from arena.chain.port import BeaconRound
from arena.race.consensus.agreement import (
    NO_QUORUM,
    NOT_OURS,
    TOO_LATE,
    cancelled,
    counted_roll,
    countersign_value,
    is_anchoring,
    plan_of,
    quorum_of,
    roll_name,
    validators_of,
)
from arena.race.consensus.log_round import anchored_logs, lacking, receipt
from arena.race.model import NO_BEACON
from arena.race.settlement.draw import draw_problems, race_seed
from arena.race.settlement.provenance import settlement_sha256
from arena.race.state.events import (
    AdoptSettlement,
    AnchorLog,
    Commit,
    Effect,
    EnqueueItems,
    EnqueueStandIns,
    Event,
    FetchBeacon,
    FixField,
    ProblemsDrawn,
    PullLogs,
    RaceClosed,
    RaceObservation,
    RaceOpened,
    RaceSettled,
    ReadChain,
    ReleaseBatch,
    SealBatch,
    Settle,
    SettlementDue,
)
from arena.race.state.items import RaceWork, race_items, stand_in_items
from arena.race.state.machine import RaceState
from arena.race.state.timeline import Moment, Roll, Timeline, anchor_of, receipt_of

Due = tuple[Event | Effect, ...]

_TIME_IS_OVER = "the time for results is over"
STAND_INS_WAITING = 64  # at most, so that what others do meanwhile is not in our queue


class _Race(msgspec.Struct, frozen=True):
    """A race past its close, at one moment. `beacon` is its own round, once fetched; `plan` says when its validators
    agree on what, None where there is only one."""

    state: RaceState
    facts: RaceObservation
    opened: RaceOpened
    closed: RaceClosed
    beacon: BeaconRound | None
    plan: Timeline | None


def decide(state: RaceState, facts: RaceObservation) -> Due:
    """What is due now: events to append as they are, effects to carry out. Empty: wait.

    At most one event comes back, and it is last; append it, apply it and ask again.
    """
    opened, closed = state.opened, state.closed
    if opened is None:
        return (SealBatch(),)
    if closed is None:
        if facts.now_ms < opened.closes_ms or facts.closing_block is None:
            return ()
        return (
            RaceClosed(
                closing_block=facts.closing_block,
                beacon_network=facts.beacon_network,
                beacon_round=facts.beacon_round,
            ),
        )
    if state.settlement is not None:
        if state.is_released or state.draw is None:  # a batch nobody saw stays sealed (arena.visibility)
            return ()
        return (ReleaseBatch(batch_sha256=opened.batch.batch_sha256),)
    plan = None if facts.is_alone else plan_of(state, facts.validator)
    if plan is not None and facts.now_ms >= plan.abandon_ms:
        return (RaceSettled(settlement=cancelled(state, NOT_OURS if state.read("countersign") else TOO_LATE)),)
    beacon = facts.beacon if facts.beacon and facts.beacon.round == closed.beacon_round else None
    race = _Race(state, facts, opened, closed, beacon, plan)
    if plan is not None and state.read("closing") is None:
        return (*_beacon_due(race), ReadChain(moment="closing", at_ms=plan.closing_ms, hotkeys=None))
    if state.stage == "closed":
        return _while_closed(race)
    return _while_running(race) if state.stage == "running" else _while_settling(race)


def _while_closed(race: _Race) -> Due:
    state, facts, opened = race.state, race.facts, race.opened
    due = (*_beacon_due(race), *_roll_due(race, "field"))
    if state.field is None:
        due += _field_due(race)
    elif state.field.field and state.field.validators and race.beacon is not None:
        seed = race_seed(state.race_id, opened.batch.batch_sha256, race.beacon)
        problem_ids = (problem.problem_id for problem in opened.batch.problems)
        drawn = draw_problems(seed, problem_ids, opened.policy.race.problems)
        return (ProblemsDrawn(beacon=race.beacon, seed=seed, drawn=drawn, drawn_ms=facts.now_ms),)
    return _with_end(race, due)


def _while_running(race: _Race) -> Due:
    state, facts, opened = race.state, race.facts, race.opened
    assert state.draw is not None and state.field is not None, "a race runs after its draw"
    rules, draw, field = opened.policy.race, state.draw, state.field
    work = RaceWork(state.race_id, field.field, draw.drawn, opened.batch, rules, draw.seed, field.validators)
    due: Due = ()
    if state.items is None:
        due = (EnqueueItems(items=race_items(work, facts.validator)),)
    elif race.plan is not None and facts.done is not None and not is_anchoring(race.plan, facts.now_ms):
        late = stand_in_items(work, facts.validator, facts.done, facts.now_ms - draw.drawn_ms)
        room = STAND_INS_WAITING - facts.open_race_items
        if late and room > 0:
            due = (EnqueueStandIns(items=late, room=room),)
    return _with_end(race, due)


def _while_settling(race: _Race) -> Due:
    state, facts, plan = race.state, race.facts, race.plan
    assert state.due is not None, "a race settles once that is due"
    settle = Settle(settling_block=state.due.settling_block)
    if plan is None:
        return (settle,)
    due = _roll_due(race, "results")
    if counted_roll(state, "results") is None:
        return due
    if state.proposed is None and state.field is not None:
        due += _once_held(race, "results", settle)
    own = countersign_value(state.race_id, settlement_sha256(state.proposed)) if state.proposed else None
    if own and _may_state(race, "countersign") and facts.now_ms < plan.countersign_ms:
        due += (Commit(moment="countersign", sha256=own),)
    due += _read_due(race, plan, "countersign")
    if state.read("countersign") is None:
        return due
    value = quorum_of(state)
    if value is None:
        return (RaceSettled(settlement=cancelled(state, NO_QUORUM)),)
    if state.proposed is not None and own == value:
        return (RaceSettled(settlement=state.proposed),)
    # What counts is fixed: a settlement of ours that is another stays another. One that lacks a log may still come.
    is_hopeless = state.proposed is not None or state.field is None or facts.now_ms >= plan.give_up_ms
    return (*due, AdoptSettlement(value=value)) if is_hopeless else due


def _field_due(race: _Race) -> Due:
    """The field, once the race before is settled: from the logs that count, or alone from what this validator found,
    for which it waits while agents are undecided."""
    facts, fix = race.facts, FixField(closing_block=race.closed.closing_block)
    if not facts.is_previous_settled:
        return ()
    if race.plan is not None:
        return _once_held(race, "field", fix)
    grace_ms = race.opened.closes_ms + race.opened.policy.race.qualifying_grace_ms
    is_waiting = facts.pending_qualifying > 0 and facts.now_ms < grace_ms
    return () if is_waiting or facts.finalized_block < fix.closing_block else (fix,)


def _once_held(race: _Race, roll: Roll, effect: FixField | Settle) -> Due:
    """An effect over the logs that a roll counted, once all of them are held; before, what is lacking is asked for."""
    counted, plan = counted_roll(race.state, roll), race.plan
    if counted is None or plan is None:
        return ()
    missing = lacking(counted.logs, race.facts.held)
    if not missing:
        return (replace(effect, logs=counted.logs),)
    return (PullLogs(roll=roll, logs=missing, until_ms=plan.settling_ms if roll == "field" else plan.abandon_ms),)


def _with_end(race: _Race, due: Due) -> Due:
    """What is due, and the end of the time for results: with others at the settling block, before which each anchors
    what it has; alone as soon as nothing is left to wait for, whatever else was due."""
    state, facts, plan = race.state, race.facts, race.plan
    if plan is None:
        why = _why_nothing_more(race)
        return (SettlementDue(settling_block=facts.finalized_block, why=why),) if why else due
    due += (*_anchor_due(race, plan, "results"), *_read_due(race, plan, "settling"))
    read = state.read("settling")
    is_catching_up = state.draw is None and facts.now_ms < plan.settling_ms + plan.lead_ms
    is_catching_up &= state.field is None or bool(state.field.field)
    if read is None or is_catching_up:
        return due
    return (*due, SettlementDue(settling_block=read.block, why=_TIME_IS_OVER if state.draw else _why_undrawn(facts)))


def _why_nothing_more(race: _Race) -> str:
    """Why a validator alone waits for nothing more in a race that was closed; "": it waits."""
    state, facts, rules = race.state, race.facts, race.opened.policy.race
    if state.field is None or (state.draw is not None and state.items is None):
        return ""
    if state.draw is not None:
        if facts.open_race_items == 0 and facts.owed_verdicts == 0:
            return "all results are in"
        return _TIME_IS_OVER if facts.now_ms >= state.draw.drawn_ms + rules.run_ms else ""
    if not state.field.field:
        return "no agent qualified"
    if not state.field.validators:
        return "no validator holds a permit"
    is_answered = facts.is_beacon_asked or facts.batch_failure
    return _why_undrawn(facts) if is_answered and facts.now_ms >= race.opened.closes_ms + rules.beacon_grace_ms else ""


def _why_undrawn(facts: RaceObservation) -> str:
    return f"the batch did not open ({facts.batch_failure})" if facts.batch_failure else NO_BEACON


def _roll_due(race: _Race, roll: Roll) -> Due:
    """One roll: anchor, read the anchors, ask for the logs, say which are held, read what all say."""
    state, facts, plan = race.state, race.facts, race.plan
    if plan is None:
        return ()
    due: Due = (*_anchor_due(race, plan, roll), *_read_due(race, plan, anchor_of(roll)))
    anchors, moment = state.read(anchor_of(roll)), receipt_of(roll)
    if anchors is None:
        return due
    receipt_ms = plan.at(moment)
    if facts.now_ms >= receipt_ms:
        return (*due, *_read_due(race, plan, moment))
    name = roll_name(state, roll)
    logs = anchored_logs(name, anchors.commitments)
    missing = lacking(logs, facts.held)
    if missing:
        due += (PullLogs(roll=roll, logs=missing, until_ms=receipt_ms),)
    patience_ms = plan.lead_ms if missing else 2 * plan.lead_ms
    if _may_state(race, moment) and facts.now_ms >= receipt_ms - patience_ms:
        held = [log.validator for log in logs if log not in missing]
        due += (Commit(moment=moment, sha256=receipt(name, held)),)
    return due


def _anchor_due(race: _Race, plan: Timeline, roll: Roll) -> Due:
    moment, now_ms = anchor_of(roll), race.facts.now_ms
    is_time = plan.at(moment) - plan.lead_ms <= now_ms < plan.at(moment)
    return (AnchorLog(moment=moment, roll=roll),) if is_time and _may_state(race, moment) else ()


def _read_due(race: _Race, plan: Timeline, moment: Moment) -> Due:
    if race.state.read(moment) is not None or race.facts.now_ms < plan.at(moment):
        return ()
    return (ReadChain(moment=moment, at_ms=plan.at(moment), hotkeys=validators_of(race.state)),)


def _may_state(race: _Race, moment: Moment) -> bool:
    """Whether this validator takes part, and has not said at that moment what it has to say."""
    return race.facts.validator in validators_of(race.state) and race.state.stated(moment) is None


def _beacon_due(race: _Race) -> Due:
    if race.beacon is not None:
        return ()
    return (FetchBeacon(network=race.closed.beacon_network, round=race.closed.beacon_round),)
