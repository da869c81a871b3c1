"""The first of a race against the second, on the same problems: the difference of their scores with its interval. Pure.

The statistic is the settlement's own (`arena.race.settlement.scores`), over the settlement's own resamples. It
is told only where the results here give both standings, score and interval, to the last digit; else there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arena.api.reads.answers import PairResult
from arena.policy import RaceRules
from arena.race.model import AgentScore, TrajectoryResult
from arena.race.settlement.provenance import policy_of
from arena.race.settlement.scores import (
    Interval,
    bootstrap_interval,
    difference_interval,
    problem_score,
    race_score_e4,
    resample,
    results_needed,
)
from arena.records.model import Candidate, SettlementRecord, Standing, Subject
from arena.web.model import PairedGap
from foundation.errors import ArenaError

Results = Mapping[str, Sequence[PairResult]]  # by problem


def paired_gap(settlement: SettlementRecord, results: Results) -> PairedGap | None:
    """The two best of a settled race. `results`: every one on its problems, whatever their pools."""
    ranked = sorted(settlement.standings, key=lambda one: one.rank)[:2]
    counted = [name for name in settlement.drawn if name not in settlement.void]
    if len(ranked) < 2 or not counted or settlement.inputs is None:
        return None
    try:
        rules, picks = policy_of(settlement).race, resample(settlement.seed, len(counted))
    except (ArenaError, ValueError):  # a policy, or a seed, of another release
        return None
    required = 1 if rules.control_sha256 else results_needed(rules, len(settlement.inputs.validators))
    first, second = (_score(one, counted, results, rules, required) for one in ranked)
    for standing, score in zip(ranked, (first, second), strict=True):
        found = race_score_e4(score, rules.lambda_e4), bootstrap_interval(score, rules.lambda_e4, picks)
        if found != (standing.race_score_e4, Interval(standing.low_e4, standing.high_e4)):
            return None
    interval = difference_interval(first, second, rules.lambda_e4, picks)
    return PairedGap(
        gap_e4=ranked[0].race_score_e4 - ranked[1].race_score_e4,
        low_e4=interval.low_e4,
        high_e4=interval.high_e4,
        problems=len(counted),
    )


def _score(standing: Standing, counted: Sequence[str], results: Results, rules: RaceRules, required: int) -> AgentScore:
    """The agent's problems as the settlement scores them, one result of each validator."""
    name = standing.agent_version_id
    subject = Subject(agent_version_id=name, miner_hotkey=standing.miner_hotkey, agent_sha256="")
    problems = []
    for problem_id in counted:
        given: dict[str, TrajectoryResult] = {}
        for one in results.get(problem_id, ()):
            if one.agent_version_id != name or one.is_success is None or one.validator in given:
                continue
            if one.is_success and one.coefficient_e4 is None:
                continue  # its verdict is owed
            given[one.validator] = TrajectoryResult(
                validator=one.validator,
                agent_version_id=name,
                problem_id=problem_id,
                is_success=one.is_success,
                is_agentic=one.is_agentic,
                score_e4=(one.coefficient_e4 or 0) if one.is_success else 0,
                quality_e4=None,
            )
        problems.append(problem_score(problem_id, tuple(given.values()), required))
    return AgentScore(candidate=Candidate(subject=subject, qualifying_score_e4=0), problems=tuple(problems))
