"""Settlement: a pure function from agreed inputs to the one record every honest validator signs.

Equal inputs give equal bytes, in whatever order they arrive. A race is cancelled, and changes nothing, when it has no
field, no validator, no beacon, no result, or too many void problems; the last good settlement's weights then stay.
Source: docs/architecture.md#the-mechanism.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from arena.chain.port import BeaconRound, Metagraph, Neuron
from arena.policy import Policy, PromotionRules
from arena.race import weights
from arena.race.draw import UNIT_E4, draw_problems, race_seed
from arena.race.scores import (
    AgentScore,
    FieldScores,
    LoggedRecord,
    RaceCount,
    RacePayload,
    SettlementInputs,
    bootstrap_interval,
    control_subject,
    count_results,
    counted_attempts,
    exact_score,
    mean_quality_e4,
    product_of_means_e4,
    race_score_e4,
    rank,
    record_set_sha256,
    resample,
    runs_of,
    score_field,
    share_e4,
)
from arena.records.model import (
    AttemptRecord,
    EvaluationRecord,
    Evidence,
    PastSettlement,
    RaceInputs,
    SettlementRecord,
    Standing,
    VerdictRecord,
)
from foundation.canonical import content_hash, read_canonical
from foundation.durable_files import coded
from foundation.errors import ArenaError

NO_BEACON, CAPPED = "the beacon did not come", "a cap on what models cost was reached"


def settle(inputs: SettlementInputs) -> SettlementRecord:
    """Settle a race. Raises ValueError only for inputs that contradict themselves (a batch too small for its draw)."""
    stated = _in_order(inputs)
    blank = replace(
        CANCELLED,
        race_id=inputs.race_id,
        policy_sha256=inputs.policy.policy_sha256,
        closing_block=inputs.closing_block,
        settling_block=inputs.settling_block,
        batch_sha256=inputs.batch_sha256,
        record_set_sha256=record_set_sha256((*inputs.evaluations, *inputs.verdicts, *counted_attempts(inputs))),
        top_agent_version_id=stated.incumbent.agent_version_id if stated.incumbent else "",
        inputs=stated,
    )
    if not stated.field:
        return replace(blank, reason="no agent raced")
    if not stated.validators:
        return replace(blank, reason="no validator holds a permit")
    if not stated.beacon_signature:
        return replace(blank, reason=stated.undrawn_why)
    beacon = BeaconRound(network=stated.beacon_network, round=inputs.beacon_round, signature=stated.beacon_signature)
    seed = race_seed(inputs.race_id, inputs.batch_sha256, beacon)
    drawn = draw_problems(seed, stated.problem_ids, inputs.policy.race.problems)
    blank = replace(blank, seed=seed, beacon_round=beacon.round, drawn=drawn)
    counted = count_results(inputs, seed, drawn)
    control = control_subject(inputs.policy.race).agent_version_id
    if not any(counted.pairs[control, problem_id].results for problem_id in drawn):
        return replace(blank, reason="no validator gave a result" + _capped(drawn, counted))
    scores = score_field(stated.field, drawn, counted, inputs.policy.race, len(stated.validators))
    if len(scores.void) * UNIT_E4 > inputs.policy.race.cancel_void_e4 * len(drawn):
        reason = f"{len(scores.void)} of {len(drawn)} problems are void" + _capped(scores.void, counted)
        return replace(blank, void=scores.void, reason=reason)
    return _settled(inputs, blank, scores, counted)


def _capped(void: Iterable[str], counted: RaceCount) -> str:
    """What a reason goes on with where a cap stopped some of these problems."""
    return f": {CAPPED}" if counted.stopped.intersection(void) else ""


def _in_order(inputs: SettlementInputs) -> RaceInputs:
    """What a settlement states, sorted throughout: equal inputs in any order are equal bytes."""
    stated, top = inputs.stated, inputs.stated.incumbent
    hotkeys = {candidate.subject.miner_hotkey for candidate in stated.field} | set(stated.validators)
    hotkeys |= {top.miner_hotkey} if top else set()
    neurons = (neuron for neuron in stated.neurons if neuron.hotkey in hotkeys)
    past = relevant_history(inputs)
    return replace(
        stated,
        policy=stated.policy or inputs.policy.stated.decode(),  # a record's own words: an older release wrote defaults
        problem_ids=tuple(sorted(stated.problem_ids)),
        field=tuple(sorted(stated.field, key=lambda candidate: candidate.subject.agent_version_id)),
        validators=tuple(sorted(stated.validators)),
        neurons=tuple(sorted(neurons, key=lambda neuron: neuron.uid)),
        history=tuple(PastSettlement(race_id=each.race_id, settlement_sha256=settlement_sha256(each)) for each in past),
        eliminated=tuple(sorted(set(stated.eliminated))),
        logs=tuple(sorted(stated.logs, key=lambda log: log.validator)),
        beacon_signature=bytes.fromhex(stated.beacon_signature).hex(),
        undrawn_why="" if stated.beacon_signature else stated.undrawn_why,
    )


# The record of a race that ends before its draw and changes nothing, but for what it names: the top agent stays.
CANCELLED = SettlementRecord(
    race_id="",
    policy_sha256="",
    closing_block=0,
    settling_block=0,
    beacon_round=0,
    seed="",
    batch_sha256="",
    record_set_sha256="",
    drawn=(),
    void=(),
    state="cancelled",
    standings=(),
    top_agent_version_id="",
    is_promotion=False,
    uids=(),
    weights_u16=(),
)


def _settled(
    inputs: SettlementInputs, blank: SettlementRecord, scores: FieldScores, counted: RaceCount
) -> SettlementRecord:
    lambda_e4 = inputs.policy.race.lambda_e4
    ranked = rank(scores.agents, lambda_e4)
    promotion, reigned = inputs.policy.promotion, inputs.stated.incumbent
    incumbent = next((agent for agent in ranked if reigned and _id(agent) == reigned.agent_version_id), None)
    crown = {_id(agent): race_score_e4(agent, lambda_e4) for agent in ranked}
    if promotion.kind == "window":
        crown = weights.weighted_scores(crown, relevant_history(inputs), promotion.window_races)
    # the control agent stands in an empty seat, and for a top agent that does not race
    stands = incumbent or scores.control
    evidence = _evidence(inputs, ranked, counted, stands) if promotion.kind == "evidence" else UNSET
    top, top_hotkey = _top(inputs, ranked, crown, evidence, incumbent)
    eliminated = weights.eliminated_agents(ranked, top, promotion)
    picks = resample(blank.seed, len(scores.control.problems))
    standings = []
    for place, agent in enumerate(ranked, start=1):
        subject = agent.candidate.subject
        low_e4, high_e4 = bootstrap_interval(agent, lambda_e4, picks)
        wins, losses = weights.duel(agent, incumbent) if incumbent else (0, 0)  # on this race's draw
        standings.append(
            Standing(
                rank=place,
                agent_version_id=subject.agent_version_id,
                miner_hotkey=subject.miner_hotkey,
                race_score_e4=race_score_e4(agent, lambda_e4),
                low_e4=low_e4,
                high_e4=high_e4,
                success_e4=share_e4(agent, "is_success"),
                mean_quality_e4=mean_quality_e4(agent),
                product_of_means_e4=product_of_means_e4(agent),
                agentic_share_e4=share_e4(agent, "is_agentic"),
                problems=len(scores.control.problems),
                missing=sum(problem.state == "missing" for problem in agent.problems),
                crown_score_e4=crown[subject.agent_version_id],
                is_eliminated=subject.agent_version_id in eliminated,
                wins=wins,
                losses=losses,
                faulted=sum(problem.state == "faulted" for problem in agent.problems),
            )
        )
    neurons = tuple(Neuron(uid=row.uid, hotkey=row.hotkey) for row in inputs.stated.neurons)
    subnet = Metagraph(netuid=0, block=inputs.settling_block, tempo=0, neurons=neurons)
    places = weights.paid_places(ranked, top, scores.control, lambda_e4) if inputs.policy.gate.class_e4 else UNSET
    hotkeys = [standing.miner_hotkey for standing in standings] if places is UNSET else places
    vector = weights.chain_vector(hotkeys, top_hotkey, subnet, inputs.policy.weights)
    return replace(
        blank,
        state="settled",
        void=scores.void,
        standings=tuple(standings),
        top_agent_version_id=top,
        is_promotion=top != blank.top_agent_version_id,
        evidence=evidence,
        places=places,
        uids=vector.uids,
        weights_u16=vector.weights,
    )


def _evidence(
    inputs: SettlementInputs, ranked: Sequence[AgentScore], counted: RaceCount, stands: AgentScore
) -> Evidence:
    """What every hotkey holds against the agent that stands at the top after this race."""
    lambda_e4 = inputs.policy.race.lambda_e4
    before = weights.evidence_before(inputs.history, inputs.stated.incumbent)
    challengers = [agent for agent in ranked if agent is not stands]
    raced = {agent.candidate.subject.miner_hotkey: runs_of(agent, counted, lambda_e4) for agent in challengers}
    return weights.carry(before, raced, runs_of(stands, counted, lambda_e4))


def _top(
    inputs: SettlementInputs,
    ranked: Sequence[AgentScore],
    crown: Mapping[str, int],
    evidence: Evidence | UnsetType,
    incumbent: AgentScore | None,
) -> tuple[str, str]:
    """(agent version id, hotkey) at the top after this race. By a margin a challenger that scored nothing never gets
    there."""
    rules, top, lambda_e4 = inputs.policy.promotion, inputs.stated.incumbent, inputs.policy.race.lambda_e4
    best = max(ranked, key=lambda agent: crown[_id(agent)])  # the first of equals: the better ranked
    if isinstance(evidence, Evidence):
        crowned = _crowned(ranked, evidence, rules, len(inputs.stated.validators))
    elif top is None or incumbent is None:
        crowned = best if exact_score(best, 0) > 0 else None
    else:
        is_window = rules.kind == "window"
        mine, theirs = (crown[_id(one)] if is_window else exact_score(one, lambda_e4) for one in (best, incumbent))
        crowned = best if weights.beats_margin(mine, theirs, rules, inputs.stated.closes_ms - top.promoted_ms) else None
    if crowned is not None:
        return _id(crowned), crowned.candidate.subject.miner_hotkey
    return (top.agent_version_id, top.miner_hotkey) if top else ("", "")


def _crowned(
    ranked: Sequence[AgentScore], evidence: Evidence, rules: PromotionRules, validators: int
) -> AgentScore | None:
    """Who holds enough evidence: of several the one that holds most, then the earlier commitment."""
    held = {one.miner_hotkey: one for one in evidence.held if weights.is_enough(one, rules, validators)}
    able = [agent for agent in ranked if agent.candidate.subject.miner_hotkey in held]

    def order(agent: AgentScore) -> tuple[int, tuple[int, int, str]]:
        most = weights.held_millionths(held[agent.candidate.subject.miner_hotkey], validators)
        return (-most, agent.candidate.place)

    return min(able, key=order, default=None)


def _id(agent: AgentScore) -> str:
    return agent.candidate.subject.agent_version_id


_LEFT_OUT = "V2050"


def settlement_sha256(record: SettlementRecord) -> str:
    """The identity of a settlement: the same on every validator that settled alike."""
    return content_hash(record)


def relevant_history(inputs: SettlementInputs) -> tuple[SettlementRecord, ...]:
    """The earlier settlements that the policy's promotion rule looks at: none (`margin`), the rest of the window
    (`window`), or the last one where its top agent still reigns (`evidence`, which it carries)."""
    rules = inputs.policy.promotion
    if rules.kind == "window" and rules.window_races > 1:
        return tuple(past for past in inputs.history if past.state == "settled")[-(rules.window_races - 1) :]
    last = weights.last_of_reign(inputs.history, inputs.stated.incumbent) if rules.kind == "evidence" else None
    return (last,) if last is not None else ()


def policy_of(record: SettlementRecord) -> Policy:
    """The policy a settlement states. Raises ArenaError V2050 where it states none, or another than it names."""
    text = _stated(record).policy
    with coded(f"{record.race_id}: policy", _LEFT_OUT):
        policy = read_canonical(text, Policy)
    if policy.policy_sha256 != record.policy_sha256:
        raise ArenaError(_LEFT_OUT, f"{record.race_id}: the policy stated is not the one named")
    return policy


def readable_policy(record: SettlementRecord | None) -> Policy | None:
    """The same; None where there is none, or one of another release that this one can't read."""
    with suppress(ArenaError):
        return policy_of(record) if record else None
    return None


def evidence_needed(record: SettlementRecord | None) -> int | None:
    """What took the top in a race by evidence, by its own policy; None where that is not known or crowned otherwise."""
    policy = readable_policy(record)
    if not (record and record.inputs and policy and policy.promotion.kind == "evidence"):
        return None
    return weights.needed(policy.promotion, len(record.inputs.validators))


def inputs_again(
    record: SettlementRecord,
    evaluations: Iterable[LoggedRecord[EvaluationRecord]],
    verdicts: Iterable[LoggedRecord[VerdictRecord]],
    history: Sequence[SettlementRecord] = (),
    *,
    policy: Policy | None = None,
    attempts: Iterable[LoggedRecord[AttemptRecord]] = (),
) -> SettlementInputs:
    """The inputs a settlement was made of; `policy` takes the place of its own, to see how else it could have ended.

    `evaluations`, `verdicts` and `attempts` are those of the race in the counted logs, up to each log's size; `history`
    holds earlier settlements in their order, those that `record` names among them. Under another policy, records
    written under the race's own still count. Raises ArenaError V2050 where the record states no inputs, or its policy,
    beacon or history is another than the one it names.
    """
    stated, own = _stated(record), policy_of(record)
    known = {settlement_sha256(past): past for past in history}
    for past in stated.history:
        if past.settlement_sha256 not in known:
            raise ArenaError(_LEFT_OUT, f"{record.race_id}: settlement of {past.race_id} is missing, or another")
    named = tuple(known[past.settlement_sha256] for past in stated.history)
    sizes = {log.validator: log.size for log in stated.logs}
    return SettlementInputs(
        race_id=record.race_id,
        policy=own if policy is None else policy,
        batch_sha256=record.batch_sha256,
        closing_block=record.closing_block,
        settling_block=record.settling_block,
        beacon_round=record.beacon_round,
        stated=stated if policy is None else replace(stated, policy=""),
        evaluations=tuple(row for row in evaluations if _is_counted(row, sizes)),
        verdicts=tuple(row for row in verdicts if _is_counted(row, sizes)),
        attempts=tuple(row for row in attempts if _is_counted(row, sizes)),
        history=named if policy is None else tuple(history),
        recorded_under=own.policy_sha256,
    )


def differences(made: SettlementRecord, given: SettlementRecord) -> tuple[str, ...]:
    """The names of what two settlements state differently, `inputs.` before those of their inputs; none: equal."""
    found = [
        name for name in made.__struct_fields__ if name != "inputs" and getattr(made, name) != getattr(given, name)
    ]
    if made.inputs is None or given.inputs is None:
        return tuple(found if made.inputs is given.inputs else [*found, "inputs"])
    mine, theirs = made.inputs, given.inputs
    parts = [name for name in mine.__struct_fields__ if getattr(mine, name) != getattr(theirs, name)]
    return tuple([*found, *(f"inputs.{name}" for name in parts)])


def _stated(record: SettlementRecord) -> RaceInputs:
    if record.inputs is None:
        raise ArenaError(_LEFT_OUT, f"{record.race_id}: its settlement states no inputs: a cancelled race has none")
    return record.inputs


def _is_counted(row: LoggedRecord[RacePayload], sizes: dict[str, int]) -> bool:
    """Whether it stands in the counted part of its log. No logs stated: one validator settled from its own."""
    return not sizes or row.seq <= sizes.get(row.validator, 0)
