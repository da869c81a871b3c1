"""The worker pool: a fixed number of episode workers, restarted when they die.

Promise: `run` answers every job with a reply, Faulted V2005 when its worker died, hung or sent what is no reply; a
stuck or killed worker never blocks the others; `stop` leaves no process behind. Processes are ended by their own ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import msgspec

from foundation.errors import ArenaError, Failure
from harness.sandbox.port import SandboxLevel
from neurons.worker.protocol import (
    LENGTH_BYTES,
    EvaluateJob,
    Faulted,
    JudgeJob,
    Ready,
    Reply,
    Request,
    WorkerSetup,
    decode_reply,
    encode_frame,
    frame_length,
)

_ROOT = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 120.0
_KILL_WAIT_S = 10.0


class _Worker:
    """One process and its pipe."""

    sandbox: SandboxLevel

    def __init__(self, setup: WorkerSetup, process: asyncio.subprocess.Process) -> None:
        self.setup = setup
        self.process = process

    @classmethod
    async def start(cls, setup: WorkerSetup) -> _Worker:
        # The environment without keys: a worker gets its endpoints in the set-up frame.
        secret = ("KEY", "TOKEN", "SECRET", "PASSWORD", "DSN")
        plain = {name: value for name, value in os.environ.items() if not any(part in name.upper() for part in secret)}
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "neurons.worker.process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**plain, "PYTHONPATH": path},
            start_new_session=True,  # a Ctrl-C at the terminal is the supervisor's to handle
        )
        worker = cls(setup, process)
        try:
            await worker._send(setup)
            reply = await asyncio.wait_for(worker._receive(), _START_TIMEOUT_S)
        except TimeoutError as error:
            await worker.kill()
            raise ArenaError("V2005", f"worker {setup.slot} was not ready in {_START_TIMEOUT_S:.0f} s") from error
        except BaseException:
            await worker.kill()
            raise
        if isinstance(reply, Faulted):
            await worker.kill()
            raise ArenaError(reply.failure.code, reply.failure.detail)
        if not isinstance(reply, Ready):
            await worker.kill()
            raise ArenaError("V2005", f"worker {setup.slot} started with {type(reply).__name__}")
        worker.sandbox = reply.sandbox
        return worker

    async def run(self, job: EvaluateJob | JudgeJob) -> Reply:
        await self._send(job)
        return await self._receive()

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
            raise ArenaError("V2005", f"worker {self.setup.slot} sent what is no reply: {error}") from error

    def _died(self) -> ArenaError:
        return ArenaError("V2005", f"worker {self.setup.slot}, process {self.process.pid}")


class WorkerPool:
    """`size` workers; jobs wait for a free one."""

    def __init__(self, setups: tuple[WorkerSetup, ...], deadline_s: float) -> None:
        self._setups = setups
        self._deadline_s = deadline_s
        self._free: asyncio.Queue[int] = asyncio.Queue()
        self._workers: dict[int, _Worker] = {}

    async def start(self) -> None:
        """Start every worker. Raises the first worker's own ArenaError when its ports don't open."""
        for setup in self._setups:  # one after the other: the first builds the guest root, the others find it
            self._workers[setup.slot] = await _Worker.start(setup)
            self._free.put_nowait(setup.slot)

    @property
    def sandbox(self) -> SandboxLevel:
        """The jail the workers reached. Raises ArenaError V2001 before `start`."""
        for worker in self._workers.values():
            return worker.sandbox
        raise ArenaError("V2001", "no worker has started")

    @property
    def size(self) -> int:
        """How many jobs can run at once."""
        return len(self._setups)

    async def run(self, job: EvaluateJob | JudgeJob) -> Reply:
        """Run one job on a free worker; `Faulted` replies are returned as they are.

        A worker that dies or overruns the deadline is replaced, and the job answers Faulted V2005. Cancelling the call
        kills the worker, so that a lost lease stops its jail at once.
        """
        slot = await self._free.get()
        try:
            worker = self._workers.get(slot)
            if worker is None or worker.process.returncode is not None:
                worker = self._workers[slot] = await _Worker.start(self._setups[slot])
            return await asyncio.wait_for(worker.run(job), self._deadline_s)
        except TimeoutError:
            await self._drop(slot)
            detail = f"worker {slot} overran {self._deadline_s:.0f} s"
            return Faulted(job_id=job.job_id, failure=Failure(code="V2005", detail=detail))
        except ArenaError as error:
            await self._drop(slot)
            return Faulted(job_id=job.job_id, failure=error.failure)
        except asyncio.CancelledError:
            await self._drop(slot)
            raise
        finally:
            self._free.put_nowait(slot)

    async def stop(self) -> None:
        """Kill every worker; their jails die with them."""
        for slot in list(self._workers):
            await self._drop(slot)

    async def _drop(self, slot: int) -> None:
        worker = self._workers.pop(slot, None)
        if worker is not None:
            await worker.kill()
