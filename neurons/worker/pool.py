"""The worker pool: a fixed number of episode workers on this machine, restarted when they die.

`run` answers every job with a reply, Faulted V2005 when its worker died, hung or sent an unknown reply, and V2009 when
the job did that twice; a stuck or killed worker never blocks the others; `stop` leaves no process behind. A slot in
which no worker starts, its jail's self-test included, rests with growing pauses and takes no job meanwhile. An end is
charged to the job only where the slot's next worker started at once, so a sick slot quarantines nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable

import msgspec

from foundation.backoff import Backoff
from foundation.canonical import text_hash
from foundation.codes.names import HOST_FAILED, JOB_QUARANTINED, WORKER_DIED
from foundation.errors import ArenaError, Failure
from harness.sandbox.port import SandboxLevel
from neurons.health.node_file import RestingSlot
from neurons.worker.protocol import (
    LENGTH_BYTES,
    EvaluateJob,
    Faulted,
    Job,
    JudgeJob,
    Ready,
    Reply,
    Request,
    WorkerSetup,
    child_environment,
    decode_reply,
    encode_frame,
    frame_length,
)

RESTS = Backoff(first_ms=1_000, most_ms=300_000)  # of a slot, by failed starts in a row
ENDS_MAX = 2  # workers that a job may end before it is quarantined
_CHARGED_MAX = 10_000  # jobs whose ends are remembered
_START_TIMEOUT_S = 120.0
_KILL_WAIT_S = 10.0
_DETAIL_CHARACTERS = 300
_MODULE = ("-m", "neurons.worker.process")

JobKey = tuple[str, str]  # sha256 of the agent's source and problem id; of a judging "" and the body's hash


class _Worker:
    """One process and its pipe."""

    ready: Ready

    def __init__(self, setup: WorkerSetup, process: asyncio.subprocess.Process) -> None:
        self.setup = setup
        self.process = process

    @classmethod
    async def start(cls, setup: WorkerSetup) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(),
            start_new_session=True,  # a Ctrl-C at the terminal is the supervisor's to handle
        )
        worker = cls(setup, process)
        try:
            reply = await asyncio.wait_for(worker.run(setup), _START_TIMEOUT_S)
            if isinstance(reply, Faulted):
                raise ArenaError(reply.failure.code, reply.failure.detail)
            if not isinstance(reply, Ready):
                raise ArenaError(WORKER_DIED, f"worker {setup.slot} started with {type(reply).__name__}")
        except TimeoutError as error:
            await worker.kill()
            raise ArenaError(WORKER_DIED, f"worker {setup.slot} was not ready in {_START_TIMEOUT_S:.0f} s") from error
        except BaseException:
            await worker.kill()
            raise
        worker.ready = reply
        return worker

    async def run(self, request: Request) -> Reply:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(encode_frame(request))
            await self.process.stdin.drain()
            prefix = await self.process.stdout.readexactly(LENGTH_BYTES)
            return decode_reply(await self.process.stdout.readexactly(frame_length(prefix)))
        except (BrokenPipeError, ConnectionResetError, asyncio.IncompleteReadError) as error:
            raise ArenaError(WORKER_DIED, f"worker {self.setup.slot}, process {self.process.pid}") from error
        except (ValueError, msgspec.DecodeError) as error:
            raise ArenaError(WORKER_DIED, f"worker {self.setup.slot} sent an unknown reply: {error}") from error

    async def kill(self) -> None:
        """End the process, a stopped one too; one that the kernel holds on to is left to it after a while."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), _KILL_WAIT_S)


class WorkerPool:
    """One worker for each set-up; jobs wait for a free one."""

    def __init__(
        self,
        setups: tuple[WorkerSetup, ...],
        deadline_s: float,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        on_rest: Callable[[RestingSlot], None] = lambda slot: None,
    ) -> None:
        """`on_rest` is called for every start that failed."""
        self._setups = {setup.slot: setup for setup in setups}
        self._deadline_s = deadline_s
        self._now_ms, self._on_rest = now_ms, on_rest
        self._free: asyncio.Queue[int] = asyncio.Queue()
        self._ends: Counter[JobKey] = Counter()  # workers that a job ended since it last ended well
        self._workers: dict[int, _Worker] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._resting: dict[int, RestingSlot] = {}
        self._sandbox: SandboxLevel | None = None
        self._is_stopping = False

    async def start(self) -> None:
        """Start every worker. Raises the first worker's own ArenaError when its ports don't open."""
        for slot, setup in self._setups.items():  # one after the other: the first builds the guest root, which all use
            self._workers[slot] = worker = await _Worker.start(setup)
            self._sandbox = self._sandbox or worker.ready.sandbox
            self._free.put_nowait(slot)

    @property
    def sandbox(self) -> SandboxLevel:
        """The jail the workers reached. Raises ArenaError V2001 before `start`."""
        if self._sandbox is None:
            raise ArenaError("V2001", "no worker has started")
        return self._sandbox

    @property
    def size(self) -> int:
        """How many jobs can run at once."""
        return len(self._setups)

    @property
    def resting(self) -> tuple[RestingSlot, ...]:
        """The slots whose last start failed, by number."""
        return tuple(self._resting[slot] for slot in sorted(self._resting))

    async def run(self, job: Job) -> Reply:
        """Run one job on a free worker; `Faulted` replies are returned as they are.

        A worker that dies or overruns the deadline is replaced, and the job answers Faulted V2005, V2009 from the
        second end on, after the first try to start the next worker. Cancelling the call kills the worker, so that a
        lost lease stops its jail at once.
        """
        while (worker := self._workers[slot := await self._free.get()]).process.returncode is not None:
            self._revive(slot)
        failure = Failure(code=WORKER_DIED, detail=f"worker {slot} overran {self._deadline_s:.0f} s")
        key = _key_of(job)
        try:
            reply = await asyncio.wait_for(worker.run(job), self._deadline_s)
        except TimeoutError:
            pass
        except ArenaError as error:
            failure = error.failure
        except BaseException:
            self._revive(slot)
            raise
        else:
            self._ends.pop(key, None)
            self._free.put_nowait(slot)
            return reply
        if await self._revive(slot) and self._charge(key) >= ENDS_MAX:
            about = f"judging body {key[1]}" if isinstance(job, JudgeJob) else f"problem {key[1]}, agent {key[0][:12]}"
            failure = Failure(code=JOB_QUARANTINED, detail=f"{about}: {failure.detail}")
        return Faulted(failure=failure)

    async def stop(self) -> None:
        """Kill every worker; their jails die with them."""
        self._is_stopping = True
        for task in self._starting.values():
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        for slot in list(self._workers):
            await self._drop(slot)

    def _charge(self, key: JobKey) -> int:
        self._ends[key] += 1
        if len(self._ends) > _CHARGED_MAX:
            del self._ends[next(iter(self._ends))]
        return self._ends[key]

    def _revive(self, slot: int) -> asyncio.Future[bool]:
        """End what is left of the slot's worker and start another, in the background, however often that takes; then
        the slot is free. The result, whether the first try was enough, is there after that try."""
        first: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def tried(is_well: bool) -> None:
            if not first.done():
                first.set_result(is_well)

        async def start() -> None:
            tries, since_ms = 0, 0
            while True:
                try:
                    await self._drop(slot)
                    self._workers[slot] = await _Worker.start(self._setups[slot])
                    break
                except Exception as error:  # noqa: BLE001 - whatever it is, the slot rests by name and is tried again
                    tries, since_ms = tries + 1, since_ms or self._now_ms()
                    self._rest(slot, since_ms, tries, error)
                    tried(False)
                    await asyncio.sleep(RESTS.pause_ms(tries) / 1_000)
            self._resting.pop(slot, None)
            self._free.put_nowait(slot)
            tried(True)

        if self._is_stopping:
            tried(False)
        else:
            self._starting[slot] = task = asyncio.create_task(start())
            task.add_done_callback(lambda _: tried(False))
        return first

    def _rest(self, slot: int, since_ms: int, tries: int, error: Exception) -> None:
        if isinstance(error, ArenaError):
            failure = error.failure
        else:
            failure = Failure(code=HOST_FAILED, detail=f"{type(error).__name__}: {error}"[:_DETAIL_CHARACTERS])
        self._resting[slot] = resting = RestingSlot(slot=slot, since_ms=since_ms, tries=tries, failure=failure)
        try:
            self._on_rest(resting)
        except Exception:  # noqa: BLE001 - a listener must not cost the slot
            traceback.print_exc()

    async def _drop(self, slot: int) -> None:
        if slot in self._workers:
            await self._workers[slot].kill()
            del self._workers[slot]


def _key_of(job: Job) -> JobKey:
    if isinstance(job, EvaluateJob):
        return text_hash(job.source), job.problem.problem_id
    return "", job.body.body_hash()
