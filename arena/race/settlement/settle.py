"""Settlement: a pure function from agreed inputs to the one record every honest validator signs.

Equal inputs give equal bytes, in whatever order they arrive. A race is cancelled, and changes nothing, when it has no
field, no validator, no beacon, no result, or too many void problems; the last good settlement's weights then stay.
Source: docs/architecture.md#the-mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from arena.policy import PromotionRules
from arena.race.model import AgentScore, SettlementInputs
from arena.race.settlement.draw import draw_problems, race_seed
from arena.race.settlement.promotion import (
    beats_margin,
    duel,
    eliminated_agents,
    is_evidence_enough,
    past_duels,
    weighted_scores,
)
from arena.race.settlement.provenance import state_inputs
from arena.race.settlement.results import attempts_that_count, count_results, record_set_sha256
from arena.race.settlement.scores import (
    FieldScores,
    agentic_share_e4,
    bootstrap_interval,
    exact_score,
    mean_quality_e4,
    product_of_means_e4,
    race_score_e4,
    rank,
    resample,
    score_field,
    success_e4,
)
from arena.race.settlement.weights import chain_vector
from arena.records.model import RaceInputs, SettlementRecord, Standing, Top

_UNIT = 10_000


def settle(inputs: SettlementInputs) -> SettlementRecord:
    """Settle a race. Raises ValueError only for inputs that contradict themselves (a batch too small for its draw)."""
    blank = cancelled_settlement(
        race_id=inputs.race_id,
        policy_sha256=inputs.policy.policy_sha256,
        closing_block=inputs.closing_block,
        settling_block=inputs.settling_block,
        batch_sha256=inputs.batch.batch_sha256,
        record_set_sha256=record_set_sha256(inputs.evaluations, inputs.verdicts, attempts_that_count(inputs)),
        incumbent=inputs.incumbent,
        inputs=state_inputs(inputs),
    )
    if not inputs.field:
        return msgspec.structs.replace(blank, reason="no agent raced")
    if not inputs.validators:
        return msgspec.structs.replace(blank, reason="no validator holds a permit")
    if inputs.beacon is None:
        return msgspec.structs.replace(blank, reason=inputs.undrawn_why)
    seed = race_seed(inputs.race_id, inputs.batch.batch_sha256, inputs.beacon)
    drawn = draw_problems(seed, (problem.problem_id for problem in inputs.batch.problems), inputs.policy.race.problems)
    blank = msgspec.structs.replace(blank, seed=seed, beacon_round=inputs.beacon.round, drawn=drawn)
    counted = count_results(inputs, seed, drawn)
    if counted.is_empty:
        return msgspec.structs.replace(blank, reason="no validator gave a result")
    scores = score_field(inputs.field, drawn, counted, inputs.policy.race, len(inputs.validators))
    if len(scores.void) * _UNIT > inputs.policy.race.cancel_void_e4 * len(drawn):
        reason = f"{len(scores.void)} of {len(drawn)} problems are void"
        return msgspec.structs.replace(blank, void=scores.void, reason=reason)
    return _settled(inputs, blank, scores)


def cancelled_settlement(
    *,
    race_id: str,
    policy_sha256: str,
    closing_block: int,
    settling_block: int,
    batch_sha256: str,
    record_set_sha256: str,
    incumbent: Top | None,
    reason: str = "",
    inputs: RaceInputs | None = None,
) -> SettlementRecord:
    """The record of a race that ends before its draw and changes nothing: whoever was at the top stays there."""
    return SettlementRecord(
        race_id=race_id,
        policy_sha256=policy_sha256,
        closing_block=closing_block,
        settling_block=settling_block,
        beacon_round=0,
        seed="",
        batch_sha256=batch_sha256,
        record_set_sha256=record_set_sha256,
        drawn=(),
        void=(),
        state="cancelled",
        reason=reason,
        standings=(),
        top_agent_version_id=incumbent.agent_version_id if incumbent else "",
        is_promotion=False,
        uids=(),
        weights_u16=(),
        inputs=inputs,
    )


def _settled(inputs: SettlementInputs, blank: SettlementRecord, scores: FieldScores) -> SettlementRecord:
    lambda_e4 = inputs.policy.race.lambda_e4
    ranked = rank(scores.agents, lambda_e4)
    promotion, incumbent = inputs.policy.promotion, _incumbent_score(inputs, ranked)
    crown = {_id(agent): race_score_e4(agent, lambda_e4) for agent in ranked}
    if promotion.kind == "window":
        crown = weighted_scores(crown, inputs.history, promotion.window_races)
    # (wins, losses) against the incumbent on this race's draw; zeros without one
    is_strict = bool(inputs.policy.race.control_sha256)
    duels = {_id(agent): duel(agent, incumbent, is_strict=is_strict) if incumbent else (0, 0) for agent in ranked}
    top, top_hotkey = _top(inputs, ranked, crown, duels)
    eliminated = eliminated_agents(ranked, top, promotion)
    picks = resample(blank.seed, scores.counted)
    standings = []
    for place, agent in enumerate(ranked, start=1):
        subject = agent.candidate.subject
        interval = bootstrap_interval(agent, lambda_e4, picks)
        wins, losses = duels[subject.agent_version_id]
        standings.append(
            Standing(
                rank=place,
                agent_version_id=subject.agent_version_id,
                miner_hotkey=subject.miner_hotkey,
                race_score_e4=race_score_e4(agent, lambda_e4),
                low_e4=interval.low_e4,
                high_e4=interval.high_e4,
                success_e4=success_e4(agent),
                mean_quality_e4=mean_quality_e4(agent),
                product_of_means_e4=product_of_means_e4(agent),
                agentic_share_e4=agentic_share_e4(agent),
                problems=scores.counted,
                missing=sum(problem.state == "missing" for problem in agent.problems),
                crown_score_e4=crown[subject.agent_version_id],
                is_eliminated=subject.agent_version_id in eliminated,
                wins=wins,
                losses=losses,
                faulted=sum(problem.state == "faulted" for problem in agent.problems) if is_strict else msgspec.UNSET,
            )
        )
    vector = chain_vector(
        [standing.miner_hotkey for standing in standings], top_hotkey, inputs.metagraph, inputs.policy.weights
    )
    return msgspec.structs.replace(
        blank,
        state="settled",
        void=scores.void,
        standings=tuple(standings),
        top_agent_version_id=top,
        is_promotion=top != blank.top_agent_version_id,
        uids=vector.uids,
        weights_u16=vector.weights,
    )


def _top(
    inputs: SettlementInputs,
    ranked: Sequence[AgentScore],
    crown: Mapping[str, int],
    duels: Mapping[str, tuple[int, int]],
) -> tuple[str, str]:
    """(agent version id, hotkey) at the top after this race. A challenger that scored nothing never gets there."""
    best = max(ranked, key=lambda agent: crown[_id(agent)])  # the first of equals: the better ranked
    incumbent = _incumbent_score(inputs, ranked)
    if inputs.incumbent is None or incumbent is None:
        if exact_score(best, 0) > 0:
            return _id(best), best.candidate.subject.miner_hotkey
        return (inputs.incumbent.agent_version_id, inputs.incumbent.miner_hotkey) if inputs.incumbent else ("", "")
    if best is not incumbent and _is_promoted(inputs, best, incumbent, crown, duels):
        return _id(best), best.candidate.subject.miner_hotkey
    return inputs.incumbent.agent_version_id, inputs.incumbent.miner_hotkey


def _is_promoted(
    inputs: SettlementInputs,
    best: AgentScore,
    incumbent: AgentScore,
    crown: Mapping[str, int],
    duels: Mapping[str, tuple[int, int]],
) -> bool:
    rules: PromotionRules = inputs.policy.promotion
    top = inputs.incumbent
    if top is None:
        return True
    if rules.kind == "sequential":
        earlier = past_duels(_id(best), top.agent_version_id, inputs.history)
        wins, losses = duels[_id(best)]
        return is_evidence_enough(wins + earlier[0], losses + earlier[1], rules.alpha_e4)
    reign_ms = inputs.closes_ms - top.promoted_ms
    if rules.kind == "window":
        return beats_margin(crown[_id(best)], crown[_id(incumbent)], rules, reign_ms)
    lambda_e4 = inputs.policy.race.lambda_e4
    return beats_margin(exact_score(best, lambda_e4), exact_score(incumbent, lambda_e4), rules, reign_ms)


def _incumbent_score(inputs: SettlementInputs, ranked: Sequence[AgentScore]) -> AgentScore | None:
    if inputs.incumbent is None:
        return None
    return next((agent for agent in ranked if _id(agent) == inputs.incumbent.agent_version_id), None)


def _id(agent: AgentScore) -> str:
    return agent.candidate.subject.agent_version_id
