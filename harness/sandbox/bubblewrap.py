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
import re
import select
import signal
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.cgroup import Cgroups, JailGroup, open_group
from harness.sandbox.guest_files import GuestRoot, guest_command, guest_environment
from harness.sandbox.host_loop import START_MS, Pipes, build_bounds, build_init
from harness.sandbox.port import GuestExit, GuestJob, Host, SandboxLevel
from harness.sandbox.processes import descendants, lease_uid, started_ticks
from harness.sandbox.supervision import Looks, explain_death, look_at_use, supervise
from harness.sandbox.workdir import FILES_AT_MOST

EntryMode = Literal["root", "root-userns", "user"]

_SHM_BYTES = 1 << 20
# Not /dev/zero: mapped shared, it is memory without a file, which outlives every mapping of it.
_DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")
_WRITABLE = ("tmp", "dev/shm")
_INFO_BYTES = 1 << 12
_REAP_S = 10.0
_HOST = "ARENA_JAIL_OF"


class Bubblewrap(msgspec.Struct, frozen=True, kw_only=True):
    """How to enter a jail on this host: the binary, the way in, and what bounds memory."""

    binary: Path
    entry: EntryMode
    cgroups: Cgroups | None


def sweep_jails() -> None:
    """End the jails of hosts that are gone. bubblewrap dies with its host; the first process of a jail waits until
    bubblewrap has set it up, and where both were killed before that it waits for ever."""
    shape = re.compile(rb"([0-9]{1,10}):[0-9]{1,20}:" + re.escape(_namespace().encode()))
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0", 4) if entry.name.isdigit() else []
        except OSError:
            continue  # it ended
        # anybody's process may say anything here, a guest's too
        named = shape.fullmatch(words[3]) if words[1:3] == [b"--setenv", _HOST.encode()] and len(words) > 3 else None
        if named is not None and host_mark(int(named[1])).encode() != words[3]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry.name), signal.SIGKILL)


def host_mark(pid: int) -> str:
    """What names a process while the machine runs: its number, when it started, and in which namespace it has that."""
    return f"{pid}:{started_ticks(pid)}:{_namespace()}"


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


class BubblewrapSandbox:
    """A `Sandbox` at level `bubblewrap`."""

    def __init__(
        self,
        bubblewrap: Bubblewrap,
        root: GuestRoot,
        seccomp_filter: bytes,
        level: SandboxLevel,
        *,
        slots: int,
        clock: Callable[[], float],
        ahead: int = 0,
    ) -> None:
        """At most `slots` jails run at once, further runs wait, and at most `ahead` wait for the runs to come. `clock`
        gives seconds, monotonic."""
        self.bubblewrap, self.level = bubblewrap, level
        self._slots = threading.BoundedSemaphore(slots)
        self._jails = JailsAhead(_JailOpener(bubblewrap, root, seccomp_filter).open, ahead)
        self._clock = clock

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run one agent in a fresh jail. Raises ArenaError V2002 when the jail cannot start."""
        limits = job.limits
        with self._slots, contextlib.closing(self._jails.take(limits)) as jail:

            def confine() -> bytes:
                jail.confine()
                self._jails.prepare(limits)
                return build_init(job)

            is_over: Looks = {
                **look_at_use(limits, jail.group, first_pid=jail.process.pid, pids=jail.guest_pids),
                "disk": lambda: jail.file_count() > FILES_AT_MOST,
            }
            ended = supervise(jail.pipes, job, host, self._clock, confine=confine, is_over=is_over, end_guest=jail.kill)
            if ended.end != "died":
                return ended
            was_out_of_memory = jail.group is not None and jail.group.was_out_of_memory()
            return explain_death(ended, jail.wait(), was_out_of_memory=was_out_of_memory)


class _JailOpener:
    """Starts jails, each with a uid and a group of its own where the host has them."""

    def __init__(self, bubblewrap: Bubblewrap, root: GuestRoot, seccomp_filter: bytes) -> None:
        self.bubblewrap, self._root, self._filter = bubblewrap, root, seccomp_filter

    def open(self, limits: EpisodeLimits) -> _Jail:
        """A jail that has just been started. Raises ArenaError V2002 when it cannot be."""
        how = self.bubblewrap
        with contextlib.ExitStack() as stack:
            uid = None if how.entry == "user" else stack.enter_context(lease_uid())
            group = None
            if how.cgroups is not None:
                group = stack.enter_context(
                    open_group(how.cgroups, memory_bytes=limits.memory_bytes, processes=limits.processes)
                )
            process, info_fd = self._start(uid, limits)
            identity = uid if how.entry == "root" else None
            bounds = build_bounds(limits, identity=identity, is_alone_with_uid=True, is_host_watched=False)
            return _Jail(process, info_fd, bounds, group, stack.pop_all())

    def _start(self, uid: int | None, limits: EpisodeLimits) -> tuple[subprocess.Popen[bytes], int]:
        """bubblewrap, and a descriptor from which its account of the jail can be read."""
        filter_read, filter_write = os.pipe()
        info_read, info_write = os.pipe()
        try:
            os.write(filter_write, self._filter)  # a filter is smaller than a pipe's buffer
            os.close(filter_write)
            is_dropped = self.bubblewrap.entry == "root-userns"
            process = subprocess.Popen(
                self._command(limits, filter_fd=filter_read, info_fd=info_write),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(filter_read, info_write),
                env={},
                cwd="/",
                start_new_session=True,
                user=uid if is_dropped else None,
                group=uid if is_dropped else None,
                extra_groups=[] if is_dropped else None,
            )
        except OSError as error:
            os.close(info_read)
            raise ArenaError("V2002", f"bubblewrap cannot be started: {error}") from error
        finally:
            os.close(filter_read)
            os.close(info_write)
        return process, info_read

    def _command(self, limits: EpisodeLimits, *, filter_fd: int, info_fd: int) -> list[str]:
        # The host's name is for `sweep_jails`: --clearenv takes it back before the guest is started.
        command = [str(self.bubblewrap.binary), "--setenv", _HOST, host_mark(os.getpid())]
        command += ["--die-with-parent", "--new-session", "--clearenv"]
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        command += ["--hostname", "guest", "--cap-drop", "ALL"]
        if self.bubblewrap.entry == "root":
            command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]  # the runner gives them up with uid 0
        else:
            command += ["--unshare-user", "--disable-userns"]
        for name, value in guest_environment().items():
            command += ["--setenv", name, value]
        # No /proc: it would show the host's paths and counters, and the memory of the jail's own first process.
        command += ["--ro-bind", str(self._root.path), "/", "--size", str(_SHM_BYTES), "--tmpfs", "/dev"]
        for device in _DEVICES:
            command += ["--dev-bind", device, device]
        command += ["--perms", "1777", "--size", str(limits.disk_bytes), "--tmpfs", "/tmp"]
        command += ["--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"]
        command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
        command += ["--seccomp", str(filter_fd), "--info-fd", str(info_fd)]
        return [*command, "--", *guest_command()]


class _Jail:
    """A started jail and what is needed to end it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        info_fd: int,
        bounds: bytes,
        group: JailGroup | None,
        held: contextlib.ExitStack,
    ) -> None:
        """`bounds` is the runner's first message; `held` gives back uid and group."""
        self.process, self.pipes, self.group = process, Pipes.of(process), group
        self._info_fd, self._bounds, self._held = info_fd, bounds, held
        self._first_pid = 0
        self._pidfd: int | None = None
        self._folders: list[int] = []

    def await_runner(self) -> None:
        """Wait until the runner says that it is ready, and leave it unread. Raises ArenaError V2002."""
        poll = select.poll()
        poll.register(self.pipes.from_guest, select.POLLIN)
        if not any(event & select.POLLIN for _, event in poll.poll(START_MS)):
            raise ArenaError("V2002", f"no guest was ready after {START_MS} ms")

    def confine(self) -> None:
        """Take hold of the jail, once its runner is ready, and make that bound itself: what waits on is no root and
        holds no more than an agent may. At a second time nothing is left to do."""
        if self._pidfd is not None:
            return
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
        except OSError as error:
            raise ArenaError("V2002", f"the jail's folders cannot be watched: {error}") from error
        with contextlib.suppress(BrokenPipeError):  # it ended: reading on tells how
            os.write(self.pipes.to_guest.fileno(), self._bounds)  # far smaller than a pipe's buffer

    def is_alive(self) -> bool:
        """False once it has ended by itself."""
        return self.process.poll() is None

    def file_count(self) -> int:
        """Names in the folders held. A name without content takes the kernel's memory and no space."""
        found = [os.fstatvfs(folder) for folder in self._folders]
        return sum(facts.f_files - facts.f_ffree for facts in found)

    def guest_pids(self) -> tuple[int, ...]:
        """Every process of the guest: all that descends from the jail's first one."""
        return descendants(self._first_pid)[1:]

    def kill(self) -> None:
        """Kill everything in the jail, from whichever thread; `close` gives back what was opened."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self) -> int:
        """The exit status of a jail that ended by itself, or that is ended here because its guest closed the pipe."""
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def close(self) -> None:
        """Kill everything in the jail and return when it is gone: the kernel reports the end of a pid namespace's first
        process only after all the others."""
        self.kill()
        if self._pidfd is None:  # its first process may wait for bubblewrap itself, and would outlive it
            for pid in reversed(descendants(self.process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._pidfd is not None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            poll.poll(_REAP_S * 1000)
            os.close(self._pidfd)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=_REAP_S)  # bubblewrap reaps the jail's first process, then leaves
        self.process.kill()
        self.process.wait()
        if self._pidfd is not None:
            # A jail that ended by itself may have been left unreaped; it is ours when this is a container's pid 1.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._first_pid, os.WNOHANG)
        for descriptor in (self._info_fd, *self._folders):
            os.close(descriptor)
        self.pipes.close()
        self._held.close()


class JailsAhead:
    """At most `at_most` jails that wait; with 0, each is opened when it is asked for. Thread-safe."""

    def __init__(self, open_jail: Callable[[EpisodeLimits], _Jail], at_most: int) -> None:
        """`open_jail` starts a jail and returns at once. It must not hold this object: jails that wait are closed when
        nobody does, or when the process ends."""
        self._open, self._at_most = open_jail, at_most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[EpisodeLimits, Future[_Jail]]] = deque()
        self._openers = ThreadPoolExecutor(max(1, at_most), thread_name_prefix="jail-ahead")
        weakref.finalize(self, _close, self._openers, self._waiting)

    def take(self, limits: EpisodeLimits) -> _Jail:
        """A jail for one job, the caller's to close. Raises as `open_jail` does."""
        while (found := self._next()) is not None:
            opened_with, opening = found
            if opening.exception() is not None:
                continue
            jail = opening.result()
            if opened_with == limits and jail.is_alive():
                return jail
            jail.close()
        return self._open(limits)

    def prepare(self, limits: EpisodeLimits) -> None:
        """Open one in the background, unless as many wait as may."""
        with self._lock, contextlib.suppress(RuntimeError):  # the process is about to end
            if len(self._waiting) < self._at_most:
                self._waiting.append((limits, self._openers.submit(_open_confined, self._open, limits)))

    def _next(self) -> tuple[EpisodeLimits, Future[_Jail]] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None


def _open_confined(open_jail: Callable[[EpisodeLimits], _Jail], limits: EpisodeLimits) -> _Jail:
    jail = open_jail(limits)
    try:
        jail.await_runner()
        jail.confine()
    except BaseException:
        jail.close()
        raise
    return jail


def _close(openers: ThreadPoolExecutor, waiting: deque[tuple[EpisodeLimits, Future[_Jail]]]) -> None:
    openers.shutdown(cancel_futures=True)
    for _, opening in waiting:
        if not opening.cancelled() and opening.exception() is None:
            opening.result().close()
