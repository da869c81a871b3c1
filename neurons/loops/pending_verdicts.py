"""Judges stored bodies whose judge was away. An outage delays a verdict and loses no trace."""

from __future__ import annotations

from collections.abc import Callable

from arena.records.body import decode_body
from arena.records.model import VerdictRecord
from foundation.backoff import Backoff, NextTry
from foundation.codes.names import JUDGE_UNUSABLE
from foundation.errors import ArenaError
from judge.verdict import Verdict
from neurons.node.node import Node
from neurons.race.log import RaceLog
from neurons.worker.protocol import Judged, JudgeJob

PAUSES = Backoff(first_ms=5_000, most_ms=300_000)


class VerdictLoop:
    """Asks again for owed verdicts, with growing pauses while the judge stays away."""

    name, every_s = "verdicts", 5.0

    def __init__(self, node: Node, logs: Callable[[], list[RaceLog]]) -> None:
        self._node = node
        self._logs = logs
        self._retry = NextTry()

    async def turn(self) -> None:
        """Try every owed verdict once, when that is due.

        A refusal is recorded, so that the log itself says when a body has been refused often enough (`RaceLog.owed`);
        an outage of the judge is not.
        """
        if self._node.now_ms() < self._retry.not_before_ms:
            return
        still_owed = 0
        for log in self._logs():
            await log.refresh()
            for row in log.owed(self._node.signer.hotkey):
                context, budgets = row.record.context, self._node.judge_budgets
                if budgets.refusal(context.race_id, context.problem_id) is not None:
                    still_owed += 1
                    continue
                stored = await self._node.store.body(row.record.body_sha256)
                if stored is None:
                    raise ArenaError("V2050", f"no body {row.record.body_sha256} for record {row.seq}")
                job = JudgeJob(job_id=row.record.body_sha256, body=decode_body(stored.content))
                reply = await self._node.pool.run(job)
                verdict = reply.verdict if isinstance(reply, Judged) else None
                still_owed += not isinstance(verdict, Verdict)
                if isinstance(verdict, Verdict) or (verdict is not None and verdict.failure.code == JUDGE_UNUSABLE):
                    record = VerdictRecord(subject=row.record.subject, context=row.record.context, verdict=verdict)
                    await self._node.sequencer.append([record])
                if isinstance(reply, Judged):
                    budgets.charge(context.race_id, context.problem_id, reply.judging)
                    self._node.metrics.count_judging(reply.judging)
        self._retry = PAUSES.after(self._retry, self._node.now_ms()) if still_owed else NextTry()
