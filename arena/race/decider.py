"""What is due in a race: one machine for one validator and for many.

Pure; `decide` never asks for something that has happened, and no clock is read here: time is a fact. A
validator alone is a quorum of one: its own log counts as it is, and the race goes on as soon as its work is done. With
others every stage follows the race's timeline (`arena.race.schedule`), what
decides is read from the chain at blocks that follow from the race alone, and nobody waits for another validator longer
than that. The protocol: `arena/race/AGREEMENT.md`; the loop contract: `arena/race/README.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from arena.chain.port import BeaconRound
from arena.policy import Policy, RaceRules
from arena.race import machine
from arena.race.agreement import (
    NO_QUORUM,
    NOT_OURS,
    TOO_LATE,
    anchored_logs,
    cancelled,
    counted_roll,
    countersign_value,
    is_anchoring,
    is_sole,
    lacking,
    quorum_of,
    receipt,
    roll_name,
    validators_of,
)
from arena.race.draw import draw_problems, is_work_due, race_seed, work_order
from arena.race.schedule import ANCHOR, RECEIPT, RaceMoment, Roll, Timeline, timeline
from arena.race.scores import control_subject
from arena.race.settle import NO_BEACON, settlement_sha256
from arena.records.model import Context, Stage, Subject
from arena.records.port import Lease, Requeue, WorkItem
from foundation import codes
from foundation.canonical import content_hash
from foundation.errors import Failure

Due = tuple[machine.Event | machine.Effect, ...]

_TIME_IS_OVER = "the time for results is over"
STAND_INS_WAITING = 64  # at most, so that what others do meanwhile is not in our queue


class _Race(msgspec.Struct, frozen=True):
    """A race past its close, at one moment. `beacon` is its own round, once fetched; `plan` says when its validators
    agree on what; one that `is_sole` is a quorum by itself, and waits for its own work alone."""

    state: machine.RaceState
    facts: machine.RaceObservation
    opened: machine.RaceOpened
    beacon: BeaconRound | None
    plan: Timeline
    is_sole: bool


def decide(state: machine.RaceState, facts: machine.RaceObservation) -> Due:
    """What is due now: events to append as they are, effects to carry out. Empty: wait.

    At most one event comes back, and it is last; append it, apply it and ask again.
    """
    opened, closed = state.opened, state.closed
    if opened is None:
        return (machine.TakeBatch(),)
    if closed is None:
        if facts.now_ms < opened.closes_ms or facts.closing_block is None:
            return ()
        return (
            machine.RaceClosed(
                closing_block=facts.closing_block,
                beacon_network=facts.beacon_network,
                beacon_round=facts.beacon_round,
            ),
        )
    if state.settlement is not None:
        if state.is_released or state.draw is None:  # a batch nobody saw stays sealed (arena.visibility)
            return ()
        return (machine.ReleaseBatch(),)
    plan, is_read = timeline(opened.closes_ms, opened.policy.race), state.read("closing") is not None
    if facts.now_ms >= plan.abandon_ms and not (is_read and is_sole(state, facts.validator)):
        return (machine.RaceSettled(settlement=cancelled(state, NOT_OURS if state.read("countersign") else TOO_LATE)),)
    beacon = facts.beacon if facts.beacon and facts.beacon.round == closed.beacon_round else None
    race = _Race(state, facts, opened, beacon, plan, is_sole(state, facts.validator))
    fetch = () if beacon else (machine.FetchBeacon(round=closed.beacon_round),)
    if not is_read:
        return (*fetch, machine.ReadChain(moment="closing", at_ms=plan.closing_ms, hotkeys=None))
    if state.stage == "closed":
        return _while_closed(race, fetch)
    return _while_running(race) if state.stage == "running" else _while_settling(race)


def _while_closed(race: _Race, fetch: Due) -> Due:
    state, facts, opened = race.state, race.facts, race.opened
    due = (*fetch, *_roll_due(race, "field"))
    if state.field is None:
        if facts.is_previous_settled:
            due += _once_held(race, "field", machine.FixField)
    elif state.field.field and state.field.validators and race.beacon is not None:
        seed = race_seed(state.race_id, opened.batch.batch_sha256, race.beacon)
        problem_ids = (problem.problem_id for problem in opened.batch.problems)
        drawn = draw_problems(seed, problem_ids, opened.policy.race.problems)
        return (machine.ProblemsDrawn(beacon=race.beacon, seed=seed, drawn=drawn, drawn_ms=facts.now_ms),)
    return _with_end(race, due)


def _while_running(race: _Race) -> Due:
    state, facts = race.state, race.facts
    assert state.draw is not None, "a race runs after its draw"
    due: Due = ()
    if state.items is None:
        due = (machine.EnqueueItems(items=race_items(state, facts.validator)),)
    elif facts.done is not None and not is_anchoring(race.plan, facts.now_ms):
        late = stand_in_items(state, facts.validator, facts.done, facts.now_ms - state.draw.drawn_ms)
        room = STAND_INS_WAITING - facts.open_race_items
        if late and room > 0:
            due = (machine.EnqueueStandIns(items=late, room=room),)
    return _with_end(race, due)


def _while_settling(race: _Race) -> Due:
    state, facts, plan = race.state, race.facts, race.plan
    due = _roll_due(race, "results")
    if _counted(race, "results") is None:
        return due
    if state.proposed is None and state.field is not None:
        due += _once_held(race, "results", machine.Settle)
    if race.is_sole:
        return due if state.proposed is None else (machine.RaceSettled(settlement=state.proposed),)
    own = countersign_value(state.race_id, settlement_sha256(state.proposed)) if state.proposed else None
    if own and _may_state(race, "countersign") and facts.now_ms < plan.countersign_ms:
        due += (machine.Commit(moment="countersign", sha256=own),)
    due += _read_due(race, "countersign")
    if state.read("countersign") is None:
        return due
    value = quorum_of(state)
    if value is None:
        return (machine.RaceSettled(settlement=cancelled(state, NO_QUORUM)),)
    if state.proposed is not None and own == value:
        return (machine.RaceSettled(settlement=state.proposed),)
    # What counts is fixed: a settlement of ours that is another stays another. One that lacks a log may still come.
    is_hopeless = state.proposed is not None or state.field is None or facts.now_ms >= plan.give_up_ms
    return (*due, machine.AdoptSettlement(value=value)) if is_hopeless else due


def _counted(race: _Race, roll: Roll) -> tuple[machine.AnchoredLog, ...] | None:
    """The logs that a roll counts, None before that is known. A validator alone counts its own as it is; for the field
    it first waits a while for agents that are undecided."""
    if not race.is_sole:
        counted = counted_roll(race.state, roll)
        return None if counted is None else counted.logs
    is_waiting = race.facts.pending_qualifying > 0 and race.facts.now_ms < race.plan.field_anchor_ms
    return None if roll == "field" and is_waiting else (machine.own_log(race.facts.validator),)


def _once_held(race: _Race, roll: Roll, effect: type[machine.FixField | machine.Settle]) -> Due:
    """An effect over the logs that a roll counted, once all of them are held; before, what is lacking is asked for."""
    counted, plan = _counted(race, roll), race.plan
    if counted is None:
        return ()
    missing = lacking(counted, (machine.own_log(race.facts.validator), *race.facts.held))
    if not missing:
        return (effect(logs=counted),)
    return (
        machine.PullLogs(roll=roll, logs=missing, until_ms=plan.settling_ms if roll == "field" else plan.abandon_ms),
    )


def _with_end(race: _Race, due: Due) -> Due:
    """What is due, and the end of the time for results: with others at the settling block, before which each anchors
    what it has; alone as soon as nothing is left to wait for, whatever else was due."""
    state, facts, plan = race.state, race.facts, race.plan
    if race.is_sole:
        why = _why_nothing_more(race)
        return (machine.SettlementDue(settling_block=facts.finalized_block, why=why),) if why else due
    due += (*_anchor_due(race, "results"), *_read_due(race, "settling"))
    read = state.read("settling")
    is_catching_up = state.draw is None and facts.now_ms < plan.settling_ms + plan.lead_ms
    is_catching_up &= state.field is None or bool(state.field.field)
    if read is None or is_catching_up:
        return due
    return (
        *due,
        machine.SettlementDue(settling_block=read.block, why=_TIME_IS_OVER if state.draw else _why_undrawn(facts)),
    )


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


def _why_undrawn(facts: machine.RaceObservation) -> str:
    return f"the batch did not open ({facts.batch_failure})" if facts.batch_failure else NO_BEACON


def _roll_due(race: _Race, roll: Roll) -> Due:
    """One roll: anchor, read the anchors, ask for the logs, say which are held, read what all say."""
    state, facts, plan = race.state, race.facts, race.plan
    if race.is_sole:
        return ()
    due: Due = (*_anchor_due(race, roll), *_read_due(race, ANCHOR[roll]))
    anchors, moment = state.read(ANCHOR[roll]), RECEIPT[roll]
    if anchors is None:
        return due
    receipt_ms = plan.at(moment)
    if facts.now_ms >= receipt_ms:
        return (*due, *_read_due(race, moment))
    name = roll_name(state, roll)
    logs = anchored_logs(name, anchors.commitments)
    missing = lacking(logs, facts.held)
    if missing:
        due += (machine.PullLogs(roll=roll, logs=missing, until_ms=receipt_ms),)
    patience_ms = plan.lead_ms if missing else 2 * plan.lead_ms
    if _may_state(race, moment) and facts.now_ms >= receipt_ms - patience_ms:
        held = [log.validator for log in logs if log not in missing]
        due += (machine.Commit(moment=moment, sha256=receipt(name, held)),)
    return due


def _anchor_due(race: _Race, roll: Roll) -> Due:
    moment, now_ms, plan = ANCHOR[roll], race.facts.now_ms, race.plan
    is_time = plan.at(moment) - plan.lead_ms <= now_ms < plan.at(moment)
    return (machine.AnchorLog(moment=moment, roll=roll),) if is_time and _may_state(race, moment) else ()


def _read_due(race: _Race, moment: RaceMoment) -> Due:
    at_ms = race.plan.at(moment)
    if race.state.read(moment) is not None or race.facts.now_ms < at_ms:
        return ()
    return (machine.ReadChain(moment=moment, at_ms=at_ms, hotkeys=validators_of(race.state)),)


def _may_state(race: _Race, moment: RaceMoment) -> bool:
    """Whether this validator takes part, and has not said at that moment what it has to say."""
    return race.facts.validator in validators_of(race.state) and race.state.stated(moment) is None


_ITEM_DOMAIN = "agent-arena/work-item/1"


def work_item(subject: Subject, context: Context, policy_sha256: str = "") -> WorkItem:
    """An item, whose id is 32 hex characters over stage, race, agent, problem and, where given, the policy."""
    parts = [context.stage, context.race_id, subject.agent_version_id, context.problem_id]
    item_id = content_hash([_ITEM_DOMAIN, *parts, *([policy_sha256] if policy_sha256 else [])])[:32]
    return WorkItem(item_id=item_id, subject=subject, context=context)


def qualifying_items(
    subject: Subject, problem_ids: Iterable[str], policy: Policy, *, variant_seed: str = ""
) -> tuple[WorkItem, ...]:
    """One item per problem of the active suite, in suite order.

    Qualifying is tied to no race, so its race id is empty. `variant_seed` is the agent's
    (`arena.race.draw.qualifying_seed`) where the policy asks for variants.
    """
    suite, rules = policy.qualifying.suite, policy.policy_sha256
    contexts = (
        Context(stage="qualifying", race_id="", problem_id=one, suite=suite, variant_seed=variant_seed)
        for one in problem_ids
    )
    return tuple(work_item(subject, context, rules) for context in contexts)


def race_items(state: machine.RaceState, validator: str) -> tuple[WorkItem, ...]:
    """One item per (problem, agent) of a drawn race that is assigned to `validator`, problem by problem, so that an
    unfinished race lacks problems and not agents. Ahead of them the control agent on every drawn problem, so that no
    field, however slow, stands between it and its problems.

    Each pair goes to k validators, or to all where these are fewer. Raises KeyError for a drawn problem that is not in
    the batch.
    """
    opened, field = _drawn(state)[:2]
    control = control_subject(opened.policy.race)
    contexts = _contexts(state) if validator in field.validators else ()
    ahead = (work_item(control, context) for context in contexts)
    copies = opened.policy.race.validators_per_problem
    return (*ahead, *(item for item, order in _pairs(state) if validator in order[:copies]))


def witness_item(item: WorkItem, rules: RaceRules) -> WorkItem | None:
    """What a validator runs once more beside a race item that met a fault of its own; None for an item of another stage
    and for the control agent itself."""
    if item.context.stage != "race" or item.subject.is_control:
        return None
    return work_item(control_subject(rules, item.subject.agent_version_id), item.context)


def stand_in_items(
    state: machine.RaceState, validator: str, done: Mapping[str, frozenset[tuple[str, str]]], waited_ms: int
) -> tuple[WorkItem, ...]:
    """The items of pairs for which `validator` stands in `waited_ms` after the draw.

    The n-th stand-in of a pair takes it once `n x stand_in_ms` have passed and fewer than k of those before it say that
    they did it: as many as were asked, since one that says so may show nothing. `done` holds the (agent, problem) pairs
    that each of the others says it did.
    """
    rules = _drawn(state)[0].policy.race
    copies = rules.validators_per_problem
    if waited_ms < rules.stand_in_ms:
        return ()
    items = []
    for item, order in _pairs(state):
        pair = (item.subject.agent_version_id, item.context.problem_id)
        did = [other for other, pairs in done.items() if pair in pairs]
        if validator in order[copies:] and is_work_due(order, validator, copies, waited_ms, rules.stand_in_ms, did):
            items.append(item)
    return tuple(items)


def _drawn(state: machine.RaceState) -> tuple[machine.RaceOpened, machine.FieldFixed, machine.ProblemsDrawn]:
    assert state.opened is not None and state.field is not None and state.draw is not None, "work follows the draw"
    return state.opened, state.field, state.draw


def _pairs(state: machine.RaceState) -> Iterator[tuple[WorkItem, tuple[str, ...]]]:
    """Every (problem, agent) of a race as a work item, problem by problem, with the order of its validators."""
    _, field, draw = _drawn(state)
    agents = sorted((candidate.subject for candidate in field.field), key=lambda subject: subject.agent_version_id)
    for context in _contexts(state):
        for subject in agents:
            order = work_order(draw.seed, subject.agent_version_id, context.problem_id, field.validators)
            yield work_item(subject, context), order


def _contexts(state: machine.RaceState) -> Iterator[Context]:
    opened, _, draw = _drawn(state)
    sealed = {problem.problem_id: problem for problem in opened.batch.problems}
    for problem_id in draw.drawn:
        yield Context(
            stage="race",
            race_id=state.race_id,
            problem_id=problem_id,
            batch_sha256=opened.batch.batch_sha256,
            partition_sha256=opened.batch.partition_sha256,
            cluster_commitment=sealed[problem_id].cluster_commitment,
        )


# No agent can bring these about: nothing at all answers, or this node lost the lease. U3007 is none of them: the agent
# chooses the length, model and temperature that are not served. Nor is U3008: its own requests can fill the endpoint.
_NOBODYS = frozenset(
    {codes.NO_ENDPOINT, codes.MODEL_FAILED, codes.MODEL_UNREADABLE, codes.MODEL_BUSY, codes.LEASE_LOST}
)
_DOUBLINGS_MAX = 7  # of the longest wait: from ten minutes to a day


def after_fault(failure: Failure, stage: Stage, *, faults: int, counted: int, rules: RaceRules) -> Requeue | None:
    """How an item goes back to the queue after one more fault; None: it is never tried again. `faults` and `counted`
    are the lease's, before this one.

    The delay doubles with every fault of the item, from `retry_ms` to `retry_max_ms`, so that an item that can't be
    served stands behind all others. Beyond `attempts` faults of ours a qualifying item's longest wait doubles, too.
    """
    is_ours = failure.owner is codes.Owner.VALIDATOR
    is_quarantined = failure.code == codes.JOB_QUARANTINED
    is_capped = failure.code == codes.CAP_REACHED and stage == "race"  # its problem is stopped for everybody
    is_used_up = is_ours and stage == "race" and (is_quarantined or counted + 1 >= rules.attempts)
    if is_used_up or is_capped or failure.owner in (codes.Owner.PROBLEM, codes.Owner.AGENT):
        return None
    most_ms = rules.retry_max_ms
    if is_ours and stage == "qualifying":
        most_ms <<= min(max(0, counted - rules.attempts), _DOUBLINGS_MAX)
    delay_ms = most_ms if is_quarantined else min(most_ms, rules.retry_ms << min(faults, 32))
    return Requeue(
        delay_ms=delay_ms, is_fault=True, is_counted=is_ours, is_refused=failure.code == codes.REQUEST_PROVOKED
    )


def overdraft(lease: Lease, policy: Policy) -> Failure | None:
    """The agent's fault, which closes an item before it is run, where its own code has held workers for as long as its
    policy allows over a suite or a race, or its episodes fill what a race stores of an agent; None: it may run. Time in
    which the host works is none of it."""
    stage, race = lease.item.context.stage, policy.race
    limit_ms = race.worker_ms if stage == "race" else policy.qualifying.worker_ms
    if lease.item.subject.is_control:
        return None
    if 0 < limit_ms <= lease.agent_ms:
        return Failure(code=codes.OUT_OF_TIME, detail=f"{lease.agent_ms} of {limit_ms} ms in {stage}")
    if stage == "race" and 0 < race.body_bytes <= lease.body_bytes:
        return Failure(
            code=codes.RESOURCE_LIMIT, detail=f"{lease.body_bytes} of {race.body_bytes} bytes of records in a race"
        )
    return None


def is_nobodys_fault(failure: Failure) -> bool:
    """Whether an attempt that ended so lay in no agent's hands, so that its restart owes nothing."""
    return failure.code in _NOBODYS


def is_last_attempt(refused: int, rules: RaceRules) -> bool:
    """Whether the policy allows no other attempt when a request is refused in this one; `refused` is the lease's."""
    return 0 < rules.refused_attempts <= refused + 1
