"""Judges stored bodies whose judge was away. An outage delays a verdict and loses no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from arena.race.model import CountedEvaluation
from arena.records.body import decode_body
from arena.records.model import VerdictRecord
from foundation.errors import ArenaError
from judge.verdict import Verdict
from neurons.loops.run_loop import run_loop
from neurons.node.node import Node
from neurons.race.log import RaceLog
from neurons.worker.protocol import Judged, JudgeJob

TURN_S = 5.0
WAIT_MS_MAX = 300_000
REFUSED = "U3021"


class VerdictLoop:
    """Asks again for owed verdicts, with growing pauses while the judge stays away."""

    def __init__(self, node: Node, logs: Callable[[], list[RaceLog]]) -> None:
        self._node = node
        self._logs = logs
        self._wait_ms = 0
        self._not_before_ms = 0

    async def run(self, drain: asyncio.Event) -> None:
        """Judge until drained. Raises only what no retry can mend."""
        await run_loop("verdicts", self._turn_when_due, drain, self._node.log, every_s=TURN_S)

    async def _turn_when_due(self) -> None:
        if self._node.now_ms() < self._not_before_ms:
            return
        owed = await self.turn()
        self._wait_ms = min(WAIT_MS_MAX, max(5_000, self._wait_ms * 2)) if owed else 0
        self._not_before_ms = self._node.now_ms() + self._wait_ms

    async def turn(self) -> int:
        """Try every owed verdict once; returns how many are still owed."""
        still_owed = 0
        for log in self._logs():
            await log.refresh()
            for row in log.owed(self._node.signer.hotkey):
                still_owed += not await self._judge(row)
        return still_owed

    async def _judge(self, row: CountedEvaluation) -> bool:
        """One more try at one body; True when it got its verdict.

        A refusal is recorded, so that the log itself says when a body has been refused often enough (`RaceLog.owed`);
        an outage of the judge is not.
        """
        stored = await self._node.store.body(row.record.body_sha256)
        if stored is None:
            raise ArenaError("V2050", f"no body {row.record.body_sha256} for record {row.seq}")
        job = JudgeJob(job_id=row.record.body_sha256, body=decode_body(stored.content))
        reply = await self._node.pool.run(job)
        if not isinstance(reply, Judged):
            return False
        is_verdict = isinstance(reply.verdict, Verdict)
        if is_verdict or (not isinstance(reply.verdict, Verdict) and reply.verdict.failure.code == REFUSED):
            record = VerdictRecord(subject=row.record.subject, context=row.record.context, verdict=reply.verdict)
            await self._node.sequencer.append([record])
        return is_verdict
