"""The race log: a fold over records that counts each once and lets every validator speak for itself alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from arena.policy import Policy
from arena.race.admission import REFUSALS_MAX
from arena.records.body import encode_content
from arena.records.model import AttemptRecord, Context, Payload, RecordContent, SignedRecord, VerdictRecord
from foundation.errors import Failure
from judge.verdict import UnscoredVerdict
from neurons.race.log import RaceLog
from tests.arena import log_stand
from tests.arena import race_stand as stand

ME, OTHER = "val-a", "val-b"
AGENT = stand.candidate("x")
POLICY = stand.policy()
SUITE = ("p0", "p1", "p2", "p3")


class Logs:
    """The reading half of a store that shows two validators' logs, one record at a time."""

    validator = ME

    def __init__(self) -> None:
        self.logs: dict[str, list[SignedRecord]] = {ME: [], OTHER: []}

    def add(self, *payloads: Payload, validator: str = ME) -> None:
        for payload in payloads:
            log = self.logs[validator]
            content = encode_content(RecordContent(recorded_ms=1, host=log_stand.HOST, payload=payload))
            sha256 = stand.digest(content)
            log.append(
                SignedRecord(
                    validator=validator, seq=len(log) + 1, prev="", content_sha256=sha256, signature="", content=content
                )
            )

    async def validators(self) -> list[str]:
        return sorted(self.logs)

    async def records(
        self, validator: str, *, after_seq: int = 0, kinds: Sequence[str] = (), race_id: str | None = None
    ) -> AsyncIterator[SignedRecord]:
        for record in self.logs[validator][after_seq:]:
            await asyncio.sleep(0)
            yield record


def evaluation(problem: str, *, is_success: bool, rules: Policy = POLICY, validator: str = ME, body: int = 0):
    row = stand.evaluation(rules, stand.batch(), AGENT, problem, validator, body, is_success=is_success)
    return replace(row.record, context=Context(stage="qualifying", race_id="", problem_id=problem))


def verdict(record, quality_e4: int = 9_000) -> VerdictRecord:
    row = stand.LoggedRecord(validator=ME, seq=1, content_sha256="", record=record)
    return stand.verdict(POLICY, row, quality_e4, 2).record


def refusal(record, code: str = "U3021") -> VerdictRecord:
    unscored = UnscoredVerdict(
        body_sha256=record.body_sha256, rubric_id=POLICY.rubric.rubric_id, failure=Failure(code=code)
    )
    return VerdictRecord(subject=record.subject, context=record.context, verdict=unscored)


def closing(problem: str, code: str) -> AttemptRecord:
    return AttemptRecord(
        attempt_id=f"{problem}:1",
        subject=AGENT.subject,
        context=Context(stage="qualifying", race_id="", problem_id=problem),
        ended="faulted",
        is_closing=True,
        failure=Failure(code=code),
    )


async def read(logs: Logs) -> RaceLog:
    log = RaceLog(logs, "")
    await log.refresh()
    return log


async def state_of(logs: Logs, policy: Policy = POLICY) -> tuple[str, int | None]:
    found = (await read(logs)).qualification(AGENT.subject.agent_version_id, SUITE, policy)
    return found.state, found.score_e4


async def test_a_body_the_judge_refused_often_enough_is_owed_no_more():
    logs, record = Logs(), evaluation("p0", is_success=True)
    logs.add(record, *[refusal(record)] * (REFUSALS_MAX - 1))
    logs.add(*[refusal(record)] * 9, validator=OTHER)
    log = await read(logs)
    assert len(log.owed(ME)) == 1 and log.owed_successes() == 1
    logs.add(refusal(record))
    await log.refresh()
    assert not log.owed(ME) and not log.owed_successes()


# -- qualifying
def all_but(missing: str, is_success: bool = True) -> list[Payload]:
    records = [evaluation(problem, is_success=is_success) for problem in SUITE if problem != missing]
    return [payload for record in records for payload in (record, verdict(record))]


async def test_an_agent_qualifies_on_its_whole_suite_and_waits_for_owed_verdicts():
    logs = Logs()
    owing = evaluation("p3", is_success=True)
    logs.add(*all_but("p3"), owing)
    assert await state_of(logs) == ("pending", None)
    logs.add(verdict(owing))
    assert await state_of(logs) == ("qualified", 10_000)


async def test_a_broken_problem_is_withdrawn_and_too_many_keep_the_agent_pending():
    lenient = stand.policy(cancel_void_e4=2_500)
    logs = Logs()
    records = [evaluation(problem, is_success=True, rules=lenient) for problem in SUITE[:3]]
    logs.add(*records, *map(verdict, records), closing("p3", "P4006"))
    assert await state_of(logs, lenient) == ("qualified", 10_000)
    strict = Logs()
    strict.add(*all_but("p3"), closing("p3", "P4006"))
    assert await state_of(strict) == ("pending", None)


async def test_results_read_one_by_one_come_to_what_they_come_to_read_at_once():
    logs, owing = Logs(), evaluation("p3", is_success=True)
    log = RaceLog(logs, "", is_lasting=True)
    for payload in [*all_but("p3", is_success=False), owing]:
        logs.add(payload)
        await log.refresh()
    assert [row.record for row in log.owed(ME)] == [owing]
    assert log.qualification(AGENT.subject.agent_version_id, SUITE, POLICY).state == "pending"
    logs.add(verdict(owing))
    await log.refresh()
    found = log.qualification(AGENT.subject.agent_version_id, SUITE, POLICY)
    assert (found.state, found.score_e4) == await state_of(logs) == ("qualified", 2_500)
    assert not log.owed(ME) and log.evaluations == log.verdicts == []
