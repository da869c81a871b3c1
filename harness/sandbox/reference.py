"""Level `reference-agents-only`: no jail, and therefore only agents that ship with this software.

A source whose sha256 is not on the list given by the caller is never started (V2003). An admitted agent runs
as a plain process with an empty environment, rlimits and the same protocol, so that the demo, the tests and a miner's
first steps work on hosts without namespaces. Nothing that ran here may be raced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable

import msgspec

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.sandbox.guest_files import GuestRoot, guest_command, guest_environment
from harness.sandbox.host_loop import Pipes, build_bounds, build_init
from harness.sandbox.port import GuestExit, GuestJob, Host, SandboxLevel
from harness.sandbox.processes import TreeCpu, counted_bytes, descendants
from harness.sandbox.supervision import Looks, supervise


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
        self._root, self.level, self._admitted = root, level, reference_sha256s
        self._slots = threading.BoundedSemaphore(slots)
        self._clock = clock

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run one shipped agent. Raises ArenaError V2003 for any other source, V2002 when it cannot start."""
        sha256 = text_hash(job.source)
        if sha256 not in self._admitted:
            raise ArenaError("V2003", f"source {sha256[:12]} is not a shipped reference agent")
        with self._slots, tempfile.TemporaryDirectory(prefix="arena-reference-", ignore_cleanup_errors=True) as home:
            try:
                process = subprocess.Popen(
                    guest_command(self._root.path),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**guest_environment(self._root.path), "HOME": home, "TMPDIR": home},
                    cwd=home,
                    start_new_session=True,
                )
            except OSError as error:
                raise ArenaError("V2002", f"the guest's interpreter cannot be started: {error}") from error
            pipes, cpu = Pipes.of(process), TreeCpu(process.pid)
            is_over: Looks = {
                "memory": lambda: counted_bytes(descendants(process.pid)) > job.limits.memory_bytes,
                "cpu": lambda: cpu.read_s() >= job.limits.cpu_time_s,
            }

            def confine() -> bytes:
                bounds = build_bounds(job.limits, identity=None, is_alone_with_uid=False, is_host_watched=True)
                return bounds + build_init(job)

            try:
                ended = supervise(
                    pipes, job, host, self._clock, confine=confine, is_over=is_over, end_guest=process.kill
                )
                if ended.end == "died":
                    process.kill()
                    return msgspec.structs.replace(ended, error=f"exit status {process.wait()}")
                return ended
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                pipes.close()
