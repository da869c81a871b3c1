"""The default jail: bubblewrap, a system-call filter, rlimits, a cgroup or a watchdog, and an own uid under root.

Each run is a fresh jail with the read-only guest root, two small tmpfs, three devices and nothing else of the
host: no network, no environment, no capability, no /proc. When `run` returns, no process of the guest is alive; when
the host is killed, the jail dies with it. Its levels, and what stays possible: `harness/sandbox/README.md`.

Three ways in, by what the host is and allows:
  root           bubblewrap starts as root and makes the namespaces; the runner takes its uid before the agent is
                 loaded. Needs no user namespaces, and no path that other uids can traverse.
  root-userns    root gives up its uid first; bubblewrap uses a user namespace. For root without CAP_SYS_ADMIN.
  user           the same as an ordinary user, whose own uid the guest keeps: the namespaces alone protect its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.guest_files import GuestRoot, guest_command, guest_environment
from harness.sandbox.jail import FILES_AT_MOST, REAP_S, Jail, Limit, start_process
from harness.sandbox.port import build_bounds
from harness.sandbox.processes import Cgroups, descendants, lease_uid, open_group

EntryMode = Literal["root", "root-userns", "user"]

_SHM_BYTES = 1 << 20
# Not /dev/zero: mapped shared, it is memory without a file, which outlives every mapping of it.
_DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")
_WRITABLE = ("tmp", "dev/shm")
_INFO_BYTES = 1 << 12


class Bubblewrap(msgspec.Struct, frozen=True, kw_only=True):
    """How to enter a jail on this host: the binary, the way in, what bounds memory, what a guest sees and may call."""

    binary: Path
    entry: EntryMode
    cgroups: Cgroups | None
    root: GuestRoot
    program: bytes

    def open(self, limits: EpisodeLimits) -> Jail:
        """A jail that has just been started, with a uid and a group of its own where the host has them. Raises
        ArenaError V2002 when it cannot be."""
        with contextlib.ExitStack() as stack:
            uid = None if self.entry == "user" else stack.enter_context(lease_uid())
            group = stack.enter_context(open_group(self.cgroups, limits))
            filter_read, filter_write = os.pipe()
            info_read, info_write = os.pipe()
            stack.callback(os.close, info_read)
            try:
                os.write(filter_write, self.program)  # a filter is smaller than a pipe's buffer
                os.close(filter_write)
                process = start_process(
                    self._command(limits, filter_fd=filter_read, info_fd=info_write),
                    {},
                    descriptors=(filter_read, info_write),
                    uid=uid if self.entry == "root-userns" else None,
                )
            finally:
                os.close(filter_read)
                os.close(info_write)
            identity = uid if self.entry == "root" else None
            bounds = build_bounds(limits, identity=identity, is_alone_with_uid=True)
            return _Jail(info_read, process, limits, bounds, stack.pop_all(), group)

    def _command(self, limits: EpisodeLimits, *, filter_fd: int, info_fd: int) -> list[str]:
        command = [str(self.binary), "--die-with-parent", "--new-session", "--clearenv"]
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        command += ["--hostname", "guest", "--cap-drop", "ALL"]
        if self.entry == "root":
            command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]  # the runner gives them up with uid 0
        else:
            command += ["--unshare-user", "--disable-userns"]
        for name, value in guest_environment().items():
            command += ["--setenv", name, value]
        # No /proc: it would show the host's paths and counters, and the memory of the jail's own first process.
        command += ["--ro-bind", str(self.root.path), "/", "--size", str(_SHM_BYTES), "--tmpfs", "/dev"]
        for device in _DEVICES:
            command += ["--dev-bind", device, device]
        command += ["--perms", "1777", "--size", str(limits.disk_bytes), "--tmpfs", "/tmp"]
        command += ["--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"]
        command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
        command += ["--seccomp", str(filter_fd), "--info-fd", str(info_fd)]
        return [*command, "--", *guest_command()]


class _Jail(Jail):
    """A jail with namespaces: the first process in it is all that must be killed."""

    def __init__(self, info_fd: int, *started: Any) -> None:
        """`info_fd` is where bubblewrap's account of the jail can be read; the rest is any jail's."""
        super().__init__(*started)
        self._info_fd = info_fd
        self._first_pid = 0
        self._pidfd: int | None = None
        self._folders: list[int] = []

    def take_hold(self) -> None:
        """Find the jail's first process, put all of it into the group, open the folders to be counted."""
        self._first_pid = int(json.loads(os.read(self._info_fd, _INFO_BYTES))["child-pid"])
        self._pidfd = os.pidfd_open(self._first_pid)
        if self.group is not None:
            # Only the runner lives in the jail now and it waits: what is moved here is everything there is.
            for pid in descendants(self._first_pid):
                self.group.add(pid)
        try:
            for name in _WRITABLE:
                path = Path("/proc", str(self._first_pid), "root", name)
                self._folders.append(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
                self._held.callback(os.close, self._folders[-1])
        except OSError as error:
            raise ArenaError("V2002", f"the jail's folders cannot be watched: {error}") from error

    def looks(self) -> dict[Limit, Callable[[], bool]]:
        """Memory and CPU time, and the names in its folders: one without content takes memory and no space."""

        def has_too_many_files() -> bool:
            found = [os.fstatvfs(folder) for folder in self._folders]
            return sum(facts.f_files - facts.f_ffree for facts in found) > FILES_AT_MOST

        return {**super().looks(), "disk": has_too_many_files}

    def pids(self) -> tuple[int, ...]:
        """All that descends from the jail's first process."""
        return descendants(self._first_pid)[1:]

    def kill(self) -> None:
        """Kill the first process, and the kernel the others."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Kill everything and return when it is gone: the kernel reports the end of a pid namespace's first process
        only after all the others."""
        self.kill()
        if self._pidfd is None:  # its first process may wait for bubblewrap itself, and would outlive it
            for pid in reversed(descendants(self.process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            poll.poll(REAP_S * 1000)
            os.close(self._pidfd)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=REAP_S)  # bubblewrap reaps the jail's first process, then leaves
        self.process.kill()
        self.process.wait()
        if self._pidfd is not None:
            # A jail that ended by itself may have been left unreaped; it is ours when this is a container's pid 1.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._first_pid, os.WNOHANG)
        self.pipes.close()
        self._held.close()
