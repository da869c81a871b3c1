"""Which records count, and what each says: from logs to one result per validator, agent and problem.

A record counts when it was written under the race's policy, for its batch, an agent of its field and a drawn problem,
by a holder of a permit, in a jail that may race. The first evaluation of a validator for an (agent, problem) counts,
with the first verdict it gave on that body; whatever comes later in its log changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from arena.race.assign import assign
from arena.race.model import CountedEvaluation, CountedVerdict, SettlementInputs, TrajectoryResult
from judge.verdict import Verdict
from problems.canonical import content_hash
from problems.outcome import OutcomeScore

ResultsByPair = dict[tuple[str, str], tuple[TrajectoryResult, ...]]


def record_set_sha256(evaluations: Iterable[CountedEvaluation], verdicts: Iterable[CountedVerdict]) -> str:
    """Hash of the record set S: sorted (validator, seq, content hash), each once."""
    rows = {(row.validator, row.seq, row.content_sha256) for row in evaluations}
    rows |= {(row.validator, row.seq, row.content_sha256) for row in verdicts}
    return content_hash([list(row) for row in sorted(rows)])


def count_results(inputs: SettlementInputs, seed: str, drawn: tuple[str, ...]) -> ResultsByPair:
    """(agent version id, problem id) -> results in assignment order, at most k: the assigned, then the stand-ins."""
    available = _results_by_validator(inputs, frozenset(drawn))
    copies = inputs.policy.race.validators_per_problem
    counted: ResultsByPair = {}
    for candidate in inputs.field:
        agent = candidate.subject.agent_version_id
        for problem_id in drawn:
            given = available.get((agent, problem_id), {})
            order = assign(seed, agent, problem_id, inputs.validators, copies).order if len(given) > 1 else tuple(given)
            present = tuple(given[hotkey] for hotkey in order if hotkey in given)
            counted[agent, problem_id] = present[:copies]
    return counted


def pairs_given(inputs: SettlementInputs) -> dict[str, frozenset[tuple[str, str]]]:
    """By validator: the (agent, problem) pairs of the field for which the records hold a result of its own."""
    problem_ids = frozenset(problem.problem_id for problem in inputs.batch.problems)
    given: dict[str, set[tuple[str, str]]] = {}
    for pair, results in _results_by_validator(inputs, problem_ids).items():
        for validator in results:
            given.setdefault(validator, set()).add(pair)
    return {validator: frozenset(pairs) for validator, pairs in given.items()}


def _results_by_validator(
    inputs: SettlementInputs, drawn: frozenset[str]
) -> dict[tuple[str, str], dict[str, TrajectoryResult]]:
    verdicts = _first_verdicts(inputs)
    permitted = frozenset(inputs.validators)
    policy_sha256 = inputs.recorded_under or inputs.policy.policy_sha256
    agents = frozenset(candidate.subject.agent_version_id for candidate in inputs.field)
    found: dict[tuple[str, str], dict[str, TrajectoryResult]] = {}
    for row in sorted(inputs.evaluations, key=lambda row: (row.validator, row.seq)):
        key = (row.record.subject.agent_version_id, row.record.context.problem_id)
        if row.validator not in permitted or key[0] not in agents or key[1] not in drawn:
            continue
        if not _is_of_race(row, inputs, policy_sha256) or row.validator in found.get(key, {}):
            continue
        result = _result(row, verdicts.get((row.validator, row.record.body_sha256)))
        if result is not None:
            found.setdefault(key, {})[row.validator] = result
    return found


def _first_verdicts(inputs: SettlementInputs) -> dict[tuple[str, str], Verdict]:
    rubric = inputs.policy.rubric
    first: dict[tuple[str, str], Verdict] = {}
    for row in sorted(inputs.verdicts, key=lambda row: (row.validator, row.seq)):
        verdict = row.record.verdict
        if (
            isinstance(verdict, Verdict)
            and row.record.context.race_id == inputs.race_id
            and verdict.rubric_id == rubric.rubric_id
            and verdict.prompt_sha256 == rubric.prompt_sha256
        ):
            first.setdefault((row.validator, verdict.body_sha256), verdict)
    return first


def _is_of_race(row: CountedEvaluation, inputs: SettlementInputs, policy_sha256: str) -> bool:
    record = row.record
    return (
        record.context.stage == "race"
        and record.context.race_id == inputs.race_id
        and record.context.batch_sha256 == inputs.batch.batch_sha256
        and record.conditions.policy_sha256 == policy_sha256
        and (record.conditions.sandbox.may_race or not inputs.policy.guest.is_racing_level_required)
    )


def _result(row: CountedEvaluation, verdict: Verdict | None) -> TrajectoryResult | None:
    """The result of one evaluation, or None while its outcome or the verdict on a success is owed."""
    outcome = row.record.outcome
    if not isinstance(outcome, OutcomeScore) or (outcome.is_success and verdict is None):
        return None
    return TrajectoryResult(
        validator=row.validator,
        agent_version_id=row.record.subject.agent_version_id,
        problem_id=row.record.context.problem_id,
        is_success=outcome.is_success,
        is_agentic=row.record.is_agentic,
        score_e4=verdict.coefficient_e4 if outcome.is_success and verdict is not None else 0,
        quality_e4=verdict.quality_e4 if verdict is not None else None,
    )
