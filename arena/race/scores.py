"""Scores: from counted results to one number per agent, with its interval.

Problem score: lower median over validators of outcome (0 or 1) x coefficient. A problem is void for the whole field
when the control agent lacks results on it, whatever the field does. Else an agent without enough results gets 0 for it,
published as faulted or missing. Race score: mean over the non-void problems, under a policy with lambda times
1 - lambda where the trajectory is not agentic. Exact integers throughout. Source: docs/architecture.md#the-mechanism.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median_low
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from arena.policy import Policy, RaceRules
from arena.race.draw import UNIT_E4, work_order
from arena.records.model import (
    AttemptRecord,
    Candidate,
    EvaluationRecord,
    RaceInputs,
    SettlementRecord,
    Subject,
    VerdictRecord,
)
from foundation.canonical import content_hash
from foundation.codes import CAP_REACHED, Owner
from judge.rubric import coefficient_e4
from judge.verdict import UnscoredVerdict, Verdict, counted_verdict
from problems.model import OutcomeScore

if TYPE_CHECKING:
    import numpy as np


RacePayload = EvaluationRecord | VerdictRecord | AttemptRecord
Kind = TypeVar("Kind", bound=RacePayload, covariant=True)


class LoggedRecord(msgspec.Struct, Generic[Kind], frozen=True, kw_only=True):
    """A record of a race as it stands in a validator's log."""

    validator: str
    seq: int
    content_sha256: str
    record: Kind


class SettlementInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a settlement depends on. The order of its tuples never matters.

    `stated` is what the record will state, as far as the caller knows it: `settle` sorts it, and adds the policy and
    the names of the past settlements. Its neurons are those of the settling block; its `logs` are what the records were
    read from, none where one validator settles from its own log alone. `history` holds earlier settlements, newest
    last; `recorded_under` is the hash of the policy the records were written under, "" for that of `policy`.
    """

    race_id: str
    policy: Policy
    batch_sha256: str
    closing_block: int
    settling_block: int
    beacon_round: int
    stated: RaceInputs
    evaluations: tuple[LoggedRecord[EvaluationRecord], ...]
    verdicts: tuple[LoggedRecord[VerdictRecord], ...]
    attempts: tuple[LoggedRecord[AttemptRecord], ...] = ()
    history: tuple[SettlementRecord, ...] = ()
    recorded_under: str = ""


class TrajectoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """One validator's counted result for one (agent, problem). `quality_e4` is None for an unjudged failure."""

    validator: str
    is_success: bool
    is_agentic: bool
    score_e4: int  # outcome (0 or 1) x coefficient
    quality_e4: int | None


class ProblemScore(msgspec.Struct, frozen=True, kw_only=True):
    """One agent on one problem, over validators: lower medians. `missing` and `faulted` score 0 and are published as
    such."""

    problem_id: str
    state: Literal["scored", "missing", "faulted"]
    score_e4: int = 0
    is_success: bool = False
    is_agentic: bool = False
    quality_e4: int | None = None


class AgentScore(msgspec.Struct, frozen=True, kw_only=True):
    """One agent over the non-void problems, in the order of the draw."""

    candidate: Candidate
    problems: tuple[ProblemScore, ...]


_RESAMPLES = 1_000


class FieldScores(msgspec.Struct, frozen=True, kw_only=True):
    """The scored field by version id, the control agent, and the problems void for everybody, in drawn order."""

    agents: tuple[AgentScore, ...]
    control: AgentScore
    void: tuple[str, ...]


def score_field(
    field: Sequence[Candidate], drawn: Sequence[str], counts: RaceCount, rules: RaceRules, validators: int
) -> FieldScores:
    """Score every agent on every non-void problem. `validators` is the number of permits at the closing block."""
    required = results_needed(rules, validators)
    decisive = 2 if min(rules.validators_per_problem, validators) > 2 else 1
    control = Candidate(subject=control_subject(rules), qualifying_score_e4=0)

    def score(candidate: Candidate, problem_id: str) -> ProblemScore:
        pair = counts.pairs[candidate.subject.agent_version_id, problem_id]
        return pair_score(problem_id, pair, required, decisive)

    def is_void(problem_id: str) -> bool:
        """Whether the control agent lacks results, or a cap stopped it somewhere and some agent has no score: nobody's
        zero."""
        if len(counts.pairs[control.subject.agent_version_id, problem_id].results) < required:
            return True
        return problem_id in counts.stopped and any(score(each, problem_id).state == "missing" for each in field)

    void = tuple(filter(is_void, drawn))
    counted = [problem_id for problem_id in drawn if problem_id not in void]
    ordered = sorted(field, key=lambda candidate: candidate.subject.agent_version_id)
    *agents, last = (
        AgentScore(candidate=one, problems=tuple(score(one, problem_id) for problem_id in counted))
        for one in (*ordered, control)
    )
    return FieldScores(agents=tuple(agents), control=last, void=void)


def results_needed(rules: RaceRules, validators: int) -> int:
    """Results without which a problem is missing. Where fewer validators hold a permit than that, all are needed."""
    return max(1, min(rules.results_required, rules.validators_per_problem, validators))


def pair_score(problem_id: str, pair: PairCount, required: int, decisive: int) -> ProblemScore:
    """Lower medians over validators; missing with fewer results than are needed.

    Beside enough results a fault is one more that failed, so that the median never gains by it. Without them `decisive`
    faults score 0; with fewer the results there are decide, so that no single validator's word does; nor does one that
    keeps what it has to itself, unless it can be seen to have tried.
    """
    results = pair.results
    if pair.faulted and len(results) >= required:
        failed = replace(results[0], is_success=False, is_agentic=False, score_e4=0, quality_e4=None)
        results = (*results, *[failed] * len(pair.faulted))
    elif len(pair.faulted) >= decisive:
        return ProblemScore(problem_id=problem_id, state="faulted")
    if len(results) < (required if pair.is_tried_elsewhere and not pair.faulted else 1):
        return ProblemScore(problem_id=problem_id, state="missing")
    qualities = [result.quality_e4 for result in results if result.quality_e4 is not None]
    return ProblemScore(
        problem_id=problem_id,
        state="scored",
        score_e4=median_low([result.score_e4 for result in results]),
        is_success=bool(median_low([int(result.is_success) for result in results])),
        is_agentic=bool(median_low([int(result.is_agentic) for result in results])),
        quality_e4=median_low(qualities) if qualities else None,
    )


def exact_score(agent: AgentScore, lambda_e4: int) -> int:
    """The race score as an exact integer: comparable within one race, where every agent has the same problems."""
    return sum(_weighed(one, lambda_e4) for one in agent.problems)


def _weighed(one: TrajectoryResult | ProblemScore, lambda_e4: int) -> int:
    """A score by its own flag, so that an agentic trajectory lifts no other; in hundred-millionths."""
    return one.score_e4 * (UNIT_E4 - (0 if one.is_agentic else lambda_e4))


def race_score_e4(agent: AgentScore, lambda_e4: int) -> int:
    """The race score in ten-thousandths, rounded down; 0 when no problem counts."""
    count = len(agent.problems)
    return exact_score(agent, lambda_e4) // (count * UNIT_E4) if count else 0


def rank(agents: Iterable[AgentScore], lambda_e4: int) -> tuple[AgentScore, ...]:
    """The field, best first, in a total order, so that no two validators can list it differently.

    By race score (compared exactly, not as rounded), then the earlier commitment: a copy can only be later. All agents
    must have been scored on the same problems.
    """
    return tuple(sorted(agents, key=lambda agent: (-exact_score(agent, lambda_e4), agent.candidate.place)))


def share_e4(agent: AgentScore, flag: Literal["is_success", "is_agentic"]) -> int:
    """Share of problems that are solved, or have an agentic trajectory; rounded down."""
    return UNIT_E4 * sum(bool(getattr(problem, flag)) for problem in agent.problems) // max(1, len(agent.problems))


def mean_quality_e4(agent: AgentScore) -> int:
    """Mean reasoning quality over judged problems, rounded down; 0 when nothing was judged."""
    qualities = [problem.quality_e4 for problem in agent.problems if problem.quality_e4 is not None]
    return sum(qualities) // len(qualities) if qualities else 0


def product_of_means_e4(agent: AgentScore) -> int:
    """SN15's run-level score, success rate x coefficient of the mean quality: published beside ours, ranks nothing."""
    return share_e4(agent, "is_success") * coefficient_e4(mean_quality_e4(agent)) // UNIT_E4


def bootstrap_interval(agent: AgentScore, lambda_e4: int, picks: np.ndarray) -> tuple[int, int]:
    """The 95 % percentile interval, in ten-thousandths, of the race score over resampled problems (`picks` from
    `resample`): what is left when the lowest and the highest fortieth are cut off."""
    import numpy as np

    count = len(agent.problems)
    if not count:
        return 0, 0
    weighed = np.array([_weighed(one, lambda_e4) for one in agent.problems], dtype=np.int64)
    ordered = np.sort(weighed[picks].sum(axis=1) // (count * UNIT_E4))
    edge = len(ordered) // 40
    return int(ordered[edge]), int(ordered[-1 - edge])


def resample(seed: str, count: int) -> np.ndarray:
    """Indexes of problems, shape (1,000, count), from SHAKE-256 of the race's seed: the same on every machine.

    The whole field is resampled alike, so that intervals of one race can be compared.
    """
    import numpy as np

    stream = hashlib.shake_256(b"agent-arena/bootstrap/1" + bytes.fromhex(seed)).digest(4 * _RESAMPLES * count)
    words = np.frombuffer(stream, dtype="<u4").astype(np.uint64).reshape(_RESAMPLES, count)
    return ((words * np.uint64(count)) >> np.uint64(32)).astype(np.int64)


_CONTROL_DOMAIN = "agent-arena/control/1"
_WITNESS_DOMAIN = "agent-arena/witness/1"


def control_subject(rules: RaceRules, witnessed: str = "") -> Subject:
    """The control agent as records name it; as a witness of a fault of the agent version `witnessed` the same source
    under an id of its own for each agent."""
    sha256 = rules.control_sha256
    named = [_WITNESS_DOMAIN, sha256, witnessed] if witnessed else [_CONTROL_DOMAIN, sha256]
    return Subject(agent_version_id=content_hash(named), miner_hotkey="", agent_sha256=sha256)


Pair = tuple[str, str]  # (agent version id, problem id)
Place = tuple[str, Pair]  # a validator and a pair


def counted_attempts(inputs: SettlementInputs) -> tuple[LoggedRecord[AttemptRecord], ...]:
    """The attempts without a result in the record set S, by validator and number.

    Counted logs hold them up to their sizes. Without any (one validator, its own log) one that its item's end did not
    follow is left out: it may have come after the settlement was made.
    """
    rows = [row for row in inputs.attempts if row.record.ended != "evaluated"]
    last: dict[Place, int] = {}
    ends: list[LoggedRecord[AttemptRecord | EvaluationRecord]] = [row for row in rows if row.record.is_closing]
    for end in [*ends, *inputs.evaluations]:
        last[_key(end)] = max(end.seq, last.get(_key(end), 0))
    kept = [row for row in rows if inputs.stated.logs or row.record.is_closing or row.seq < last.get(_key(row), 0)]
    return tuple(sorted(kept, key=_order))


def _order(row: LoggedRecord[RacePayload]) -> tuple[str, int]:
    return row.validator, row.seq


def _key(row: LoggedRecord[AttemptRecord | EvaluationRecord]) -> Place:
    return row.validator, (row.record.subject.agent_version_id, row.record.context.problem_id)


class PairCount(msgspec.Struct, frozen=True):
    """What the validators that decide a pair found: at most k places in assignment order, each a result or a fault.

    `faulted`: those of them whose fault stands against the agent. `is_tried_elsewhere`: another validator tried it and
    has nothing to show.
    """

    results: tuple[TrajectoryResult, ...] = ()
    faulted: tuple[str, ...] = ()
    is_tried_elsewhere: bool = False


class RaceCount(msgspec.Struct, frozen=True, kw_only=True):
    """A race's records as counted, those of the control agent among them. `stopped`: problems that a validator's cap on
    cost stopped there."""

    pairs: Mapping[Pair, PairCount]
    stopped: frozenset[str] = frozenset()


def runs_of(agent: AgentScore, counted: RaceCount, lambda_e4: int) -> tuple[dict[str, int], ...]:
    """By problem what each validator's counted run scored an agent, in weighed ten-thousandths: 0 for a fault; none
    where the agent has no score."""
    runs = []
    for problem in agent.problems:
        pair = counted.pairs[agent.candidate.subject.agent_version_id, problem.problem_id]
        given = {one.validator: _weighed(one, lambda_e4) // UNIT_E4 for one in pair.results}
        given |= dict.fromkeys(pair.faulted, 0)
        runs.append(given if problem.state == "scored" else {})
    return tuple(runs)


def record_set_sha256(rows: Iterable[LoggedRecord[RacePayload]]) -> str:
    """Hash of the record set S: sorted (validator, seq, content hash), each once."""
    found = {(row.validator, row.seq, row.content_sha256) for row in rows}
    return content_hash([list(row) for row in sorted(found)])


class _RaceRows:
    """The records of a race that may count, read once: those of its validators, by validator and number."""

    def __init__(self, inputs: SettlementInputs) -> None:
        permitted = frozenset(inputs.stated.validators)
        self.evaluations = sorted(
            (row for row in inputs.evaluations if row.validator in permitted and _is_of_race(row, inputs)), key=_order
        )
        self.attempts = [
            row for row in counted_attempts(inputs) if row.validator in permitted and _is_in_race(row, inputs)
        ]
        said = [
            row
            for row in sorted(inputs.verdicts, key=_order)
            if row.validator in permitted and row.record.context.race_id == inputs.race_id
        ]
        given: dict[tuple[str, str], list[Verdict | UnscoredVerdict]] = {}  # by validator and body
        for row in said:
            given.setdefault((row.validator, row.record.verdict.body_sha256), []).append(row.record.verdict)
        counted = {key: counted_verdict(verdicts, inputs.policy.rubric) for key, verdicts in given.items()}
        self.verdicts = {key: verdict for key, verdict in counted.items() if isinstance(verdict, Verdict)}
        # by validator: the problems that it did not run or judge to their end, since what models may cost was spent
        self.stopped = {
            (row.validator, row.record.context.problem_id)
            for row in self.attempts
            if row.record.failure is not None and row.record.failure.code == CAP_REACHED
        } | {
            (row.validator, row.record.context.problem_id)
            for row in said
            if isinstance(row.record.verdict, UnscoredVerdict)
            and row.record.verdict.failure.code == CAP_REACHED
            and (row.validator, row.record.verdict.body_sha256) not in self.verdicts
        }

    def results(self, agents: Collection[str], problems: Collection[str]) -> dict[Pair, dict[str, TrajectoryResult]]:
        """By pair and validator the first results that these records hold whole."""
        found: dict[Pair, dict[str, TrajectoryResult]] = {}
        for row in self.evaluations:
            validator, key = _key(row)
            if key[0] not in agents or key[1] not in problems or (validator, key[1]) in self.stopped:
                continue
            outcome, verdict = row.record.outcome, self.verdicts.get((validator, row.record.body_sha256))
            if not isinstance(outcome, OutcomeScore) or (outcome.is_success and verdict is None):
                continue  # the outcome, or the verdict on a success, is owed
            result = TrajectoryResult(
                validator=validator,
                is_success=outcome.is_success,
                is_agentic=row.record.is_agentic,
                score_e4=verdict.coefficient_e4 if outcome.is_success and verdict is not None else 0,
                quality_e4=verdict.quality_e4 if verdict is not None else None,
            )
            found.setdefault(key, {}).setdefault(validator, result)
        return found


def count_results(inputs: SettlementInputs, seed: str, drawn: tuple[str, ...]) -> RaceCount:
    """By (agent version id, problem id) results and faults in assignment order, at most k: the assigned, then the
    stand-ins. What a validator found of agents of its own coldkey says nothing."""
    rows, problems = _RaceRows(inputs), frozenset(drawn)
    available, charged = rows.results(_agents(inputs), problems), _charged(rows, inputs, drawn)
    tried: dict[Pair, set[str]] = {}  # the validators with an attempt that gave no result
    for row in rows.attempts:
        if (row.validator, row.record.context.problem_id) not in rows.stopped:
            tried.setdefault(_key(row)[1], set()).add(row.validator)
    copies = inputs.policy.race.validators_per_problem
    counted: dict[Pair, PairCount] = {}
    for candidate in inputs.stated.field:
        agent = candidate.subject.agent_version_id
        own = {neuron.hotkey for neuron in inputs.stated.neurons if neuron.coldkey == candidate.owner}
        for problem_id in drawn:
            found = available.get((agent, problem_id), {})
            given = {hotkey: result for hotkey, result in found.items() if hotkey not in own}
            faulted = charged.get((agent, problem_id), set()) - own
            present: Collection[str] = given.keys() | faulted
            if len(present) > 1:
                order = work_order(seed, agent, problem_id, inputs.stated.validators)
                present = [hotkey for hotkey in order if hotkey in present][:copies]
            results = tuple(given[hotkey] for hotkey in present if hotkey not in faulted)
            counted[agent, problem_id] = PairCount(
                results,
                tuple(hotkey for hotkey in present if hotkey in faulted),
                not tried.get((agent, problem_id), set()) - own <= given.keys(),
            )
    control = control_subject(inputs.policy.race).agent_version_id
    run = rows.results({control}, problems)
    for problem_id in drawn:  # of the control agent every result, whoever was assigned
        counted[control, problem_id] = PairCount(tuple(run.get((control, problem_id), {}).values()))
    return RaceCount(pairs=counted, stopped=frozenset(name for _, name in rows.stopped))


def compared_with_others(inputs: SettlementInputs, validator: str) -> tuple[int, int]:
    """How many results of others the records hold on pairs of the field that `validator` has a result on too, and how
    many of them have another outcome."""
    differs = [
        other.is_success != given[validator].is_success
        for given in results_of_field(inputs).values()
        if validator in given
        for name, other in given.items()
        if name != validator
    ]
    return len(differs), sum(differs)


def _agents(inputs: SettlementInputs) -> frozenset[str]:
    return frozenset(candidate.subject.agent_version_id for candidate in inputs.stated.field)


def results_of_field(inputs: SettlementInputs) -> dict[Pair, dict[str, TrajectoryResult]]:
    """By pair of the field and validator: the results that the records hold."""
    return _RaceRows(inputs).results(_agents(inputs), frozenset(inputs.stated.problem_ids))


def _charged(rows: _RaceRows, inputs: SettlementInputs, drawn: tuple[str, ...]) -> dict[Pair, set[str]]:
    """By pair of the field: the validators whose fault on it stands against the agent.

    A fault is one that closed its item, or the validator's own. A broken problem is nobody's: the control agent lacks
    it, too; nor is an outage, nor a lease that was lost. It stands where the control agent has a result there without a
    fault, and a witness one that came after the first fault: the validator could, before and after. Of an agent's pairs
    with a single fault and a result the first `forgiven_e4` of the draw, rounded up, are passed over: a host may fail
    by itself now and then. One that is called the agent's own, its worker time spent, stands by itself, as a failure
    that a validator reports does.
    """
    rules, agents = inputs.policy.race, _agents(inputs)
    faults: dict[Place, list[int]] = {}
    charged: dict[Pair, set[str]] = {}
    for attempt in rows.attempts:
        record = attempt.record
        owner = record.failure.owner if record.failure else Owner.VALIDATOR
        is_fault = record.ended == "faulted" and (record.is_closing or owner is Owner.VALIDATOR)
        is_fault &= (attempt.validator, record.context.problem_id) not in rows.stopped
        if is_fault and owner is not Owner.PROBLEM:
            faults.setdefault(_key(attempt), []).append(attempt.seq)
            if owner is Owner.AGENT:
                charged.setdefault(_key(attempt)[1], set()).add(attempt.validator)
    if not faults:
        return {}
    first: dict[Place, int] = {}  # results
    for row in rows.evaluations:
        if isinstance(row.record.outcome, OutcomeScore):
            first.setdefault(_key(row), row.seq)

    def clean(validator: str, subject: Subject, problem_id: str) -> int | None:
        """The number of a result without a fault before or after it."""
        place = (validator, (subject.agent_version_id, problem_id))
        return None if place in faults else first.get(place)

    control = control_subject(rules)
    for agent, validator in {(pair[0], validator) for validator, pair in faults if pair[0] in agents}:
        witness, left = control_subject(rules, agent), -(-rules.forgiven_e4 * len(drawn) // UNIT_E4)
        for problem_id in drawn:
            pair = (agent, problem_id)
            met = faults.get((validator, pair), [])
            seen = clean(validator, witness, problem_id)
            if not met or seen is None or seen < met[0] or clean(validator, control, problem_id) is None:
                continue
            if len(met) == 1 and (validator, pair) in first and left:
                left -= 1
                continue
            charged.setdefault(pair, set()).add(validator)
    return charged


def _is_in_race(row: LoggedRecord[AttemptRecord | EvaluationRecord], inputs: SettlementInputs) -> bool:
    context = row.record.context
    return context.stage == "race" and context.race_id == inputs.race_id and context.batch_sha256 == inputs.batch_sha256


def _is_of_race(row: LoggedRecord[EvaluationRecord], inputs: SettlementInputs) -> bool:
    record = row.record
    return (
        _is_in_race(row, inputs)
        and record.conditions.policy_sha256 == (inputs.recorded_under or inputs.policy.policy_sha256)
        and (record.conditions.sandbox.may_race or not inputs.policy.guest.is_racing_level_required)
    )
