"""Races with a control agent for tests: which attempts each validator met a fault in, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from msgspec.structs import replace

from arena.policies import CONTROL_SHA256
from arena.policy import Policy
from arena.race.model import Batch, Candidate, LoggedRecord, SettlementInputs
from arena.race.scores import control_subject, witness_subject
from arena.records.model import AttemptRecord, Context, EvaluationRecord, VerdictRecord
from foundation.errors import Failure
from tests.arena.race_stand import (
    RACE,
    Outcomes,
    batch,
    digest,
    drawn_of,
    evaluation,
    inputs,
    metagraph,
    policy,
    verdict,
)

VALS = ("val-a", "val-b", "val-c")

# (agent version id, problem id, validator) -> how many attempts end in a fault of the validator before the one that
# does not; a closing one is written as minus their number
Faults = Callable[[str, str, str], int]


def controlled(**race: object) -> Policy:
    """Three results are asked for, two needed, and a control agent says what is void."""
    fields: dict[str, object] = {"validators_per_problem": 3, "results_required": 2, "control_sha256": CONTROL_SHA256}
    return policy(**fields | race)


def no_faults(agent: str, problem_id: str, validator: str) -> int:
    return 0


def control_of(rules: Policy) -> Candidate:
    """The control agent in the shape that the makers of records take."""
    subject = control_subject(rules.race)
    assert subject is not None
    return Candidate(subject=subject, qualifying_score_e4=0)


def batch_of(rules: Policy | None) -> Batch:
    return batch() if rules is None else batch(rules.race.batch_problems)


def witness_of(rules: Policy, agent: str) -> Candidate:
    subject = witness_subject(rules.race, agent)
    assert subject is not None
    return Candidate(subject=subject, qualifying_score_e4=0)


def attempt(
    who: Candidate,
    problem_id: str,
    validator: str,
    seq: int,
    *,
    is_closing: bool = False,
    code: str = "V2004",
    rules: Policy | None = None,
) -> LoggedRecord[AttemptRecord]:
    record = AttemptRecord(
        attempt_id=f"{problem_id}:{seq}",
        subject=who.subject,
        context=Context(stage="race", race_id=RACE, problem_id=problem_id, batch_sha256=batch_of(rules).batch_sha256),
        ended="faulted",
        is_closing=is_closing,
        failure=Failure(code=code),
    )
    return LoggedRecord(validator=validator, seq=seq, content_sha256=digest("attempt", validator, seq), record=record)


class _Log:
    """What one validator wrote in a race, in order."""

    def __init__(self, rules: Policy, validator: str) -> None:
        self.rules, self.validator, self.seqs = rules, validator, count(1)
        self.evaluations: list[LoggedRecord[EvaluationRecord]] = []
        self.verdicts: list[LoggedRecord[VerdictRecord]] = []
        self.attempts: list[LoggedRecord[AttemptRecord]] = []

    def fault(self, who: Candidate, problem_id: str, *, is_closing: bool = False, code: str = "V2004") -> None:
        row = attempt(
            who, problem_id, self.validator, next(self.seqs), is_closing=is_closing, code=code, rules=self.rules
        )
        self.attempts.append(row)

    def result(self, who: Candidate, problem_id: str, *, is_success: bool, quality_e4: int | None = 9_000) -> None:
        row = evaluation(
            self.rules, batch_of(self.rules), who, problem_id, self.validator, next(self.seqs), is_success=is_success
        )
        self.evaluations.append(row)
        if quality_e4 is not None:
            self.verdicts.append(verdict(self.rules, row, quality_e4, next(self.seqs)))


def raced(
    field: Iterable[Candidate],
    outcomes: Outcomes,
    faults: Faults = no_faults,
    *,
    rules: Policy | None = None,
    validators: tuple[str, ...] = VALS,
    lacks_control: Callable[[str, str], bool] = lambda problem_id, validator: False,
    lacks_witness: Callable[[str, str, str], bool] = lambda agent, problem_id, validator: False,
    **changes: object,
) -> SettlementInputs:
    """Settlement inputs in which every validator ran the control agent and every pair, with witnesses of its faults.

    An outcome None is a pair without a result; with a negative number of faults the last of them closed its item.
    """
    chosen, racers = rules or controlled(), tuple(field)
    logs, drawn = [], drawn_of(chosen, batch_of(chosen))
    for validator in validators:
        log = _Log(chosen, validator)
        for problem_id in drawn:
            if chosen.race.control_sha256 and not lacks_control(problem_id, validator):
                log.result(control_of(chosen), problem_id, is_success=True)
        for who in racers:
            for problem_id in drawn:
                _run(log, who, problem_id, outcomes, faults, lacks_witness)
        logs.append(log)
    empty = inputs((), lambda *_: None, rules=chosen, validators=validators)
    found = {
        "batch": batch_of(chosen),
        "field": racers,
        "metagraph": metagraph([who.subject.miner_hotkey for who in racers], validators),
        "evaluations": tuple(row for log in logs for row in log.evaluations),
        "verdicts": tuple(row for log in logs for row in log.verdicts),
        "attempts": tuple(row for log in logs for row in log.attempts),
    }
    return replace(empty, **(found | changes))


def _run(
    log: _Log,
    who: Candidate,
    problem_id: str,
    outcomes: Outcomes,
    faults: Faults,
    lacks_witness: Callable[[str, str, str], bool],
) -> None:
    agent = who.subject.agent_version_id
    met = faults(agent, problem_id, log.validator)
    for number in range(abs(met)):
        log.fault(who, problem_id, is_closing=met < 0 and number == -met - 1)
        if number == 0 and log.rules.race.control_sha256 and not lacks_witness(agent, problem_id, log.validator):
            log.result(witness_of(log.rules, agent), problem_id, is_success=False, quality_e4=None)
    given = outcomes(agent, problem_id, log.validator)
    if met >= 0 and given is not None:
        log.result(who, problem_id, is_success=given[0], quality_e4=given[1])
