"""Which records count, and what each says: from logs to one result per validator, agent and problem.

A record counts when it was written under the race's policy, for its batch, an agent of its field and a drawn problem,
by a holder of a permit, in a jail that may race. The first evaluation of a validator for an (agent, problem) counts,
with the first verdict it gave on that body; whatever comes later in its log changes nothing. What a validator has on a
problem that its judging budget had no room for counts for no agent, a failure, which needs no verdict, as little as a
success.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from arena.race.consensus.assignment import assign
from arena.race.model import (
    CountedAttempt,
    CountedEvaluation,
    CountedVerdict,
    SettlementInputs,
    TrajectoryResult,
)
from arena.race.settlement.control import control_subject
from arena.race.settlement.faults import Pair, charged_to, counted_attempts, how_they_ended
from foundation.canonical import content_hash
from foundation.codes.names import JUDGE_BUDGET_SPENT
from judge.verdict import UnscoredVerdict, Verdict
from problems.scoring.outcome import OutcomeScore


class PairCount(msgspec.Struct, frozen=True):
    """What the validators that decide a pair found: at most k places in assignment order, each a result or a fault.

    `is_tried_elsewhere`: another validator tried it and has nothing to show.
    """

    results: tuple[TrajectoryResult, ...] = ()
    faults: int = 0
    is_tried_elsewhere: bool = False


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """A race's records as counted. `control`: by problem, the validators with a result of the control agent; None where
    the policy names no control agent."""

    pairs: Mapping[Pair, PairCount]
    control: Mapping[str, int] | None = None

    @property
    def is_empty(self) -> bool:
        """No validator gave anything that says it could: of the control agent where there is one, else of the field."""
        if self.control is not None:
            return not any(self.control.values())
        return not any(pair.results for pair in self.pairs.values())


def record_set_sha256(
    evaluations: Iterable[CountedEvaluation],
    verdicts: Iterable[CountedVerdict],
    attempts: Iterable[CountedAttempt] = (),
) -> str:
    """Hash of the record set S: sorted (validator, seq, content hash), each once."""
    rows = {(row.validator, row.seq, row.content_sha256) for row in evaluations}
    rows |= {(row.validator, row.seq, row.content_sha256) for row in verdicts}
    rows |= {(row.validator, row.seq, row.content_sha256) for row in attempts}
    return content_hash([list(row) for row in sorted(rows)])


def attempts_that_count(inputs: SettlementInputs) -> tuple[CountedAttempt, ...]:
    """The attempts in the record set S: none where the policy names no control agent."""
    if not inputs.policy.race.control_sha256:
        return ()
    return counted_attempts(inputs.attempts, inputs.evaluations, is_bounded=bool(inputs.logs))


def count_results(inputs: SettlementInputs, seed: str, drawn: tuple[str, ...]) -> Counted:
    """By (agent version id, problem id) results and faults in assignment order, at most k: the assigned, then the
    stand-ins."""
    problems = frozenset(drawn)
    available = _results_by_validator(inputs, problems, _agents(inputs))
    charged = _charged(inputs, drawn)
    tried: dict[Pair, set[str]] = {}  # the validators with an attempt that gave no result
    for row in attempts_that_count(inputs):
        if row.validator in inputs.validators and _is_in_race(row, inputs):
            pair = (row.record.subject.agent_version_id, row.record.context.problem_id)
            tried.setdefault(pair, set()).add(row.validator)
    copies = inputs.policy.race.validators_per_problem
    counted: dict[Pair, PairCount] = {}
    for candidate in inputs.field:
        agent = candidate.subject.agent_version_id
        for problem_id in drawn:
            given, faulted = available.get((agent, problem_id), {}), charged.get((agent, problem_id), frozenset())
            present: Iterable[str] = given.keys() | faulted
            if len(given.keys() | faulted) > 1:
                order = assign(seed, agent, problem_id, inputs.validators, copies).order
                present = [hotkey for hotkey in order if hotkey in given or hotkey in faulted][:copies]
            results = tuple(given[hotkey] for hotkey in present if hotkey not in faulted)
            counted[agent, problem_id] = PairCount(
                results,
                sum(hotkey in faulted for hotkey in present),
                not tried.get((agent, problem_id), set()) <= given.keys(),
            )
    control = control_subject(inputs.policy.race)
    if control is None:
        return Counted(pairs=counted)
    found = _results_by_validator(inputs, problems, frozenset({control.agent_version_id}))
    return Counted(pairs=counted, control={problem_id: len(results) for (_, problem_id), results in found.items()})


def pairs_given(inputs: SettlementInputs) -> dict[str, frozenset[tuple[str, str]]]:
    """By validator: the (agent, problem) pairs of the field for which the records hold a result of its own."""
    problem_ids = frozenset(problem.problem_id for problem in inputs.batch.problems)
    given: dict[str, set[tuple[str, str]]] = {}
    for pair, results in _results_by_validator(inputs, problem_ids, _agents(inputs)).items():
        for validator in results:
            given.setdefault(validator, set()).add(pair)
    return {validator: frozenset(pairs) for validator, pairs in given.items()}


def compared_with_others(inputs: SettlementInputs, validator: str) -> tuple[int, int]:
    """How many results of others the records hold on pairs of the field that `validator` has a result on too, and how
    many of them have another outcome."""
    problem_ids = frozenset(problem.problem_id for problem in inputs.batch.problems)
    pairs = _results_by_validator(inputs, problem_ids, _agents(inputs)).values()
    differs = [
        other.is_success != given[validator].is_success
        for given in pairs
        if validator in given
        for name, other in given.items()
        if name != validator
    ]
    return len(differs), sum(differs)


def _agents(inputs: SettlementInputs) -> frozenset[str]:
    return frozenset(candidate.subject.agent_version_id for candidate in inputs.field)


def _charged(inputs: SettlementInputs, drawn: tuple[str, ...]) -> dict[Pair, frozenset[str]]:
    """By pair of the field: the validators whose fault on it stands against the agent."""
    attempts, permitted = attempts_that_count(inputs), frozenset(inputs.validators)
    if not attempts:
        return {}
    policy_sha256 = inputs.recorded_under or inputs.policy.policy_sha256
    ended = how_they_ended(
        [row for row in attempts if row.validator in permitted and _is_in_race(row, inputs)],
        [
            row
            for row in sorted(inputs.evaluations, key=lambda row: (row.validator, row.seq))
            if row.validator in permitted and _is_of_race(row, inputs, policy_sha256)
        ],
    )
    faulted: dict[Pair, set[str]] = {}
    met = {(row.record.subject.agent_version_id, row.validator) for row in attempts if row.validator in permitted}
    agents = _agents(inputs)
    for agent, validator in (each for each in met if each[0] in agents):
        for problem_id in charged_to(agent, validator, drawn, ended, inputs.policy.race):
            faulted.setdefault((agent, problem_id), set()).add(validator)
    return {pair: frozenset(validators) for pair, validators in faulted.items()}


def _results_by_validator(
    inputs: SettlementInputs, drawn: frozenset[str], agents: frozenset[str]
) -> dict[Pair, dict[str, TrajectoryResult]]:
    rubric = inputs.policy.rubric
    verdicts: dict[tuple[str, str], Verdict] = {}  # the first of each validator on each body
    for said in sorted(inputs.verdicts, key=lambda row: (row.validator, row.seq)):
        given = said.record.verdict
        if (
            isinstance(given, Verdict)
            and said.record.context.race_id == inputs.race_id
            and given.rubric_id == rubric.rubric_id
            and given.prompt_sha256 == rubric.prompt_sha256
        ):
            verdicts.setdefault((said.validator, given.body_sha256), given)
    stopped = {  # problems whose judging a validator has not begun, or not ended
        (said.validator, said.record.context.problem_id)
        for said in inputs.verdicts
        if isinstance(said.record.verdict, UnscoredVerdict)
        and said.record.verdict.failure.code == JUDGE_BUDGET_SPENT
        and said.record.context.race_id == inputs.race_id
        and (said.validator, said.record.verdict.body_sha256) not in verdicts
    }
    permitted = frozenset(inputs.validators)
    policy_sha256 = inputs.recorded_under or inputs.policy.policy_sha256
    found: dict[Pair, dict[str, TrajectoryResult]] = {}
    for row in sorted(inputs.evaluations, key=lambda row: (row.validator, row.seq)):
        key = (row.record.subject.agent_version_id, row.record.context.problem_id)
        if row.validator not in permitted or key[0] not in agents or key[1] not in drawn:
            continue
        if (row.validator, key[1]) in stopped:
            continue
        if not _is_of_race(row, inputs, policy_sha256) or row.validator in found.get(key, {}):
            continue
        outcome, verdict = row.record.outcome, verdicts.get((row.validator, row.record.body_sha256))
        if not isinstance(outcome, OutcomeScore) or (outcome.is_success and verdict is None):
            continue  # the outcome, or the verdict on a success, is owed
        found.setdefault(key, {})[row.validator] = TrajectoryResult(
            validator=row.validator,
            agent_version_id=key[0],
            problem_id=key[1],
            is_success=outcome.is_success,
            is_agentic=row.record.is_agentic,
            score_e4=verdict.coefficient_e4 if outcome.is_success and verdict is not None else 0,
            quality_e4=verdict.quality_e4 if verdict is not None else None,
        )
    return found


def _is_in_race(row: CountedEvaluation | CountedAttempt, inputs: SettlementInputs) -> bool:
    context = row.record.context
    return (
        context.stage == "race"
        and context.race_id == inputs.race_id
        and context.batch_sha256 == inputs.batch.batch_sha256
    )


def _is_of_race(row: CountedEvaluation, inputs: SettlementInputs, policy_sha256: str) -> bool:
    record = row.record
    return (
        _is_in_race(row, inputs)
        and record.conditions.policy_sha256 == policy_sha256
        and (record.conditions.sandbox.may_race or not inputs.policy.guest.is_racing_level_required)
    )
