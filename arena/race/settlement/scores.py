"""Scores: from counted results to one number per agent, with its interval.

Problem score: lower median over validators of outcome (0 or 1) x coefficient. A problem is void for the whole field
when the control agent lacks results on it, whatever the field does (policies without one: when enough agents lack it,
never one alone). Else an agent without enough results gets 0 for it, published as faulted or missing. Race score: mean
over the non-void problems, under a policy with lambda
times (1 - lambda + lambda x agentic share). Exact integers throughout. Source: docs/architecture.md#the-mechanism.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from arena.policy import RaceRules
from arena.race.model import AgentScore, Candidate, ProblemScore, TrajectoryResult
from arena.race.settlement.results import Counted, PairCount
from judge.rubric import coefficient_e4, lower_median

if TYPE_CHECKING:  # whoever only reads a race need not wait for it
    import numpy as np

_UNIT = 10_000
_RESAMPLES = 1_000
_VOID_AGENTS_MIN = 2  # one agent can't void a race


class FieldScores(msgspec.Struct, frozen=True, kw_only=True):
    """The scored field: agents by version id, and the problems that are void for everybody, in drawn order."""

    agents: tuple[AgentScore, ...]
    void: tuple[str, ...]
    counted: int  # problems that are not void


class Interval(msgspec.Struct, frozen=True):
    """A 95 % interval in ten-thousandths."""

    low_e4: int
    high_e4: int


def score_field(
    field: Sequence[Candidate], drawn: Sequence[str], counts: Counted, rules: RaceRules, validators: int
) -> FieldScores:
    """Score every agent on every non-void problem. `validators` is the number of permits at the closing block."""
    required = results_needed(rules, validators)
    decisive = 2 if min(rules.validators_per_problem, validators) > 2 else 1
    agents = sorted((candidate.subject.agent_version_id, candidate) for candidate in field)
    if counts.control is None:
        lacking = {
            problem_id: sum(len(counts.pairs[agent, problem_id].results) < required for agent, _ in agents)
            for problem_id in drawn
        }
        void = tuple(
            problem_id
            for problem_id, count in lacking.items()
            if count >= _VOID_AGENTS_MIN and count * _UNIT >= rules.void_agents_e4 * len(agents)
        )
    else:
        void = tuple(problem_id for problem_id in drawn if counts.control.get(problem_id, 0) < required)
    counted = [problem_id for problem_id in drawn if problem_id not in frozenset(void)]
    scored = tuple(
        AgentScore(
            candidate=candidate,
            problems=tuple(
                pair_score(problem_id, counts.pairs[agent, problem_id], required, decisive)
                if counts.control is not None
                else problem_score(problem_id, counts.pairs[agent, problem_id].results, required)
                for problem_id in counted
            ),
        )
        for agent, candidate in agents
    )
    return FieldScores(agents=scored, void=void, counted=len(counted))


def results_needed(rules: RaceRules, validators: int) -> int:
    """Results without which a problem is missing. Where fewer validators hold a permit than that, all are needed."""
    return max(1, min(rules.results_required, rules.validators_per_problem, validators))


def pair_score(problem_id: str, pair: PairCount, required: int, decisive: int) -> ProblemScore:
    """As `problem_score`, with faults that stand against the agent, where a control agent says what is void.

    Beside enough results a fault is one more that failed, so that the median never gains by it. Without them `decisive`
    faults score 0; with fewer the results there are decide, so that no single validator's word does; nor does one that
    keeps what it has to itself, unless it can be seen to have tried.
    """
    if not pair.faults:
        return problem_score(problem_id, pair.results, required if pair.is_tried_elsewhere else 1)
    if len(pair.results) >= required:
        failed = replace(pair.results[0], is_success=False, is_agentic=False, score_e4=0, quality_e4=None)
        return problem_score(problem_id, (*pair.results, *[failed] * pair.faults), required)
    if pair.faults >= decisive:
        return ProblemScore(problem_id=problem_id, state="faulted")
    return problem_score(problem_id, pair.results, 1)


def problem_score(problem_id: str, results: Sequence[TrajectoryResult], required: int) -> ProblemScore:
    """Lower medians over validators, or a missing score with fewer than `required` results."""
    if len(results) < required:
        return ProblemScore(problem_id=problem_id, state="missing")
    qualities = [result.quality_e4 for result in results if result.quality_e4 is not None]
    return ProblemScore(
        problem_id=problem_id,
        state="scored",
        score_e4=lower_median([result.score_e4 for result in results]),
        is_success=bool(lower_median([int(result.is_success) for result in results])),
        is_agentic=bool(lower_median([int(result.is_agentic) for result in results])),
        quality_e4=lower_median(qualities) if qualities else None,
    )


def exact_score(agent: AgentScore, lambda_e4: int) -> int:
    """The race score as an exact integer: comparable within one race, where every agent has the same problems."""
    count = len(agent.problems)
    total = sum(problem.score_e4 for problem in agent.problems)
    agentic = sum(problem.is_agentic for problem in agent.problems)
    return total * ((_UNIT - lambda_e4) * count + lambda_e4 * agentic)


def race_score_e4(agent: AgentScore, lambda_e4: int) -> int:
    """The race score in ten-thousandths, rounded down; 0 when no problem counts."""
    count = len(agent.problems)
    return exact_score(agent, lambda_e4) // (count * count * _UNIT) if count else 0


def rank(agents: Iterable[AgentScore], lambda_e4: int) -> tuple[AgentScore, ...]:
    """The field, best first, in a total order, so that no two validators can list it differently.

    By race score (compared exactly, not as rounded), then the earlier commitment block, then the smaller agent version
    id: an earlier commitment wins a tie because a copy can only be later. All agents must have been scored on the same
    problems.
    """

    def order(agent: AgentScore) -> tuple[int, int, str]:
        subject = agent.candidate.subject
        return (-exact_score(agent, lambda_e4), subject.commitment_block, subject.agent_version_id)

    return tuple(sorted(agents, key=order))


def success_e4(agent: AgentScore) -> int:
    """Share of problems solved, rounded down."""
    return _share_e4(sum(problem.is_success for problem in agent.problems), len(agent.problems))


def agentic_share_e4(agent: AgentScore) -> int:
    """Share of problems with an agentic trajectory, rounded down."""
    return _share_e4(sum(problem.is_agentic for problem in agent.problems), len(agent.problems))


def mean_quality_e4(agent: AgentScore) -> int:
    """Mean reasoning quality over judged problems, rounded down; 0 when nothing was judged."""
    qualities = [problem.quality_e4 for problem in agent.problems if problem.quality_e4 is not None]
    return sum(qualities) // len(qualities) if qualities else 0


def product_of_means_e4(agent: AgentScore) -> int:
    """SN15's run-level score, success rate x coefficient of the mean quality: published beside ours, ranks nothing."""
    return success_e4(agent) * coefficient_e4(mean_quality_e4(agent)) // _UNIT


def bootstrap_interval(agent: AgentScore, lambda_e4: int, picks: np.ndarray) -> Interval:
    """The 95 % percentile interval of the race score over resampled problems (`picks` from `resample`)."""
    return _percentiles(_resampled_e4(agent, lambda_e4, picks)) if agent.problems else Interval(0, 0)


def difference_interval(first: AgentScore, second: AgentScore, lambda_e4: int, picks: np.ndarray) -> Interval:
    """The 95 % percentile interval of `first`'s race score less `second`'s, paired: each resample holds the same
    problems for both. Both must have been scored on the same problems."""
    if not first.problems:
        return Interval(0, 0)
    return _percentiles(_resampled_e4(first, lambda_e4, picks) - _resampled_e4(second, lambda_e4, picks))


def _resampled_e4(agent: AgentScore, lambda_e4: int, picks: np.ndarray) -> np.ndarray:
    """The race score of each resample, rounded down."""
    import numpy as np

    count = len(agent.problems)
    scores = np.array([problem.score_e4 for problem in agent.problems], dtype=np.int64)
    agentic = np.array([problem.is_agentic for problem in agent.problems], dtype=np.int64)
    totals = scores[picks].sum(axis=1) * ((_UNIT - lambda_e4) * count + lambda_e4 * agentic[picks].sum(axis=1))
    resampled: np.ndarray = totals // (count * count * _UNIT)
    return resampled


def _percentiles(values: np.ndarray) -> Interval:
    """What is left when the lowest and the highest fortieth are cut off."""
    import numpy as np

    ordered = np.sort(values)
    edge = len(ordered) // 40
    return Interval(int(ordered[edge]), int(ordered[-1 - edge]))


def resample(seed: str, count: int) -> np.ndarray:
    """Indexes of problems, shape (1,000, count), from SHAKE-256 of the race's seed: the same on every machine.

    The whole field is resampled alike, so that intervals of one race can be compared.
    """
    import numpy as np

    stream = hashlib.shake_256(b"agent-arena/bootstrap/1" + bytes.fromhex(seed)).digest(4 * _RESAMPLES * count)
    words = np.frombuffer(stream, dtype="<u4").astype(np.uint64).reshape(_RESAMPLES, count)
    return ((words * np.uint64(count)) >> np.uint64(32)).astype(np.int64)


def _share_e4(part: int, whole: int) -> int:
    return _UNIT * part // whole if whole else 0
