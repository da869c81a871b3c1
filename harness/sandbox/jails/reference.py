"""Level `reference-agents-only`: no jail, and therefore only agents that ship with this software.

Promise: a source whose sha256 is not on the list given by the caller is never started (V2003). An admitted agent runs
as a plain process with an empty environment, rlimits and the same protocol, so that the demo, the tests and a miner's
first steps work on hosts without namespaces. Nothing that ran here may be raced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator

import msgspec

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.sandbox.confinement.processes import TreeCpu, counted_bytes, descendants
from harness.sandbox.confinement.watch import JailWatch, Limit
from harness.sandbox.guest_root.environment import guest_command, guest_environment
from harness.sandbox.guest_root.rootfs import GuestRoot
from harness.sandbox.host_loop import GuestConversation, Pipes, Supervision
from harness.sandbox.init import build_init
from harness.sandbox.port import GuestExit, GuestJob, Host, SandboxLevel


class ReferenceSandbox:
    """A `Sandbox` without confinement for known sources."""

    def __init__(
        self,
        root: GuestRoot,
        level: SandboxLevel,
        *,
        reference_sha256s: frozenset[str],
        slots: int,
        clock: Callable[[], float],
    ) -> None:
        """`reference_sha256s` are sha256 of the UTF-8 sources that may run."""
        self._root, self._level, self._admitted = root, level, reference_sha256s
        self._slots = threading.BoundedSemaphore(slots)
        self._clock = clock

    @property
    def level(self) -> SandboxLevel:
        """`reference-agents-only`, which may not race."""
        return self._level

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run one shipped agent. Raises ArenaError V2003 for any other source, V2002 when it cannot start."""
        sha256 = text_hash(job.source)
        if sha256 not in self._admitted:
            raise ArenaError("V2003", f"source {sha256[:12]} is not a shipped reference agent")
        with self._slots, self._start() as process:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            pipes = Pipes(to_guest=process.stdin, from_guest=process.stdout, output=process.stderr)
            cpu = TreeCpu(process.pid)
            is_over: dict[Limit, Callable[[], bool]] = {
                "memory": lambda: counted_bytes(descendants(process.pid)) > job.limits.memory_bytes,
                "cpu": lambda: cpu.read_s() >= job.limits.cpu_time_s,
            }

            def admit() -> bytes:
                watch.start()
                return build_init(job, identity=None, is_alone_with_uid=False, is_host_watched=True)

            with JailWatch(is_over, process.kill, self._clock) as watch:
                supervision = Supervision(on_ready=admit, is_over_memory=lambda: watch.broken() is not None)
                ended = GuestConversation(pipes, job.limits, host, supervision, self._clock).run()
                broken = watch.broken()
            if broken is not None and ended.end in ("memory", "died"):
                return msgspec.structs.replace(ended, end=broken)
            if ended.end == "died":
                process.kill()
                return msgspec.structs.replace(ended, error=f"exit status {process.wait()}")
            return ended

    @contextlib.contextmanager
    def _start(self) -> Iterator[subprocess.Popen[bytes]]:
        directory = tempfile.mkdtemp(prefix="arena-reference-")
        try:
            process = subprocess.Popen(
                guest_command(self._root.path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**guest_environment(self._root.path), "HOME": directory, "TMPDIR": directory},
                cwd=directory,
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise ArenaError("V2002", f"the guest's interpreter cannot be started: {error}") from error
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()
            shutil.rmtree(directory, ignore_errors=True)
