"""Owed verdicts: judges stored bodies again when the judge was away. An outage costs a verdict, not a trace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from arena.records.body import decode_body
from arena.records.model import VerdictRecord
from judge.verdict import Verdict
from neurons.node import Node
from neurons.race_log import RaceLog
from neurons.worker_protocol import Judged, JudgeJob
from problems.errors import ArenaError

TURN_S = 5.0
WAIT_S_MAX = 300.0


class VerdictLoop:
    """Asks again for owed verdicts, with growing pauses while the judge stays away."""

    def __init__(self, node: Node, logs: Callable[[], list[RaceLog]]) -> None:
        self._node = node
        self._logs = logs

    async def run(self, drain: asyncio.Event) -> None:
        """Judge until drained."""
        wait_s = TURN_S
        while not drain.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(drain.wait(), wait_s)
            try:
                owed = await self.turn()
            except ArenaError as error:
                if not error.entry.is_retryable:
                    raise
                owed = 1
                self._node.log.warning("verdicts wait", code=error.failure.code, detail=error.failure.detail)
            wait_s = min(WAIT_S_MAX, wait_s * 2) if owed else TURN_S

    async def turn(self) -> int:
        """Try every owed verdict once; returns how many are still owed. Refused verdicts are not appended again."""
        still_owed = 0
        for log in self._logs():
            await log.refresh()
            for row in log.owed(self._node.signer.hotkey):
                stored = await self._node.store.body(row.record.body_sha256)
                if stored is None:
                    raise ArenaError("V2050", f"no body {row.record.body_sha256} for record {row.seq}")
                job = JudgeJob(job_id=row.record.body_sha256, body=decode_body(stored.content))
                reply = await self._node.pool.run(job)
                if isinstance(reply, Judged) and isinstance(reply.verdict, Verdict):
                    record = VerdictRecord(
                        subject=row.record.subject, context=row.record.context, verdict=reply.verdict
                    )
                    await self._node.sequencer.append([record])
                else:
                    still_owed += 1
        return still_owed
