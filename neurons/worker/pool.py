"""The worker pool: a fixed number of episode workers on this machine, restarted when they die.

`run` answers every job with a reply, V2005 when its worker died, hung or sent an unknown reply, and V2009 when
the job did that twice; a stuck or killed worker never blocks the others; `stop` leaves no process behind. A slot in
which no worker starts, its jail's self-test included, rests with growing pauses and takes no job meanwhile. An end is
charged to the job only where the slot's next worker started at once, so a sick slot quarantines nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter

import msgspec

from foundation.backoff import Backoff
from foundation.canonical import text_hash
from foundation.codes import HOST_FAILED, JOB_QUARANTINED, WORKER_DIED
from foundation.errors import ArenaError, Failure
from foundation.logs import get_logger
from harness.inference.gateway import ModelUsage
from harness.sandbox.port import SandboxLevel
from neurons.health.status import RestingSlot
from neurons.settings.inputs import unix_ms
from neurons.worker import ports

RESTS = Backoff(first_ms=1_000, most_ms=300_000)  # of a slot, by failed starts in a row
ENDS_MAX = 2  # workers that a job may end before it is quarantined
_START_TIMEOUT_S = 120.0
_KILL_WAIT_S = 10.0
_DETAIL_CHARACTERS = 300
_MODULE = ("-m", "neurons.worker.process")
Answer = asyncio.Future[ports.Reply]
Spending = list[ModelUsage]  # of a job, whether or not its worker comes to answer


class _Worker:
    """One process and its pipe."""

    def __init__(self, setup: ports.WorkerSetup, process: asyncio.subprocess.Process) -> None:
        self.setup, self.process = setup, process

    @classmethod
    async def start(cls, setup: ports.WorkerSetup) -> tuple[_Worker, SandboxLevel]:
        """A worker whose ports are open, and the jail it reached. Raises the worker's own ArenaError, or V2005."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=ports.LINE_BYTES_MAX,
            env=ports.child_environment(),
            start_new_session=True,  # a Ctrl-C at the terminal is the supervisor's to handle
        )
        worker = cls(setup, process)
        failure = Failure(code=WORKER_DIED, detail=f"worker {setup.slot} was not ready in {_START_TIMEOUT_S:.0f} s")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_START_TIMEOUT_S):
                    reply = await worker.run(setup, [])
                if isinstance(reply, ports.Ready):
                    return worker, reply.sandbox
                failure = reply.failure if isinstance(reply, ports.FaultReply) else failure
            raise ArenaError(failure.code, failure.detail)
        except BaseException:
            await worker.kill()
            raise

    async def run(self, request: ports.Request, spending: Spending) -> ports.Reply:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(ports.encode_line(request))
            await self.process.stdin.drain()
            while isinstance(
                reply := ports.REPLIES.decode(await self.process.stdout.readuntil(b"\n")), ports.UsageNote
            ):
                spending[:] = reply.usage
            return reply
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.DecodeError) as error:
            raise ArenaError(WORKER_DIED, f"worker {self.setup.slot}, process {self.process.pid}: {error}") from error

    async def kill(self) -> None:
        """End the process, a stopped one too; one that the kernel holds on to is left to it after a while."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_WAIT_S):  # `wait_for` of Python 3.11 may lose our being cancelled
                await self.process.wait()


class WorkerPool:
    """One worker for each set-up; each slot is a task that keeps its worker alive and takes jobs as they come."""

    sandbox: SandboxLevel  # the jail that the workers reached, once started

    def __init__(self, setups: tuple[ports.WorkerSetup, ...], deadline_s: float) -> None:
        self._setups, self._deadline_s = setups, deadline_s
        self._jobs: asyncio.Queue[tuple[ports.Job, Answer, Spending]] = asyncio.Queue()
        self._ends: Counter[str] = Counter()  # workers that a job ended since it last ended well
        self._workers: dict[int, _Worker] = {}
        self._slots: list[asyncio.Task[None]] = []
        self._resting: dict[int, RestingSlot] = {}

    async def start(self) -> None:
        """Start every worker. Raises the first worker's own ArenaError when its ports don't open."""
        for setup in self._setups:  # one after the other: the first builds the guest root, which all use
            self._workers[setup.slot], self.sandbox = await _Worker.start(setup)
            self._slots.append(asyncio.create_task(self._serve(setup)))

    @property
    def size(self) -> int:
        """How many jobs can run at once."""
        return len(self._setups)

    @property
    def resting(self) -> tuple[RestingSlot, ...]:
        """The slots whose last start failed, by number."""
        return tuple(self._resting[slot] for slot in sorted(self._resting))

    async def run(self, job: ports.Job, spending: Spending) -> ports.Reply:
        """Run one job on a free worker; faults are returned as they are. `spending` becomes what it cost.

        A worker that dies or overruns the deadline is replaced, and the job answers V2005, V2009 from the
        second end on, after the first try to start the next worker. Cancelling the call kills the worker, so that a
        lost lease stops its jail at once.
        """
        answer: Answer = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((job, answer, spending))
        return await answer

    async def stop(self) -> None:
        """Kill every worker; their jails die with them."""
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        for worker in self._workers.values():
            await worker.kill()

    async def _serve(self, setup: ports.WorkerSetup) -> None:
        """One slot: jobs, one at a time, and a new worker where one ended, however many tries that takes."""
        while True:
            job, answer, spending = await self._jobs.get()
            if self._workers[setup.slot].process.returncode is not None:  # it died while it waited for a job
                self._jobs.put_nowait((job, answer, spending))
                is_well = await self._replace(setup)
            elif failure := await self._try(self._workers[setup.slot], job, answer, spending):
                is_well = await self._replace(setup)
                self._blame(job, answer, failure, is_well)
            else:
                continue
            while not is_well:
                await asyncio.sleep(RESTS.pause_ms(self._resting[setup.slot].tries) / 1_000)
                is_well = await self._replace(setup)

    async def _try(self, worker: _Worker, job: ports.Job, answer: Answer, spending: Spending) -> Failure | None:
        """Answer the job; or the worker has to be replaced, and the failure says why."""
        running = asyncio.create_task(worker.run(job, spending))
        try:
            await asyncio.wait((running, answer), timeout=self._deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():  # it hangs, or nobody waits for the answer any more
                return Failure(code=WORKER_DIED, detail=f"worker {worker.setup.slot} overran {self._deadline_s:.0f} s")
            reply = running.result()
        except ArenaError as error:
            return error.failure
        finally:
            running.cancel()
        self._ends.pop(_key_of(job), None)
        if not answer.done():
            answer.set_result(reply)
        return None

    async def _replace(self, setup: ports.WorkerSetup) -> bool:
        """End what is left of the slot's worker and start another; False where it rests now."""
        await self._workers[setup.slot].kill()
        try:
            self._workers[setup.slot], _ = await _Worker.start(setup)
        except Exception as error:  # noqa: BLE001 - whatever it is, the slot rests by name and is tried again
            failure = Failure(code=HOST_FAILED, detail=f"{type(error).__name__}: {error}"[:_DETAIL_CHARACTERS])
            if isinstance(error, ArenaError):
                failure = error.failure
            before = self._resting.get(setup.slot)
            since_ms, tries = (before.since_ms, before.tries + 1) if before else (unix_ms(), 1)
            self._resting[setup.slot] = RestingSlot(slot=setup.slot, since_ms=since_ms, tries=tries, failure=failure)
            about = {"slot": setup.slot, "tries": tries, "again_s": RESTS.pause_ms(tries) / 1_000}
            get_logger().warning("slot.rests", **about, code=failure.code, detail=failure.detail)
            return False
        self._resting.pop(setup.slot, None)
        return True

    def _blame(self, job: ports.Job, answer: Answer, failure: Failure, is_job: bool) -> None:
        """Answer a job that met a worker's end; `is_job`: the slot is well, so the job is charged with it."""
        if answer.done():  # it was cancelled
            return
        if is_job:
            key = _key_of(job)
            self._ends[key] += 1
            if self._ends[key] >= ENDS_MAX:
                failure = Failure(code=JOB_QUARANTINED, detail=f"{key}: {failure.detail}")
        answer.set_result(ports.FaultReply(failure=failure))


def _key_of(job: ports.Job) -> str:
    if isinstance(job, ports.JudgeJob):
        return f"judging body {job.body.body_hash()}"
    return f"problem {job.problem.problem_id}, agent {text_hash(job.source)[:12]}"
