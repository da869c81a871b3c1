"""What is due in a race that several validators share: rolls, countersignature, agreement.

Promise: pure, as `arena.race.state.decide` is, of which this is a part; what decides is read from the chain at blocks
that follow from the race alone, so honest validators end alike or each says that it has no quorum. Nothing waits for
another validator longer than the race's own timeline (`arena.race.timeline`). The protocol: `arena/race/AGREEMENT.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from arena.race.draw import draw_problems, race_seed
from arena.race.events import (
    AdoptSettlement,
    AnchorLog,
    Commit,
    Effect,
    EnqueueItems,
    EnqueueStandIns,
    Event,
    Facts,
    FetchBeacon,
    FixField,
    ProblemsDrawn,
    PullLogs,
    RaceClosed,
    RaceOpened,
    RaceSettled,
    ReadChain,
    Settle,
    SettlementDue,
)
from arena.race.items import race_items, stand_in_items
from arena.race.model import NO_BEACON
from arena.race.quorum import countersign_value, quorum_value
from arena.race.roll import (
    AnchoredLog,
    CountedRoll,
    RollName,
    anchored_logs,
    count_roll,
    lacking,
    race_validators,
    receipt,
    stakes_of,
)
from arena.race.statement import settlement_sha256
from arena.race.timeline import Moment, Roll, Timeline, anchor_of, receipt_of, timeline
from arena.records.model import SettlementRecord

if TYPE_CHECKING:
    from arena.race.state import RaceState

Due = tuple[Event | Effect, ...]

NO_QUORUM = "no quorum"
NOT_OURS = "no quorum here: other validators settled alike, and this one could not"
TOO_LATE = "no quorum here: what the chain and the other validators held could not be read in time"
STAND_INS_WAITING = 64  # at most, so that what others do meanwhile is not in our queue


def is_anchoring(plan: Timeline, now_ms: int) -> bool:
    """True once validators may have anchored their results: what is done from then on counts for nobody for sure."""
    return now_ms >= plan.settling_ms - plan.lead_ms


def is_shared(state: RaceState, validator: str) -> bool:
    """Whether a race past its close has other validators than `validator`; False while that was not read."""
    return bool(frozenset(validators_of(state)) - {validator})


def validators_of(state: RaceState) -> tuple[str, ...]:
    """The race's validators as the closing block says; empty while that was not read."""
    closing = state.read("closing")
    return race_validators(closing.metagraph) if closing is not None and closing.metagraph is not None else ()


def due_together(state: RaceState, facts: Facts, opened: RaceOpened, closed: RaceClosed) -> Due | None:
    """What is due in a race past its close that is not settled, or None where this validator has nobody to wait for."""
    plan = timeline(opened.closes_ms, opened.policy.race)
    if state.read("closing") is None:
        if facts.now_ms >= plan.abandon_ms:
            return (RaceSettled(settlement=cancelled(state, TOO_LATE)),)
        return (*_beacon_due(facts, closed), ReadChain(moment="closing", at_ms=plan.closing_ms, hotkeys=None))
    if not is_shared(state, facts.validator):
        return None
    if facts.now_ms >= plan.abandon_ms:
        reason = NOT_OURS if state.read("countersign") else TOO_LATE
        return (RaceSettled(settlement=cancelled(state, reason)),)
    if state.stage == "closed":
        return _while_closed(state, facts, opened, closed, plan)
    if state.stage == "running":
        return _while_running(state, facts, opened, plan)
    return _while_settling(state, facts, plan)


def roll_name(state: RaceState, roll: Roll) -> RollName:
    """The name that receipts of a roll carry. Only for a race whose closing block was read."""
    policy_sha256 = state.opened.policy_sha256 if state.opened else ""
    return RollName(roll=roll, race_id=state.race_id, policy_sha256=policy_sha256, validators=validators_of(state))


def stakes(state: RaceState, roll: Roll) -> dict[str, int]:
    """The stake (rao) behind each validator in a roll: at the closing block for the field, else the settling block."""
    read = state.read("closing" if roll == "field" else "settling")
    return stakes_of(read.metagraph, validators_of(state)) if read is not None and read.metagraph is not None else {}


def counted_roll(state: RaceState, roll: Roll) -> CountedRoll | None:
    """What came of a roll, or None before its receipts were read."""
    anchors, receipts = state.read(anchor_of(roll)), state.read(receipt_of(roll))
    if anchors is None or receipts is None:
        return None
    return count_roll(roll_name(state, roll), anchors.commitments, receipts.commitments, stakes(state, roll))


def held_logs(state: RaceState, facts: Facts, roll: Roll) -> tuple[AnchoredLog, ...]:
    """The logs this validator holds: those it pulled, and its own as it anchored it for this roll."""
    own = state.stated(anchor_of(roll))
    mine = () if own is None else (AnchoredLog(validator=facts.validator, note_sha256=own.sha256),)
    return (*facts.held, *mine)


def quorum_of(state: RaceState) -> str | None:
    """The countersigned value that has the quorum, or None where none has (or the block was not read)."""
    roll, read = counted_roll(state, "results"), state.read("countersign")
    return None if roll is None or read is None else quorum_value(roll, read.commitments, stakes(state, "results"))


def cancelled(state: RaceState, reason: str) -> SettlementRecord:
    """How a race ends for a validator without a settlement in force: nothing changes, and the reason is said.

    It stands in the race's events and in no log: a validator's log keeps the settlement it made itself.
    """
    assert state.opened is not None and state.closed is not None, "a race ends after its close"
    incumbent = state.field.incumbent if state.field else None
    blank = SettlementRecord(
        race_id=state.race_id,
        policy_sha256=state.opened.policy_sha256,
        closing_block=state.closed.closing_block,
        settling_block=state.due.settling_block if state.due else 0,
        beacon_round=state.draw.beacon.round if state.draw else 0,
        seed=state.draw.seed if state.draw else "",
        batch_sha256=state.opened.batch.batch_sha256,
        record_set_sha256="",
        drawn=state.draw.drawn if state.draw else (),
        void=(),
        state="cancelled",
        reason=reason,
        standings=(),
        top_agent_version_id=incumbent.agent_version_id if incumbent else "",
        is_promotion=False,
        uids=(),
        weights_u16=(),
    )
    if state.proposed is None:
        return blank
    return replace(blank, record_set_sha256=state.proposed.record_set_sha256)


def _while_closed(state: RaceState, facts: Facts, opened: RaceOpened, closed: RaceClosed, plan: Timeline) -> Due:
    due = [*_beacon_due(facts, closed), *_roll_due(state, facts, "field", plan)]
    counted = counted_roll(state, "field")
    if state.field is None:
        if counted is not None and facts.is_previous_settled:
            missing = lacking(counted.logs, held_logs(state, facts, "field"))
            if missing:
                due.append(PullLogs(roll="field", logs=missing))
            else:
                due.append(FixField(closing_block=closed.closing_block, logs=counted.logs))
    elif state.field.field and facts.beacon is not None and facts.beacon.round == closed.beacon_round:
        seed = race_seed(state.race_id, opened.batch.batch_sha256, facts.beacon)
        problem_ids = (problem.problem_id for problem in opened.batch.problems)
        drawn = draw_problems(seed, problem_ids, opened.policy.race.problems)
        return (ProblemsDrawn(beacon=facts.beacon, seed=seed, drawn=drawn, drawn_ms=facts.now_ms),)
    return (*due, *_settling_due(state, facts, plan))


def _while_running(state: RaceState, facts: Facts, opened: RaceOpened, plan: Timeline) -> Due:
    assert state.draw is not None and state.field is not None, "a race runs after its draw"
    about = (state.race_id, state.field.field, state.draw.drawn, opened.batch, opened.policy.race)
    due: list[Event | Effect] = []
    if state.items is None:
        items = race_items(*about, seed=state.draw.seed, validators=state.field.validators, validator=facts.validator)
        due.append(EnqueueItems(items=items))
    elif facts.done is not None and not is_anchoring(plan, facts.now_ms):
        late = stand_in_items(
            *about,
            seed=state.draw.seed,
            validators=state.field.validators,
            validator=facts.validator,
            done=facts.done,
            waited_ms=facts.now_ms - state.draw.drawn_ms,
        )
        room = STAND_INS_WAITING - facts.open_race_items
        if late and room > 0:
            due.append(EnqueueStandIns(items=late, room=room))
    return (*due, *_settling_due(state, facts, plan))


def _settling_due(state: RaceState, facts: Facts, plan: Timeline) -> Due:
    """Anchor what there is before the settling block, read that block, and let it end the time for results."""
    due = [*_anchor_due(state, facts, "results", plan), *_read_due(state, facts, "settling", plan)]
    read = state.read("settling")
    is_catching_up = state.draw is None and facts.now_ms < plan.settling_ms + plan.lead_ms
    is_catching_up &= state.field is None or bool(state.field.field)
    if read is not None and not is_catching_up:
        why = "the time for results is over" if state.draw else NO_BEACON
        if state.draw is None and facts.batch_failure:
            why = f"the batch did not open ({facts.batch_failure})"
        due.append(SettlementDue(settling_block=read.block, why=why))
    return tuple(due)


def _while_settling(state: RaceState, facts: Facts, plan: Timeline) -> Due:
    due = _roll_due(state, facts, "results", plan)
    counted = counted_roll(state, "results")
    if counted is None or state.due is None:
        return tuple(due)
    if state.proposed is None and state.field is not None:
        missing = lacking(counted.logs, held_logs(state, facts, "results"))
        if missing:
            due.append(PullLogs(roll="results", logs=missing))
        else:
            due.append(Settle(settling_block=state.due.settling_block, logs=counted.logs))
    own = countersign_value(state.race_id, settlement_sha256(state.proposed)) if state.proposed else None
    if own and _may_state(state, facts, "countersign") and facts.now_ms < plan.countersign_ms:
        due.append(Commit(moment="countersign", sha256=own))
    due += _read_due(state, facts, "countersign", plan)
    if state.read("countersign") is None:
        return tuple(due)
    value = quorum_of(state)
    if value is None:
        return (RaceSettled(settlement=cancelled(state, NO_QUORUM)),)
    if state.proposed is not None and own == value:
        return (RaceSettled(settlement=state.proposed),)
    # What counts is fixed: a settlement of ours that is another stays another. One that lacks a log may still come.
    is_hopeless = state.proposed is not None or state.field is None or facts.now_ms >= plan.give_up_ms
    return (*due, AdoptSettlement(value=value)) if is_hopeless else tuple(due)


def _roll_due(state: RaceState, facts: Facts, roll: Roll, plan: Timeline) -> list[Event | Effect]:
    """One roll: anchor, read the anchors, ask for the logs, say which are held, read what all say."""
    due = [*_anchor_due(state, facts, roll, plan), *_read_due(state, facts, anchor_of(roll), plan)]
    anchors, moment = state.read(anchor_of(roll)), receipt_of(roll)
    if anchors is None:
        return due
    receipt_ms = plan.at(moment)
    if facts.now_ms >= receipt_ms:
        return [*due, *_read_due(state, facts, moment, plan)]
    name = roll_name(state, roll)
    missing = lacking(anchored_logs(name, anchors.commitments), held_logs(state, facts, roll))
    if missing:
        due.append(PullLogs(roll=roll, logs=missing))
    patience_ms = plan.lead_ms if missing else 2 * plan.lead_ms
    if _may_state(state, facts, moment) and facts.now_ms >= receipt_ms - patience_ms:
        held = [log.validator for log in anchored_logs(name, anchors.commitments) if log not in missing]
        due.append(Commit(moment=moment, sha256=receipt(name, held)))
    return due


def _anchor_due(state: RaceState, facts: Facts, roll: Roll, plan: Timeline) -> Due:
    moment = anchor_of(roll)
    at_ms, since_ms = plan.at(moment), plan.at(moment) - plan.lead_ms
    if since_ms <= facts.now_ms < at_ms and _may_state(state, facts, moment):
        return (AnchorLog(moment=moment, roll=roll),)
    return ()


def _read_due(state: RaceState, facts: Facts, moment: Moment, plan: Timeline) -> Due:
    if state.read(moment) is not None or facts.now_ms < plan.at(moment):
        return ()
    return (ReadChain(moment=moment, at_ms=plan.at(moment), hotkeys=validators_of(state)),)


def _may_state(state: RaceState, facts: Facts, moment: Moment) -> bool:
    """Whether this validator takes part, and has not said at that moment what it has to say."""
    return facts.validator in validators_of(state) and state.stated(moment) is None


def _beacon_due(facts: Facts, closed: RaceClosed) -> Due:
    if facts.beacon is not None and facts.beacon.round == closed.beacon_round:
        return ()
    return (FetchBeacon(network=closed.beacon_network, round=closed.beacon_round),)
