"""Races for tests: fields, records and settlement inputs made from small tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache

from msgspec.structs import replace

from arena.chain.port import BeaconRound, Metagraph, Neuron
from arena.policies import DEMO
from arena.policy import Policy
from arena.race.draw import draw_problems, race_seed
from arena.race.model import Batch, Candidate, LoggedRecord, SealedProblem, SettlementInputs
from arena.records.model import Conditions, Context, EvaluationRecord, Subject, VerdictRecord
from harness.sandbox.port import SandboxLevel
from harness.trace import Totals
from judge.rubric import coefficient_e4
from judge.verdict import Verdict
from problems.outcome import OutcomeScore

RACE = "race-000001"
BEACON = BeaconRound(network="local", round=77, signature="ab" * 48)
LEVEL = SandboxLevel(name="bubblewrap", layers=(), guest_sha256="9" * 64, python_version="3.11", may_race=True)


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def policy(base: Policy = DEMO, **race: object) -> Policy:
    """A small race; without a control agent unless `race` names one. Its gate's version and admission are those under
    which the kept traces of races were made, since a policy's hash stands in all of them."""
    fields: dict[str, object] = {"problems": 10, "batch_problems": 12, "control_sha256": ""} | race
    return replace(
        base,
        gate=replace(base.gate, version="gate/2", similarity_review_e4=6_000),
        admission=replace(base.admission, is_commitment_enough=False),
        race=replace(base.race, **fields),
    )


def candidate(name: str, *, score_e4: int = 5_000, block: int = 10, **flags: bool) -> Candidate:
    subject = Subject(
        agent_version_id=f"v-{name}",
        miner_hotkey=f"hk-{name}",
        agent_sha256=digest("source", name),
        commitment_block=block,
        commitment_sha256=digest("commitment", name),
    )
    return Candidate(subject=subject, qualifying_score_e4=score_e4, **flags)


def batch(count: int = 12) -> Batch:
    problems = tuple(
        SealedProblem(problem_id=f"p{n:03}", cluster_commitment=digest("cluster", n)) for n in range(count)
    )
    return Batch(batch_sha256=digest("batch", count), partition_sha256=digest("partition"), problems=problems)


def metagraph(hotkeys: Iterable[str], validators: Iterable[str] = ("val-a",)) -> Metagraph:
    rows = [Neuron(uid=0, hotkey="owner")]
    rows += [Neuron(uid=uid, hotkey=hotkey, has_validator_permit=True) for uid, hotkey in enumerate(validators, 1)]
    rows += [Neuron(uid=uid, hotkey=hotkey) for uid, hotkey in enumerate(hotkeys, len(rows))]
    return Metagraph(netuid=1, block=100, tempo=360, neurons=tuple(rows))


# (agent version id, problem id, validator) -> (is_success, quality_e4) or None for "no result"
Outcomes = Callable[[str, str, str], tuple[bool, int | None] | None]


def drawn_of(rules: Policy, sealed: Batch) -> tuple[str, ...]:
    seed = race_seed(RACE, sealed.batch_sha256, BEACON)
    return draw_problems(seed, (problem.problem_id for problem in sealed.problems), rules.race.problems)


@cache
def hash_of(rules: Policy) -> str:
    """A policy's hash, computed once: thousands of records ask for it."""
    return rules.policy_sha256


def evaluation(
    rules: Policy, sealed: Batch, who: Candidate, problem_id: str, validator: str, seq: int, *, is_success: bool
) -> LoggedRecord[EvaluationRecord]:
    outcome = OutcomeScore(
        titles="lexical/1", bucket="product", slots=(), is_success=is_success, is_gt_exact=False, rule_e4=0, reward_e4=0
    )
    record = EvaluationRecord(
        attempt_id=f"{problem_id}:{seq}",
        subject=who.subject,
        context=Context(stage="race", race_id=RACE, problem_id=problem_id, batch_sha256=sealed.batch_sha256),
        conditions=Conditions(
            policy_sha256=hash_of(rules), scoring_pipeline="scoring/1", code_commit="c", sandbox=LEVEL
        ),
        body_sha256=digest("body", validator, who.subject.agent_version_id, problem_id, seq),
        stop="terminated",
        failure=None,
        is_agentic=True,
        totals=Totals(),
        outcome=outcome,
    )
    return LoggedRecord(validator=validator, seq=seq, content_sha256=digest(validator, seq), record=record)


def verdict(
    rules: Policy, row: LoggedRecord[EvaluationRecord], quality_e4: int, seq: int
) -> LoggedRecord[VerdictRecord]:
    given = Verdict(
        body_sha256=row.record.body_sha256,
        rubric_id=rules.rubric.rubric_id,
        prompt_sha256=rules.rubric.prompt_sha256,
        quality_e4=quality_e4,
        coefficient_e4=coefficient_e4(quality_e4),
        spread_e4=0,
        opinions=(),
    )
    record = VerdictRecord(subject=row.record.subject, context=row.record.context, verdict=given)
    return LoggedRecord(validator=row.validator, seq=seq, content_sha256=digest(row.validator, seq), record=record)


def inputs(
    field: Iterable[Candidate],
    outcomes: Outcomes,
    *,
    rules: Policy | None = None,
    validators: tuple[str, ...] = ("val-a",),
    **changes: object,
) -> SettlementInputs:
    """Settlement inputs in which every validator ran every (agent, problem) `outcomes` has a result for."""
    chosen, sealed, racers = rules or policy(), batch(), tuple(field)
    evaluations: list[LoggedRecord[EvaluationRecord]] = []
    verdicts: list[LoggedRecord[VerdictRecord]] = []
    for validator in validators:
        seq = 0
        for who in racers:
            for problem_id in drawn_of(chosen, sealed):
                result = outcomes(who.subject.agent_version_id, problem_id, validator)
                if result is None:
                    continue
                is_success, quality_e4 = result
                seq += 2
                row = evaluation(chosen, sealed, who, problem_id, validator, seq, is_success=is_success)
                evaluations.append(row)
                if quality_e4 is not None:
                    verdicts.append(verdict(chosen, row, quality_e4, seq + 1))
    made = SettlementInputs(
        race_id=RACE,
        policy=chosen,
        batch=sealed,
        closing_block=50,
        closes_ms=1_000_000,
        settling_block=100,
        field=racers,
        validators=validators,
        beacon=BEACON,
        evaluations=tuple(evaluations),
        verdicts=tuple(verdicts),
        metagraph=metagraph([who.subject.miner_hotkey for who in racers], validators),
    )
    return replace(made, **changes)


def solves(shares: dict[str, int], quality_e4: int = 9_000) -> Outcomes:
    """Agent `v-NAME` solves the first `shares[NAME]` problems of the draw, whoever validates."""
    order = {problem_id: place for place, problem_id in enumerate(drawn_of(policy(), batch()))}
    return lambda agent, problem_id, _: (order[problem_id] < shares[agent.removeprefix("v-")], quality_e4)


def three_validators(**race: object) -> Policy:
    fields: dict[str, object] = {"validators_per_problem": 3, "results_required": 2} | race
    return policy(**fields)
