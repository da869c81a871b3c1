"""Races for tests: fields, records and settlement inputs made from small tables of results and faults."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from msgspec.structs import replace

from arena.bank.batch import Batch, SealedProblem
from arena.chain.port import BeaconRound, Metagraph, Neuron
from arena.policies import DEMO
from arena.policy import Policy, PromotionRules
from arena.race import machine
from arena.race.draw import draw_problems, race_seed
from arena.race.scores import LoggedRecord, SettlementInputs, control_subject
from arena.race.settle import NO_BEACON
from arena.records.model import (
    AttemptRecord,
    Candidate,
    Conditions,
    Context,
    EvaluationRecord,
    RaceInputs,
    SettlementRecord,
    SettlingNeuron,
    Subject,
    VerdictRecord,
)
from foundation.errors import Failure
from harness.sandbox.port import SandboxLevel
from harness.trace import Totals
from judge.rubric import coefficient_e4
from judge.verdict import Verdict
from tests.arena import log_stand

RACE = "race-000001"
BEACON = BeaconRound(network="local", round=77, signature="ab" * 48)
LEVEL = SandboxLevel(name="bubblewrap", layers=(), guest_sha256="9" * 64, python_version="3.11", may_race=True)


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def policy(base: Policy = DEMO, **race: object) -> Policy:
    """A small race by the margin. The other rules are those under which the kept ends were made."""
    fields: dict[str, object] = {"problems": 10, "batch_problems": 12, "worker_ms": 0, "seats": 0} | race
    return replace(
        base,
        limits=replace(base.limits, agent_time_ms=300_000),
        qualifying=replace(base.qualifying, worker_ms=0),
        gate=replace(base.gate, version="gate/2", similarity_review_e4=6_000, class_e4=0),
        admission=replace(base.admission, is_commitment_enough=False),
        promotion=PromotionRules(),
        version=1,
        race=replace(base.race, **fields),
    )


def candidate(name: str, *, score_e4: int | None = 5_000, block: int = 10, **flags: Any) -> Candidate:
    subject = Subject(
        agent_version_id=f"v-{name}",
        miner_hotkey=f"hk-{name}",
        agent_sha256=digest("source", name),
        commitment_block=block,
        commitment_sha256=digest("commitment", name),
    )
    return Candidate(subject=subject, qualifying_score_e4=score_e4, **flags)


def batch(size: int = 12) -> Batch:
    problems = tuple(SealedProblem(problem_id=f"p{n:03}", cluster_commitment=digest("cluster", n)) for n in range(size))
    return Batch(batch_sha256=digest("batch", size), partition_sha256=digest("partition"), problems=problems)


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
    rules: Policy, who: Candidate, problem_id: str, body: object, *, is_success: bool, stage: str = "race"
) -> EvaluationRecord:
    """`body` is what the hash of its body is made of."""
    is_race = stage == "race"
    context = Context(stage="race", race_id=RACE, problem_id=problem_id, batch_sha256=batch_of(rules).batch_sha256)
    return EvaluationRecord(
        attempt_id=problem_id,
        subject=who.subject,
        context=context if is_race else Context(stage="qualifying", race_id="", problem_id=problem_id),
        conditions=Conditions(
            policy_sha256=hash_of(rules), scoring_pipeline="scoring/1", code_commit="c", sandbox=LEVEL
        ),
        body_sha256=digest("body", who.subject.agent_version_id, problem_id, body),
        stop="terminated",
        failure=None,
        is_agentic=True,
        totals=Totals(),
        outcome=log_stand.outcome(is_success),
    )


def judged(rules: Policy, body_sha256: str, quality_e4: int = 9_000) -> Verdict:
    return Verdict(
        body_sha256=body_sha256,
        rubric_id=rules.rubric.rubric_id,
        prompt_sha256=rules.rubric.prompt_sha256,
        quality_e4=quality_e4,
        coefficient_e4=coefficient_e4(quality_e4),
        spread_e4=0,
        opinions=(),
    )


def verdict(rules: Policy, record: EvaluationRecord, quality_e4: int = 9_000) -> VerdictRecord:
    given = judged(rules, record.body_sha256, quality_e4)
    return VerdictRecord(subject=record.subject, context=record.context, verdict=given)


def attempt(
    rules: Policy, who: Candidate, problem_id: str, *, is_closing: bool = False, code: str = "V2004"
) -> AttemptRecord:
    return AttemptRecord(
        attempt_id=problem_id,
        subject=who.subject,
        context=Context(stage="race", race_id=RACE, problem_id=problem_id, batch_sha256=batch_of(rules).batch_sha256),
        ended="faulted",
        is_closing=is_closing,
        failure=Failure(code=code),
    )


def logged(validator: str, seq: int, record: Any) -> LoggedRecord[Any]:
    return LoggedRecord(validator=validator, seq=seq, content_sha256=digest(validator, seq), record=record)


VALS = ("val-a", "val-b", "val-c")

# (agent version id, problem id, validator) -> how many attempts end in a fault of the validator before the one that
# does not; a closing one is written as minus their number
Faults = Callable[[str, str, str], int]


def controlled(**race: object) -> Policy:
    """Three results are asked for, two needed."""
    return policy(**{"validators_per_problem": 3, "results_required": 2} | race)


def batch_of(rules: Policy) -> Batch:
    return batch(rules.race.batch_problems)


def control_of(rules: Policy) -> Candidate:
    """The control agent in the shape that the makers of records take."""
    return Candidate(subject=control_subject(rules.race), qualifying_score_e4=0)


def witness_of(rules: Policy, agent: str) -> Candidate:
    return Candidate(subject=control_subject(rules.race, agent), qualifying_score_e4=0)


def raced(
    field: Iterable[Candidate],
    outcomes: Outcomes,
    faults: Faults = lambda agent, problem_id, validator: 0,
    *,
    rules: Policy | None = None,
    validators: tuple[str, ...] = VALS,
    lacks_control: Callable[[str, str], bool] = lambda problem_id, validator: False,
    lacks_witness: Callable[[str, str, str], bool] = lambda agent, problem_id, validator: False,
    control_solves: int = 1_000,
    **changes: object,
) -> SettlementInputs:
    """Settlement inputs in which every validator ran the control agent and every pair, with witnesses of its faults.

    The control agent solves the first `control_solves` of the draw. An outcome None is a pair without a result; with a
    negative number of faults the last of them closed its item.
    """
    chosen, racers = rules or controlled(), tuple(field)
    drawn, rows = drawn_of(chosen, batch_of(chosen)), list[LoggedRecord[Any]]()
    for validator in validators:
        log: list[EvaluationRecord | VerdictRecord | AttemptRecord] = []

        def result(
            who: Candidate, problem_id: str, is_success: bool, quality_e4: int | None, log=log, validator=validator
        ) -> None:
            record = evaluation(chosen, who, problem_id, (validator, len(log)), is_success=is_success)
            log += [record] if quality_e4 is None else [record, verdict(chosen, record, quality_e4)]

        for place, problem_id in enumerate(drawn):
            if not lacks_control(problem_id, validator):
                result(control_of(chosen), problem_id, place < control_solves, 9_000)
        for who, problem_id in itertools.product(racers, drawn):
            agent = who.subject.agent_version_id
            met, given = faults(agent, problem_id, validator), outcomes(agent, problem_id, validator)
            for number in range(abs(met)):
                log.append(attempt(chosen, who, problem_id, is_closing=met < 0 and number == -met - 1))
                if number == 0 and not lacks_witness(agent, problem_id, validator):
                    result(witness_of(chosen, agent), problem_id, False, None)
            if met >= 0 and given is not None:
                result(who, problem_id, *given)
        rows += [logged(validator, seq, record) for seq, record in enumerate(log, 1)]

    def of(kind: type) -> tuple[LoggedRecord[Any], ...]:
        return tuple(row for row in rows if isinstance(row.record, kind))

    records = {"evaluations": of(EvaluationRecord), "verdicts": of(VerdictRecord), "attempts": of(AttemptRecord)}
    return changed(inputs_of(RACE, chosen, batch_of(chosen), racers, validators, **records), **changes)


def inputs_of(
    race_id: str,
    rules: Policy,
    sealed: Batch,
    field: Iterable[Candidate],
    validators: tuple[str, ...],
    **records: object,
) -> SettlementInputs:
    """What a race of these settles from: drawn with `BEACON`, closed at 1,000,000 and settled in block 100."""
    racers = tuple(field)
    neurons = metagraph([who.subject.miner_hotkey for who in racers], validators).neurons
    return SettlementInputs(
        race_id=race_id,
        policy=rules,
        batch_sha256=sealed.batch_sha256,
        closing_block=50,
        settling_block=100,
        beacon_round=BEACON.round,
        stated=RaceInputs(
            policy="",
            problem_ids=tuple(problem.problem_id for problem in sealed.problems),
            closes_ms=1_000_000,
            field=racers,
            validators=validators,
            neurons=tuple(SettlingNeuron(uid=each.uid, hotkey=each.hotkey, stake_rao=0) for each in neurons),
            incumbent=None,
            history=(),
            eliminated=(),
            logs=(),
            beacon_network=BEACON.network,
            beacon_signature=BEACON.signature,
            undrawn_why=NO_BEACON,
        ),
        **records,
    )


def changed(made: SettlementInputs, **changes: object) -> SettlementInputs:
    """Inputs with other fields, of their own or of what they state; `beacon=None`: it never came."""
    if "beacon" in changes and changes.pop("beacon") is None:
        changes |= {"beacon_signature": "", "beacon_network": ""}
    names = (set(RaceInputs.__struct_fields__) - {"policy", "history"}) & changes.keys()
    stated = {name: changes.pop(name) for name in names}
    return replace(made, stated=replace(made.stated, **stated), **changes)


def inputs(
    field: Iterable[Candidate],
    outcomes: Outcomes,
    *,
    rules: Policy | None = None,
    validators: tuple[str, ...] = ("val-a",),
    **changes: object,
) -> SettlementInputs:
    """As `raced`, without faults; of one validator unless others are named."""
    return raced(field, outcomes, rules=rules or policy(), validators=validators, **changes)


def solves(shares: dict[str, int], quality_e4: int = 9_000) -> Outcomes:
    """Agent `v-NAME` solves the first `shares[NAME]` problems of the draw, whoever validates."""
    order = {problem_id: place for place, problem_id in enumerate(drawn_of(policy(), batch()))}
    return lambda agent, problem_id, _: (order[problem_id] < shares[agent.removeprefix("v-")], quality_e4)


def drawn_race(
    field: Iterable[Candidate], rules: Policy, drawn: tuple[str, ...], validators: tuple[str, ...], seed: str = "aa"
) -> machine.RaceState:
    """A race that was drawn, and nothing enqueued yet."""
    return machine.RaceState(
        race_id=RACE,
        stage="running",
        opened=machine.open_race(RACE, rules, batch_of(rules), 0, 10),
        field=machine.FieldFixed(field=tuple(field), validators=validators),
        draw=machine.ProblemsDrawn(beacon=BEACON, seed=seed, drawn=drawn, drawn_ms=20),
    )


def race_events(
    rules: Policy,
    closes_ms: int,
    proposed: SettlementRecord | None,
    ended: SettlementRecord,
    *,
    is_adopted: bool = False,
) -> list[str]:
    """The event stream of a race that a validator proposed a settlement for, if it did, and how it ended."""
    events: list[machine.Event] = [
        machine.open_race(ended.race_id, rules, batch(), closes_ms - 1, closes_ms),
        machine.RaceClosed(closing_block=10, beacon_network=BEACON.network, beacon_round=BEACON.round),
        machine.SettlementDue(settling_block=20, why="all done"),
        *([machine.SettlementProposed(settlement=proposed)] if proposed is not None else []),
        machine.RaceSettled(settlement=ended, is_adopted=is_adopted),
    ]
    return [machine.encode_event(event) for event in events]
