"""Judges stored bodies whose judge was away. An outage delays a verdict and loses no trace."""

from __future__ import annotations

from collections.abc import Callable

from arena.race.model import CountedEvaluation
from arena.race.state.retry import after_fault
from arena.records.body import decode_body
from arena.records.model import VerdictRecord
from foundation.backoff import Backoff, NextTry
from foundation.codes.names import JOB_QUARANTINED, JUDGE_UNUSABLE
from foundation.errors import ArenaError, Failure
from judge.verdict import UnscoredVerdict, Verdict
from neurons.loops.node import Node
from neurons.race.log import RaceLog
from neurons.worker.protocol import Faulted, Judged, JudgeJob

PAUSES = Backoff(first_ms=5_000, most_ms=300_000)


class VerdictLoop:
    """Asks again for owed verdicts, with growing pauses while the judge stays away.

    What follows a body whose judging ended the workers of two slots is what follows such an episode
    (`arena.race.state.retry`): a race does without its verdict, qualifying asks again after its longest pause.
    """

    name, every_s = "verdicts", 5.0

    def __init__(self, node: Node, logs: Callable[[], list[RaceLog]]) -> None:
        self._node = node
        self._logs = logs
        self._retry = NextTry()
        self._put_off: dict[str, NextTry] = {}  # by body, of those that are quarantined

    async def turn(self) -> None:
        """Try every owed verdict once, when that is due.

        A refusal is recorded, so that the log itself says when a body has been refused often enough (`RaceLog.owed`),
        and so is a quarantine; an outage of the judge is not.
        """
        if self._node.now_ms() < self._retry.not_before_ms:
            return
        is_owed = False
        for log in self._logs():
            await log.refresh()
            for row in log.owed(self._node.signer.hotkey):
                if self._node.now_ms() >= self._put_off.get(row.record.body_sha256, NextTry()).not_before_ms:
                    is_owed |= await self._ask(row)
        self._retry = PAUSES.after(self._retry, self._node.now_ms()) if is_owed else NextTry()

    async def _ask(self, row: CountedEvaluation) -> bool:
        """Ask for one verdict: whether it is to be asked for again like any that is owed."""
        node, record, context = self._node, row.record, row.record.context
        if node.judge_budgets.refusal(context.race_id, context.problem_id) is not None:
            return True
        stored = await node.store.body(record.body_sha256)
        if stored is None:
            raise ArenaError("V2050", f"no body {record.body_sha256} for record {row.seq}")
        reply = await node.pool.run(JudgeJob(job_id=record.body_sha256, body=decode_body(stored.content)))
        if isinstance(reply, Judged):
            self._put_off.pop(record.body_sha256, None)
            verdict = reply.verdict
            if isinstance(verdict, Verdict) or verdict.failure.code == JUDGE_UNUSABLE:
                await self._record(row, verdict)
            node.judge_budgets.charge(context.race_id, context.problem_id, reply.judging)
            node.metrics.count_judging(reply.judging)
            return not isinstance(verdict, Verdict)
        failure = reply.failure if isinstance(reply, Faulted) else Failure(code="V2004")
        node.metrics.faults.labels(failure.code).inc()
        node.log.warning(
            "judging faulted", record=row.seq, body=record.body_sha256, code=failure.code, detail=failure.detail
        )
        if failure.code != JOB_QUARANTINED:
            return True
        rubric_id, times = node.policy.rubric.rubric_id, self._put_off.get(record.body_sha256, NextTry()).failures
        await self._record(row, UnscoredVerdict(body_sha256=record.body_sha256, rubric_id=rubric_id, failure=failure))
        after = after_fault(failure, context.stage, faults=times, counted=times, rules=node.policy.race)
        self._put_off[record.body_sha256] = NextTry(times + 1, after.delay_ms, node.now_ms() + after.delay_ms)
        return False

    async def _record(self, row: CountedEvaluation, verdict: Verdict | UnscoredVerdict) -> None:
        record = VerdictRecord(subject=row.record.subject, context=row.record.context, verdict=verdict)
        await self._node.sequencer.append([record])
