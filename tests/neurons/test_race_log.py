"""The race log: a fold over records that counts each once and lets every validator speak for itself alone."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import cast

from arena.race.admission import REFUSALS_MAX
from arena.records.model import EvaluationRecord, Payload, VerdictRecord
from arena.store.postgres import PostgresStore
from foundation.errors import Failure
from judge.verdict import UnscoredVerdict
from neurons.race.log import RaceLog
from tests.arena import race_stand as stand

ME, OTHER = "val-a", "val-b"
AGENT = stand.candidate("x")
POLICY = stand.policy()
SUITE = ("p0", "p1", "p2", "p3")


class Log(RaceLog):
    """A log of two validators that is fed by hand."""

    def __init__(self, *payloads: Payload, is_lasting: bool = False) -> None:
        super().__init__(cast(PostgresStore, SimpleNamespace(validator=ME)), "", is_lasting=is_lasting)
        self._seq = itertools.count(1)
        self.add(*payloads)

    def add(self, *payloads: Payload, validator: str = ME) -> None:
        for payload in payloads:
            seq = next(self._seq)
            self.take(validator, seq, stand.digest(seq), payload)

    def mean(self) -> int | None:
        end = self.own_suite_end(AGENT.subject.agent_version_id, SUITE, POLICY)
        return end and end.mean_e4


def evaluation(problem: str, *, is_success: bool) -> EvaluationRecord:
    return stand.evaluation(POLICY, AGENT, problem, ME, is_success=is_success, stage="qualifying")


def verdict(record: EvaluationRecord) -> VerdictRecord:
    return stand.verdict(POLICY, record)


def refusal(record: EvaluationRecord) -> VerdictRecord:
    why, rubric_id = Failure(code="U3021"), POLICY.rubric.rubric_id
    unscored = UnscoredVerdict(body_sha256=record.body_sha256, rubric_id=rubric_id, failure=why)
    return VerdictRecord(subject=record.subject, context=record.context, verdict=unscored)


def test_a_body_the_judge_refused_often_enough_is_owed_no_more():
    record = evaluation("p0", is_success=True)
    log = Log(record, *[refusal(record)] * (REFUSALS_MAX - 1))
    log.add(*[refusal(record)] * 9, validator=OTHER)
    assert len(log.owed(ME)) == 1 and log.owed_successes() == 1
    log.add(refusal(record))
    assert not log.owed(ME) and not log.owed_successes()


def all_but(missing: str) -> list[Payload]:
    records = [evaluation(problem, is_success=False) for problem in SUITE if problem != missing]
    return [payload for record in records for payload in (record, verdict(record))]


def test_a_lasting_log_keeps_what_is_owed_and_the_mean_it_came_to():
    owing = evaluation("p3", is_success=True)
    log = Log(*all_but("p3"), owing, is_lasting=True)
    assert [row.record for row in log.owed(ME)] == [owing] and log.mean() is None
    log.add(verdict(owing))
    assert log.mean() == log.mean() == 2_500
    assert not log.owed(ME) and log.evaluations == log.verdicts == []
