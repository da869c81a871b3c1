"""The worker pool: a fixed number of episode workers, here and on other machines, restarted when they die.

`run` answers every job with a reply, Faulted V2005 when its worker died, hung or sent what is no reply, and V2009 when
the job did that in two places; a stuck or killed worker never blocks the others; `stop` leaves no process behind.
Processes are ended by their own ids. A slot in which no worker can be started, its jail's self-test included, rests,
with growing pauses, and takes no job meanwhile: its jobs go to others.
On another machine an agent runs and nothing is scored: answers, scores, verdicts and journals stay here. A worker
there that meets no model endpoint is replaced, and the next one is ready only where each model has one that answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping

import msgspec

from foundation.canonical import text_hash
from foundation.codes.names import (
    HOST_FAILED,
    HOST_UNLIKE,
    JOB_QUARANTINED,
    MODEL_FAILED,
    NO_ENDPOINT,
    WORKER_DIED,
)
from foundation.errors import ArenaError, Failure
from harness.inference.journal import open_journal
from harness.sandbox.port import SandboxLevel
from neurons.node.child_environment import child_environment
from neurons.worker.likeness import differences
from neurons.worker.pipe_journal import answer_call
from neurons.worker.protocol import (
    LENGTH_BYTES,
    EpisodeJob,
    Evaluated,
    EvaluateJob,
    Faulted,
    Job,
    JournalCall,
    JudgeJob,
    Ran,
    Ready,
    Reply,
    Request,
    SettleJob,
    WorkerSetup,
    decode_reply,
    encode_frame,
    frame_length,
)
from neurons.worker.quarantine import JobKey, Place, Quarantine
from neurons.worker.slots import RESTS, FreeSlots, RestingSlot

_START_TIMEOUT_S = 120.0
_KILL_WAIT_S = 10.0
_UNREACHED = frozenset({NO_ENDPOINT, MODEL_FAILED})  # what a machine's own way to an endpoint can be the reason of
_DETAIL_CHARACTERS = 300
_MODULE = ("-m", "neurons.worker.process")


class WorkerHost(msgspec.Struct, frozen=True, kw_only=True):
    """Another machine: `launch` is what runs a command there (`ssh host --`), `python` the interpreter of its
    installation."""

    name: str
    launch: tuple[str, ...]
    python: str


class _Worker:
    """One process and its pipe."""

    ready: Ready

    def __init__(self, setup: WorkerSetup, process: asyncio.subprocess.Process) -> None:
        self.setup = setup
        self.process = process

    @classmethod
    async def start(cls, setup: WorkerSetup, host: WorkerHost | None = None) -> _Worker:
        command = (sys.executable, *_MODULE) if host is None else (*host.launch, host.python, *_MODULE)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=child_environment(),
                start_new_session=True,  # a Ctrl-C at the terminal is the supervisor's to handle
            )
        except OSError as error:
            raise ArenaError(WORKER_DIED, f"{command[0]} cannot be started: {error.strerror}") from error
        worker = cls(setup, process)
        try:
            await worker._send(setup)
            reply = await asyncio.wait_for(worker._receive(), _START_TIMEOUT_S)
        except TimeoutError as error:
            await worker.kill()
            raise ArenaError(WORKER_DIED, f"worker {setup.slot} was not ready in {_START_TIMEOUT_S:.0f} s") from error
        except BaseException:
            await worker.kill()
            raise
        if isinstance(reply, Faulted):
            await worker.kill()
            raise ArenaError(reply.failure.code, reply.failure.detail)
        if not isinstance(reply, Ready):
            await worker.kill()
            raise ArenaError(WORKER_DIED, f"worker {setup.slot} started with {type(reply).__name__}")
        worker.ready = reply
        return worker

    async def run(self, job: Job) -> Reply:
        await self._send(job)
        return await self._receive()

    async def run_away(self, job: EvaluateJob) -> Reply:
        """Run the agent's half of a job on another machine; its journal is asked for here."""
        request = EpisodeJob(
            job_id=job.job_id,
            source=job.source,
            problem=job.problem.without_answers(),
            is_journaled=bool(job.journal),
            is_last=job.is_last,
        )
        with open_journal(job.journal) as journal:
            await self._send(request)
            while isinstance(reply := await self._receive(), JournalCall):
                await self._send(answer_call(journal, reply))
        return reply

    async def kill(self) -> None:
        """End the process, a stopped one too; one that the kernel holds on to is left to it after a while."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), _KILL_WAIT_S)

    async def _send(self, request: Request) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(encode_frame(request))
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._died() from error

    async def _receive(self) -> Reply:
        assert self.process.stdout is not None
        try:
            prefix = await self.process.stdout.readexactly(LENGTH_BYTES)
            body = await self.process.stdout.readexactly(frame_length(prefix))
            return decode_reply(body)
        except asyncio.IncompleteReadError as error:
            raise self._died() from error
        except (ValueError, msgspec.DecodeError) as error:
            raise ArenaError(WORKER_DIED, f"worker {self.setup.slot} sent what is no reply: {error}") from error

    def _died(self) -> ArenaError:
        return ArenaError(WORKER_DIED, f"worker {self.setup.slot}, process {self.process.pid}")


class WorkerPool:
    """One worker for each set-up; jobs wait for a free one."""

    def __init__(
        self,
        setups: tuple[WorkerSetup, ...],
        deadline_s: float,
        hosts: Mapping[int, WorkerHost] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        told: Callable[[RestingSlot], None] = lambda slot: None,
    ) -> None:
        """`hosts` by slot: on which other machine a set-up's worker runs; at least one has to be on this one. `told`
        hears of every start that failed."""
        self._setups = {setup.slot: setup for setup in setups}
        self._deadline_s = deadline_s
        self._hosts = dict(hosts or {})
        self._now_ms, self._told = now_ms, told
        self._free = FreeSlots(self._hosts)
        self._quarantine = Quarantine()
        self._workers: dict[int, _Worker] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._resting: dict[int, RestingSlot] = {}
        self._home: Ready | None = None  # what the first worker of this machine said
        self._is_stopping = False

    async def start(self) -> None:
        """Start every worker of this machine, and begin to start the others. Raises the first worker's own ArenaError
        when its ports don't open."""
        for slot, setup in self._setups.items():  # one after the other: the first builds the guest root, which all use
            if slot not in self._hosts:
                self._workers[slot] = worker = await _Worker.start(setup)
                self._home = self._home or worker.ready
                self._free.give(slot)
        for slot in self._hosts:
            self._revive(slot)

    @property
    def sandbox(self) -> SandboxLevel:
        """The jail the workers reached. Raises ArenaError V2001 before `start`."""
        if self._home is None:
            raise ArenaError("V2001", "no worker has started")
        return self._home.sandbox

    @property
    def size(self) -> int:
        """How many jobs can run at once."""
        return len(self._setups)

    @property
    def resting(self) -> tuple[RestingSlot, ...]:
        """The slots whose last start failed, by number."""
        return tuple(self._resting[slot] for slot in sorted(self._resting))

    async def run(self, job: EvaluateJob | JudgeJob) -> Reply:
        """Run one job on a free worker; `Faulted` replies are returned as they are.

        A worker that dies or overruns the deadline is replaced, and the job answers Faulted V2005; V2009 the second
        time, in another place, where each slot's next worker started at once. Cancelling the call kills the worker, so
        that a lost lease stops its jail at once.
        """
        who = (text_hash(job.source), job.problem.problem_id) if isinstance(job, EvaluateJob) else ("", job.job_id)
        slot, worker = await self._take(is_home=not isinstance(job, EvaluateJob))
        if slot not in self._hosts:
            return await self._serve(slot, worker, job, who)
        assert isinstance(job, EvaluateJob)
        ran = await self._serve(slot, worker, job, who)
        if not isinstance(ran, Ran):
            return ran
        settling = SettleJob(
            job_id=job.job_id,
            ran=ran.ran,
            source_sha256=text_hash(job.source),
            problem=job.problem,
            titles=job.titles,
            unjudged=job.unjudged,
        )
        reply = await self._serve(*await self._take(is_home=True), settling, who)
        return msgspec.structs.replace(reply, usage=ran.usage) if isinstance(reply, Evaluated | Faulted) else reply

    async def stop(self) -> None:
        """Kill every worker; their jails die with them."""
        self._is_stopping = True
        for task in self._starting.values():
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        for slot in list(self._workers):
            await self._drop(slot)

    async def _take(self, *, is_home: bool) -> tuple[int, _Worker]:
        while True:
            slot = await self._free.take(is_home=is_home)
            worker = self._workers[slot]
            if worker.process.returncode is None:
                return slot, worker
            self._revive(slot)

    async def _serve(self, slot: int, worker: _Worker, job: Job, who: JobKey) -> Reply:
        """Run a job on the worker of a slot that was taken, and give the slot back once it has a living one. A job that
        cost the slot its worker is answered after the first try to start the next."""
        failure = Failure(code=WORKER_DIED, detail=f"worker {slot} overran {self._deadline_s:.0f} s")
        try:
            running = worker.run_away(job) if slot in self._hosts and isinstance(job, EvaluateJob) else worker.run(job)
            reply = await asyncio.wait_for(running, self._deadline_s)
        except TimeoutError:
            pass
        except ArenaError as error:
            failure = error.failure
        except BaseException:
            self._revive(slot)
            raise
        else:
            if not isinstance(reply, Ran):  # what an episode elsewhere found is still to be settled here
                self._quarantine.clear(who)
            if slot in self._hosts and isinstance(reply, Faulted) and reply.failure.code in _UNREACHED:
                self._revive(slot)  # the next worker looks for itself, before it is ready
            else:
                self._free.give(slot)
            return reply
        is_well = await self._revive(slot)
        if failure.code == WORKER_DIED and is_well and self._quarantine.charge(who, *self._place_of(slot, job)):
            about = f"judging body {who[1]}" if isinstance(job, JudgeJob) else f"problem {who[1]}, agent {who[0][:12]}"
            failure = Failure(code=JOB_QUARANTINED, detail=f"{about}: {failure.detail}")
        return Faulted(job_id=job.job_id, failure=failure)

    def _place_of(self, slot: int, job: Job) -> tuple[Place, int]:
        """Where a slot is, and in how many places that do not rest the job may run: all slots of another machine are
        one, since what ends one of them (a lost connection) ends the next, too."""
        may_be = set(self._setups) - (set() if isinstance(job, EvaluateJob) else set(self._hosts))
        places = {one: self._hosts[one].name if one in self._hosts else one for one in self._setups}
        return places[slot], len({places[one] for one in may_be if one not in self._resting})

    def _revive(self, slot: int) -> asyncio.Future[bool]:
        """End what is left of the slot's worker and start another, in the background, however often that takes; then
        the slot is free. The result, whether the first try was enough, is there after that try."""
        first: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def told_first(is_well: bool) -> None:
            if not first.done():
                first.set_result(is_well)

        async def start() -> None:
            tries, since_ms = 0, 0
            while True:
                try:
                    await self._drop(slot)
                    self._workers[slot] = await self._started(slot)
                    break
                except Exception as error:  # noqa: BLE001 - whatever it is, the slot rests by name and is tried again
                    tries, since_ms = tries + 1, since_ms or self._now_ms()
                    self._rest(slot, since_ms, tries, error)
                    told_first(False)
                    await asyncio.sleep(RESTS.pause_ms(tries) / 1_000)
            self._resting.pop(slot, None)
            self._free.give(slot)
            told_first(True)

        if self._is_stopping:
            told_first(False)
        else:
            self._starting[slot] = task = asyncio.create_task(start())
            task.add_done_callback(lambda _: told_first(False))
        return first

    def _rest(self, slot: int, since_ms: int, tries: int, error: Exception) -> None:
        if isinstance(error, ArenaError):
            failure = error.failure
        else:
            failure = Failure(code=HOST_FAILED, detail=f"{type(error).__name__}: {error}"[:_DETAIL_CHARACTERS])
        host = self._hosts[slot].name if slot in self._hosts else ""
        resting = RestingSlot(slot=slot, host=host, since_ms=since_ms, tries=tries, failure=failure)
        self._resting[slot] = resting
        try:
            self._told(resting)
        except Exception:  # noqa: BLE001 - whoever listens must not cost the slot
            traceback.print_exc()

    async def _started(self, slot: int) -> _Worker:
        """A worker in the slot, alike those of this machine. Raises ArenaError V2005, V2008 or what it found."""
        worker = await _Worker.start(self._setups[slot], self._hosts.get(slot))
        host = self._hosts.get(slot)
        if host and self._home and (other := differences(worker.ready, self._home)):
            await worker.kill()
            raise ArenaError(HOST_UNLIKE, f"{host.name}: {other}")
        return worker

    async def _drop(self, slot: int) -> None:
        if slot in self._workers:
            await self._workers[slot].kill()
            del self._workers[slot]


async def greet(setup: WorkerSetup, host: WorkerHost | None = None) -> Ready:
    """Start one worker, here or on `host`, and end it: what it says of itself. Raises ArenaError V2005 or its own."""
    worker = await _Worker.start(setup, host)
    await worker.kill()
    return worker.ready
