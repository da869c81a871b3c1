"""A node's handle on its serving process: started with the loops, started again when it ends, stopped with them.

The node owns the listening sockets: a client that comes while the process starts again waits and is not refused. What
to serve goes over its standard input, which holds a DSN's password and never a hotkey's key; it serves until that pipe
is closed, by whatever end of the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from typing import Literal

import msgspec

from arena.policy import Policy
from arena.store.location import StoreLocation
from foundation.errors import ArenaError, Failure
from foundation.logs import get_logger
from harness.catalogue.server import address_of
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.worker.ports import child_environment
from problems.model import Problem

LINE_BYTES_MAX = 256 << 20


class ServingSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The first line to the process. `reads` and `door` are descriptors of listening sockets that it inherits,
    None where there is nothing to serve; `reads_port` is what the door tells of the public reads, 0: nowhere."""

    location: StoreLocation
    network: str
    netuid: int
    state_dir: str
    policy: Policy
    suite: tuple[Problem, ...]
    catalogue_dir: str
    reads: int | None = None
    reads_port: int = 0
    is_sn15_served: bool
    door: int | None = None
    log_level: Literal["debug", "info", "warning", "error"]


STATES: msgspec.json.Decoder[Failure | None] = msgspec.json.Decoder(Failure | None)  # why it ends; None: it serves
TURN_S = 1.0
STEADY_S = 60.0  # one that served for so long is started again without a growing pause
STOP_S = 10.0
_OF_BODIES = "AWS_"  # where `bodies_url` names a bucket


class Serving:
    """The serving process of one node."""

    def __init__(self, setup: ServingSetup, reads: socket.socket | None, door: socket.socket | None) -> None:
        """`reads` and `door` are the listening sockets that `setup` names, None for what is not served."""
        self._setup = setup
        self._listeners = [each for each in (reads, door) if each is not None]
        self.door_address = address_of(door) if door is not None else ""
        self.door_port = int(door.getsockname()[1]) if door is not None else 0

    async def run(self, drain: StopSignal) -> None:
        """Serve until drained. Raises what no retry can mend."""
        try:
            await run_loop("serving", lambda: self.live(drain), drain, every_s=TURN_S)
        finally:
            for listener in self._listeners:  # a newcomer is refused, and need not wait
                listener.close()

    async def live(self, drain: StopSignal) -> None:
        """One life of the process. Raises ArenaError V2206, or what it says of itself, when it ended by itself."""
        started_s = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "neurons.node.serving"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(kept_prefix=_OF_BODIES),
            pass_fds=[each.fileno() for each in self._listeners],
            start_new_session=True,  # a Ctrl-C at the terminal is the node's to handle
        )
        hearing = asyncio.create_task(self._hear(process, drain))
        draining = asyncio.create_task(drain.wait())
        try:
            await asyncio.wait((hearing, draining), return_when=asyncio.FIRST_COMPLETED)
            if drain.is_set():
                assert process.stdin is not None
                process.stdin.close()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), STOP_S)
                return
            last, status = await hearing, await process.wait()
        finally:
            for task in (hearing, draining):
                task.cancel()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        error = ArenaError("V2206", f"process {process.pid} ended with {status}")
        if last is not None:
            error = ArenaError(last.code, last.detail)
        if not error.entry.is_retryable or time.monotonic() - started_s < STEADY_S:
            raise error
        get_logger().warning("serving process ended", code=error.failure.code, detail=error.failure.detail)

    async def _hear(self, process: asyncio.subprocess.Process, drain: StopSignal) -> Failure | None:
        """Say what to serve, and follow what the process says until it ends; the last word."""
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended, which is heard next
            process.stdin.write(msgspec.json.encode(self._setup) + b"\n")
            await process.stdin.drain()
        last = None
        while line := await process.stdout.readline():
            if (last := STATES.decode(line)) is None:
                drain.went_on("serving")
        return last
