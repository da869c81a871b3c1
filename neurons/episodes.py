"""The work loop: claim a work item, run the evaluation, append its records. One task per worker.

Promise: every claim ends in exactly one attempt record: `evaluated` with its evaluation and verdict, `faulted` with
whose fault it was, or `abandoned` when the lease was lost. Records, body and the end of the lease are one transaction.
A fault of ours or of an upstream never becomes a score.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import msgspec

from arena.evaluate.model import Evaluation
from arena.records.body import encode_body
from arena.records.model import AttemptRecord, EvaluationRecord, HostFacts, Payload, VerdictRecord
from arena.store.port import Lease, LeaseLostError, StoredBody
from neurons.node import Node
from neurons.worker_protocol import Evaluated, EvaluateJob, Faulted
from problems.errors import ArenaError, Failure, Owner
from problems.model import Problem

IDLE_S = 0.25
PAUSE_S_MAX = 60.0


class EpisodeLoop:
    """Claims and runs work until `drain` is set."""

    def __init__(self, node: Node, drain: asyncio.Event) -> None:
        self._node = node
        self._drain = drain
        self._pause_s = 0.0  # grows while an upstream is away, so that an outage burns no attempts

    async def run(self) -> None:
        """Serve until drained. Raises ArenaError only for what no retry can mend."""
        while not self._drain.is_set():
            try:
                leases = await self._node.store.claim(1, self._node.policy.race.lease_ms)
            except ArenaError as error:
                await self._back_off(error)
                continue
            if not leases:
                await self._sleep(IDLE_S)
            for lease in leases:
                await self._serve(lease)

    async def _serve(self, lease: Lease) -> None:
        try:
            problem, source = await self._inputs(lease)
        except ArenaError as error:
            await self._fault(lease, error.failure)
            return
        work = asyncio.create_task(
            self._node.pool.run(EvaluateJob(job_id=lease.attempt_id, source=source, problem=problem))
        )
        keeper = asyncio.create_task(self._keep(lease, work))
        try:
            reply = await work
        except asyncio.CancelledError:
            if not work.cancelled() or self._is_cancelled():
                raise
            self._node.log.warning("lease lost, jail stopped", attempt=lease.attempt_id)
            return  # the sweep writes its attempt record
        finally:
            keeper.cancel()
        if isinstance(reply, Evaluated):
            await self._finish(lease, reply.evaluation)
        else:
            await self._fault(lease, reply.failure if isinstance(reply, Faulted) else Failure(code="V2004"))

    async def _inputs(self, lease: Lease) -> tuple[Problem, str]:
        context, subject = lease.item.context, lease.item.subject
        if context.stage == "race":
            batch = await asyncio.to_thread(self._node.stock.batch, context.race_id)
            found = {problem.problem_id: problem for problem in batch.problems}.get(context.problem_id)
        else:
            found = self._node.suite_problems().get(context.problem_id)
        if found is None:
            raise ArenaError("P4006", f"{context.problem_id} is in neither suite nor batch")
        source = self._node.sources.get(subject.agent_version_id)
        if source is None:
            for submission in await self._node.store.submissions():
                self._node.sources[submission.subject.agent_version_id] = submission.source
            source = self._node.sources.get(subject.agent_version_id)
        if source is None:
            raise ArenaError("V2004", f"no source stored for agent {subject.agent_version_id[:12]}")
        return found, source

    async def _keep(self, lease: Lease, work: asyncio.Task[object]) -> None:
        """Renew the lease while the work runs; stop the jail at once when it is lost."""
        ttl_ms = self._node.policy.race.lease_ms
        while True:
            await asyncio.sleep(ttl_ms / 3_000)
            try:
                renewed = await self._node.store.renew(lease, ttl_ms)
            except ArenaError as error:
                self._node.log.warning("lease not renewed", attempt=lease.attempt_id, error=str(error))
                continue  # the server may be back before the lease runs out; the append decides
            if renewed is None:
                work.cancel()
                return

    async def _finish(self, lease: Lease, evaluation: Evaluation) -> None:
        body = encode_body(evaluation.body)
        subject, context = lease.item.subject, lease.item.context
        payloads: list[Payload] = [
            AttemptRecord(
                attempt_id=lease.attempt_id,
                subject=subject,
                context=context,
                ended="evaluated",
                body_sha256=body.body_sha256,
                failure=evaluation.body.failure,
            ),
            EvaluationRecord(
                attempt_id=lease.attempt_id,
                subject=subject,
                context=context,
                conditions=msgspec.structs.replace(self._node.conditions, sandbox=evaluation.sandbox),
                body_sha256=body.body_sha256,
                stop=evaluation.body.stop,
                failure=evaluation.body.failure,
                is_agentic=evaluation.body.is_agentic,
                totals=evaluation.body.totals,
                outcome=evaluation.outcome,
            ),
        ]
        if evaluation.verdict is not None:
            payloads.append(VerdictRecord(subject=subject, context=context, verdict=evaluation.verdict))
        cost = evaluation.cost
        host = msgspec.structs.replace(
            self._node.host, episode_ms=cost.episode_ms, agent_time_ms=cost.agent_time_ms, model_ms=cost.model_ms
        )
        self._pause_s = 0.0
        await self._append(lease, payloads, (body,), host)

    async def _append(
        self, lease: Lease, payloads: list[Payload], bodies: tuple[StoredBody, ...], host: HostFacts
    ) -> None:
        while True:
            try:
                await self._node.sequencer.append(payloads, bodies, lease, host=host)
                return
            except LeaseLostError:
                self._node.log.warning("lease lost before the append", attempt=lease.attempt_id)
                return  # the sweep writes its attempt record
            except ArenaError as error:
                if not error.entry.is_retryable or self._drain.is_set():
                    raise
                await self._back_off(error)

    async def _fault(self, lease: Lease, failure: Failure) -> None:
        """Record the fault; give the item back, or close it when its attempts are used up or nothing can mend it."""
        record = AttemptRecord(
            attempt_id=lease.attempt_id,
            subject=lease.item.subject,
            context=lease.item.context,
            ended="faulted",
            failure=failure,
        )
        is_last = lease.attempts + 1 >= self._node.policy.race.attempts or failure.owner is Owner.PROBLEM
        is_outage = failure.owner is Owner.UPSTREAM
        self._node.log.warning("attempt faulted", attempt=lease.attempt_id, code=failure.code, detail=failure.detail)
        if is_last and not is_outage:
            await self._append(lease, [record], (), self._node.host)
        else:
            with contextlib.suppress(LeaseLostError):
                await self._node.sequencer.abandon(lease, record)
        if is_outage:
            await self._back_off(ArenaError(failure.code, failure.detail))

    async def _back_off(self, error: ArenaError) -> None:
        if not error.entry.is_retryable:
            raise error
        self._pause_s = min(PAUSE_S_MAX, max(1.0, self._pause_s * 2))
        self._node.log.warning("paused", seconds=self._pause_s, error=error.failure.code, detail=error.failure.detail)
        await self._sleep(self._pause_s * random.uniform(0.8, 1.2))

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drain.wait(), seconds)

    @staticmethod
    def _is_cancelled() -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
