"""Level `reference-agents-only`: no jail, and therefore only agents that ship with this software.

An admitted agent runs as a plain process with an empty environment, rlimits and the same protocol, so that the demo,
the tests and a miner's first steps work on hosts without namespaces. What ships starts no process and ends when its
host does, at its next call. Nothing that ran here may be raced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile

import msgspec

from harness.limits import EpisodeLimits
from harness.sandbox.guest_files import GuestRoot, guest_command, guest_environment
from harness.sandbox.host_loop import build_bounds
from harness.sandbox.jail import Jail, Started, start_process


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """How to start an agent without a jail: with the guest root's interpreter."""

    root: GuestRoot

    def open(self, limits: EpisodeLimits) -> Jail:
        """A process that has just been started. Raises ArenaError V2002 when it cannot be."""
        with contextlib.ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="arena-reference-", ignore_cleanup_errors=True)
            home = stack.enter_context(folder)
            environment = {**guest_environment(self.root.path), "HOME": home, "TMPDIR": home}
            started = Started(
                process=start_process(guest_command(self.root.path), environment, folder=home),
                limits=limits,
                bounds=build_bounds(limits, identity=None, is_alone_with_uid=False),
                group=None,
                held=stack.pop_all(),
            )
            return _Process(started)


class _Process(Jail):
    def pids(self) -> tuple[int, ...]:
        """The agent's."""
        return (self.process.pid,)

    def take_hold(self) -> None:
        """Nothing but the process itself is held."""

    def kill(self) -> None:
        """Kill the process and what it started in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it, and delete its folder."""
        self.kill()
        self.process.wait()
        self.pipes.close()
        self._held.close()
