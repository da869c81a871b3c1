"""The work loop: claim a work item, run the evaluation, append its records. One task per worker.

Every claim ends in exactly one attempt record: `evaluated` with its evaluation and verdict, `faulted` with
whose fault it was, or `abandoned` when the lease was lost. Records, body and the end of the lease are one transaction.
A fault of ours or of an upstream never becomes a score; what follows it is `arena.race.decider`'s decision. A
restart gets what earlier attempts were answered, from a journal that lives as long as the work item. If a journal
cannot be written, a warning is logged and its item is restarted under the stricter rule.
A stored body whose judge was away is judged later: an outage delays a verdict and loses no trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

import msgspec

from arena.evaluate import Evaluation, records_of
from arena.race.decider import after_fault, is_last_attempt, is_nobodys_fault, overdraft, witness_item
from arena.race.scores import LoggedRecord
from arena.records.body import decode_body, encode_body
from arena.records.model import AttemptRecord, Context, EvaluationRecord, Stage, VerdictRecord
from arena.records.port import AttemptUsage, Lease, LeaseLostError, Requeue, WorkItem
from foundation.backoff import Backoff, NextTry
from foundation.canonical import text_hash
from foundation.codes import CAP_REACHED, JOB_QUARANTINED, JUDGE_UNUSABLE, STORE_CANNOT_HOLD, Owner
from foundation.errors import ArenaError, Failure
from harness.agents.registry import shipped_source
from harness.inference.journal import FileJournal
from judge.verdict import UnscoredVerdict, Verdict
from neurons.loops.node import Node
from neurons.loops.run_loop import Action, StopSignal, drained_within, persist
from neurons.race.log import RaceLog
from neurons.worker.pool import Spending
from neurons.worker.ports import EvaluateJob, EvaluationReply, FaultReply, Job, JudgeJob, Reply, VerdictReply
from problems.model import UnscoredOutcome
from problems.titles import AcceptedTitles, cut_titles

IDLE_S = 0.25
_SUFFIX = ".journal"
_NAME_CHARS = 40


class Journals:
    """Where the completions of unfinished work items lie, below `folder`: one file each, in a folder for each race and
    stage.

    A file is there from an item's first completion until its end, and is removed with it; what is left of items that
    were closed otherwise goes with the folder, once the store has no open item of that race and stage.
    """

    def __init__(self, node: Node) -> None:
        self._node, self._folder = node, (node.state_dir / "completions").resolve()  # workers have it too

    def path(self, item: WorkItem) -> Path:
        """The file of a work item, whether or not it exists."""
        folder = f"{item.context.stage}.{quote(item.context.race_id, safe='')}"
        return self._folder / folder / (text_hash(item.item_id)[:_NAME_CHARS] + _SUFFIX)

    def forgive(self, lease: Lease) -> None:
        """The item's next attempt owes nothing of what earlier ones were answered; a warning where that can't be
        written."""
        path = self.path(lease.item)
        try:
            if path.exists():
                with contextlib.closing(FileJournal(path)) as journal:
                    journal.forgive()
        except ArenaError as error:
            self._node.log.warning("journal not written", attempt=lease.attempt_id, code=error.failure.code)

    async def sweep(self) -> None:
        """Remove the folders of races and stages that have no open item. Raises ArenaError V2021."""
        for folder in sorted(self._folder.glob("*.*")):
            name, _, race = folder.name.partition(".")
            stage: Stage = "race" if name == "race" else "qualifying"
            if not await self._node.store.open_items(unquote(race), stage):
                shutil.rmtree(folder, ignore_errors=True)  # what stays is tried again at the next turn


class EpisodeLoop:
    """Claims and runs work until `drain` is set."""

    name, every_s = "episodes", 0.0

    def __init__(self, node: Node, drain: StopSignal) -> None:
        self._node = node
        self._drain = drain
        self._journals = Journals(node)

    async def turn(self) -> None:
        """Serve one item, or wait a moment when there is none."""
        rules = self._node.policy
        leases = await self._node.store.claim(1, rules.race.lease_ms, charge_ms=rules.limits.agent_time_ms)
        for lease in leases:
            await self._serve(lease)
        if not leases:
            await drained_within(self._drain, IDLE_S)

    async def _serve(self, lease: Lease) -> None:
        if (spent := overdraft(lease, self._node.policy)) is not None:
            await self._fault(lease, spent)
            return
        try:
            job = await self._job(lease)
        except ArenaError as error:
            await self._fault(lease, error.failure)
            return
        spending: Spending = []
        work = asyncio.create_task(within_caps(self._node, lease.item.context, job, spending))
        keeper = asyncio.create_task(self._keep(lease, work))
        reply: Reply | None = None
        try:
            reply = await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not work.cancelled() or (task is not None and task.cancelling()):
                raise
            self._node.log.warning("lease lost, jail stopped", attempt=lease.attempt_id)  # the sweep records it
        finally:
            keeper.cancel()
        if isinstance(reply, EvaluationReply):
            await self._finish(lease, reply.evaluation)
        elif reply is not None:
            await self._fault(lease, reply.failure if isinstance(reply, FaultReply) else Failure(code="V2004"))
        if spending:  # after the records, which it must not hold up; of a lost lease, too
            self._node.metrics.count_usage(spending)
            put = partial(self._node.store.put_usage, _usage(lease.attempt_id, lease.item, spending))
            await persist(f"usage of {lease.attempt_id}", put, self._drain)

    async def _job(self, lease: Lease) -> EvaluateJob:
        """What a worker is sent; a race's problem goes with the accepted titles that its own batch holds for it.

        Raises ArenaError P4006, P4013, V2004, and V2150 for a source that was changed at rest: it is not what
        was committed.
        """
        context, subject = lease.item.context, lease.item.subject
        titles: AcceptedTitles | None = None
        if context.stage == "race":
            batch = await asyncio.to_thread(self._node.bank.batch, context.race_id)
            found = next((one for one in batch.problems if one.problem_id == context.problem_id), None)
            titles = batch.titles
        elif context.variant_seed and self._node.variants is not None:
            drawn = await asyncio.to_thread(self._node.variants, context.problem_id, context.variant_seed)
            found, titles = drawn.problem, drawn.titles
        elif self._node.policy.qualifying.variant_blocks:
            raise ArenaError("P4013", f"{context.problem_id} was enqueued under a policy without variants")
        else:
            found = next((one for one in self._node.suite if one.problem_id == context.problem_id), None)
        if found is None:
            raise ArenaError("P4006", f"{context.problem_id} is in neither suite nor batch")
        if subject.is_control:
            source = shipped_source(subject.agent_sha256)
        else:
            source = await self._node.store.source(subject.agent_version_id)
        if source is None:
            raise ArenaError("V2004", f"no source stored for agent {subject.agent_version_id[:12]}")
        if text_hash(source) != subject.agent_sha256:
            raise ArenaError("V2150", f"agent {subject.agent_version_id[:12]}")
        return EvaluateJob(
            source=source,
            problem=found,
            titles=titles and cut_titles(titles, (found,)),
            journal=str(self._journals.path(lease.item)),
            is_last=is_last_attempt(lease.refused, self._node.policy.race),
        )

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
        outcome = evaluation.outcome
        if isinstance(outcome, UnscoredOutcome) and outcome.failure.owner is not Owner.PROBLEM:
            await self._fault(lease, outcome.failure)  # ours, such as a missing title release: tried again
            return
        body = encode_body(evaluation.body)
        payloads = records_of(
            evaluation,
            attempt_id=lease.attempt_id,
            subject=lease.item.subject,
            context=lease.item.context,
            conditions=self._node.conditions,
            body_sha256=body.body_sha256,
        )
        cost = evaluation.cost
        host = msgspec.structs.replace(
            self._node.host, episode_ms=cost.episode_ms, agent_time_ms=cost.agent_time_ms, model_ms=cost.model_ms
        )

        append = partial(self._node.sequencer.append, payloads, (body,), lease, host=host)
        metrics = self._node.metrics
        metrics.count_evaluation(lease.item.context.stage, evaluation)
        if isinstance(outcome, UnscoredOutcome):
            metrics.unscored.labels(outcome.failure.owner.value).inc()
        try:
            with metrics.append_seconds.time():
                await self._write(lease, append, is_end=True)
        except ArenaError as error:
            if error.failure.code != STORE_CANNOT_HOLD:
                raise
            await self._fault(lease, error.failure, is_hopeless=True)

    async def _fault(self, lease: Lease, failure: Failure, *, is_hopeless: bool = False) -> None:
        """Record the fault; give the item back for later, or close it. One of ours gets a witness before it is tried
        again: the control agent on the same problem."""
        self._node.metrics.faults.labels(failure.code).inc()
        self._node.metrics.unscored.labels(failure.owner.value).inc()
        self._node.log.warning("attempt faulted", attempt=lease.attempt_id, code=failure.code, detail=failure.detail)
        counts = {"faults": lease.faults, "counted": lease.counted}
        after = after_fault(failure, lease.item.context.stage, **counts, rules=self._node.policy.race)
        if after is not None and failure.code == CAP_REACHED:
            after = msgspec.structs.replace(after, delay_ms=self._node.purse.waits_ms())
        retry = None if is_hopeless else after
        is_closing = retry is None
        if is_nobodys_fault(failure):
            self._journals.forgive(lease)
        record = _attempt(lease, "faulted", failure, is_closing=is_closing)
        witness = witness_item(lease.item, self._node.policy.race)

        async def write() -> None:
            if retry is None:
                await self._node.sequencer.append([record], (), lease)
            else:
                await self._node.sequencer.abandon(lease, record, retry)

        is_written = await self._write(lease, write, is_end=is_closing)
        is_witnessed = failure.owner is Owner.VALIDATOR or (is_closing and failure.owner is not Owner.AGENT)
        is_witnessed &= failure.code != CAP_REACHED
        if is_written and witness is not None and is_witnessed:
            enqueue = partial(self._node.store.enqueue, (witness,), {witness.subject.miner_hotkey: lease.owner})
            await persist(f"witness {witness.item_id}", enqueue, self._drain)

    async def _write(self, lease: Lease, action: Action, *, is_end: bool) -> bool:
        """Write until it stands, then drop the journal of an item that ends; False for a lease lost meanwhile, which
        leaves its attempt record to the sweep."""
        try:
            await persist(f"append {lease.attempt_id}", action, self._drain)
        except LeaseLostError:
            self._node.log.warning("lease lost before the append", attempt=lease.attempt_id)
            return False
        if is_end:
            with contextlib.suppress(OSError):  # what stays goes with its folder
                self._journals.path(lease.item).unlink(missing_ok=True)
        return True


async def within_caps(node: Node, context: Context, job: Job, spending: Spending) -> Reply:
    """What a worker answers, once the node's caps leave room; else why they do not. `spending` becomes its cost."""
    if (refused := await node.purse.enter(context)) is not None:
        return FaultReply(failure=refused)
    try:
        return await node.pool.run(job, spending)
    finally:
        node.purse.leave(context, spending)


def _usage(attempt_id: str, about: WorkItem | EvaluationRecord, rows: Spending) -> AttemptUsage:
    return AttemptUsage(
        attempt_id=attempt_id,
        race_id=about.context.race_id,
        stage=about.context.stage,
        agent_version_id=about.subject.agent_version_id,
        rows=tuple(rows),
    )


def _attempt(
    lease: Lease, ended: Literal["faulted", "abandoned"], failure: Failure, *, is_closing: bool = False
) -> AttemptRecord:
    return AttemptRecord(
        attempt_id=lease.attempt_id,
        subject=lease.item.subject,
        context=lease.item.context,
        ended=ended,
        failure=failure,
        is_closing=is_closing,
    )


async def sweep(node: Node) -> None:
    """Record every lease of ours that ran out, and give its item back to the queue; drop unneeded journals."""
    lost = Failure(code="V2006", detail="the lease ran out or was closed")
    journals = Journals(node)
    for lease in await node.store.expired():
        record = _attempt(lease, "abandoned", lost)
        journals.forgive(lease)
        with contextlib.suppress(LeaseLostError):
            # behind the others: what ends the whole process must not be the first thing it meets again
            await node.sequencer.abandon(lease, record, Requeue(is_fault=True))
            node.log.warning("abandoned", attempt=lease.attempt_id)
    await journals.sweep()


PAUSES = Backoff(first_ms=5_000, most_ms=300_000)


class VerdictLoop:
    """Asks again for owed verdicts, with growing pauses while the judge stays away.

    What follows a body whose judging ended the workers of two slots is what follows such an episode
    (`arena.race.decider`): a race does without its verdict, qualifying asks again after its longest pause.
    """

    name, every_s = "verdicts", 5.0

    def __init__(self, node: Node, logs: Callable[[], list[RaceLog]]) -> None:
        self._node = node
        self._logs = logs
        self._retry = NextTry()
        self._put_off_ms: dict[str, int] = {}  # by body, of those that are quarantined: until when

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
                if self._node.now_ms() >= self._put_off_ms.get(row.record.body_sha256, 0):
                    is_owed |= await self._ask(row)
        self._retry = PAUSES.after(self._retry, self._node.now_ms()) if is_owed else NextTry()

    async def _ask(self, row: LoggedRecord[EvaluationRecord]) -> bool:
        """Ask for one verdict: whether it is to be asked for again like any that is owed."""
        node, record, context = self._node, row.record, row.record.context
        stored = await node.store.body(record.body_sha256)
        if stored is None:
            raise ArenaError("V2050", f"no body {record.body_sha256} for record {row.seq}")
        spending: Spending = []
        reply = await within_caps(node, context, JudgeJob(body=decode_body(stored.content)), spending)
        if spending:
            node.metrics.count_usage(spending)
            await node.store.put_usage(_usage(f"{record.attempt_id}+{node.now_ms()}", record, spending))
        if isinstance(reply, VerdictReply):
            self._put_off_ms.pop(record.body_sha256, None)
            verdict = reply.verdict
            node.metrics.judge_verdicts.inc(isinstance(verdict, Verdict))
            if isinstance(verdict, Verdict) or verdict.failure.code == JUDGE_UNUSABLE:
                await self._record(row, verdict)
            return not isinstance(verdict, Verdict)
        failure = reply.failure if isinstance(reply, FaultReply) else Failure(code="V2004")
        node.metrics.faults.labels(failure.code).inc()
        node.log.warning(
            "judging faulted", record=row.seq, body=record.body_sha256, code=failure.code, detail=failure.detail
        )
        is_capped = failure.code == CAP_REACHED and bool(context.race_id)  # qualifying waits for the next day
        if failure.code != JOB_QUARANTINED and not is_capped:
            return True
        rubric_id = node.policy.rubric.rubric_id
        await self._record(row, UnscoredVerdict(body_sha256=record.body_sha256, rubric_id=rubric_id, failure=failure))
        self._put_off_ms[record.body_sha256] = node.now_ms() + node.policy.race.retry_max_ms
        return False

    async def _record(self, row: LoggedRecord[EvaluationRecord], verdict: Verdict | UnscoredVerdict) -> None:
        record = VerdictRecord(subject=row.record.subject, context=row.record.context, verdict=verdict)
        await self._node.sequencer.append([record])
