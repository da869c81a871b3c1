"""One guest in one jail, from its start to its end, the same for every level; and the two levels bubblewrap and none.

A level says how a jail is started, looked at and ended (`Jail`); `JailSandbox` runs agents in such jails. Every 100
ms each limit is looked at, whether the host waits, works on a call or writes; a guest that broke one is ended at
once, before its host has finished. Looks take at most half of the watch's time, so a guest that is slow to look at
does not take the host's. If the watch itself fails, that is a fault of ours and is raised to the episode.

bubblewrap gives each run a fresh jail with the read-only guest root, two small tmpfs, three devices and nothing else
of the host: no network, no environment, no capability, no /proc. When `run` returns, no process of the guest is alive;
when the host is killed, the jail dies with it. Three ways in, by what the host is and allows:
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
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import msgspec

from foundation.canonical import text_hash
from foundation.durable_files import coded
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox import port
from harness.sandbox.guest_files import GuestRoot, guest_command, guest_environment
from harness.sandbox.processes import Cgroups, TreeCpu, descendants, held_bytes, lease_uid, open_group, reading_as

Limit = Literal["memory", "cpu", "processes", "disk", "resources"]
Looks = Mapping[Limit, Callable[[], bool]]  # says of each limit whether it is broken right now; looked at in this order

INTERVAL_S = 0.1
REAP_S = 10.0
FILES_AT_MOST = 20_000  # names in a guest's own folders, at every level
_SIGNAL_BASE = 128  # a supervisor exits with this plus the number of the signal that killed the guest
# Which limit a signal of the kernel stands for; SIGKILL stands for several.
_ENDS_BY_SIGNAL: Mapping[int, port.GuestEnd] = {
    signal.SIGKILL: "resources",
    signal.SIGXCPU: "cpu",
    signal.SIGXFSZ: "disk",
}
# Real-time signals but the first and last have no name: a guest may exit with any status it likes.
_SIGNAL_NAMES: Mapping[int, str] = {one.value: one.name for one in signal.Signals}


def start_process(
    command: list[str],
    environment: Mapping[str, str],
    *,
    folder: str = "/",
    descriptors: tuple[int, ...] = (),
    uid: int | None = None,
) -> subprocess.Popen[bytes]:
    """`command` with a pipe for each standard descriptor, in a session of its own. Raises ArenaError V2002."""
    with coded(f"{command[0]} cannot be started", "V2002"):
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=descriptors,
            env=environment,
            cwd=folder,
            start_new_session=True,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )


class Jail:
    """A started guest and what is needed to look at it and to end it: here a process that nothing holds but its limits.
    One agent runs in it, or none."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        limits: EpisodeLimits,
        bounds: bytes,
        held: contextlib.ExitStack,
        group: Cgroups | None = None,
    ) -> None:
        """`bounds` is the runner's first message; `held` gives back uids, group and folders when all is gone."""
        self.process, self.pipes = process, port.Pipes.of(process)
        self.limits, self.group = limits, group
        self.owner: int | None = None  # as whom the host looks at the processes, where only that uid may
        self._bounds, self._held = bounds, held
        self._is_confined = False

    def pids(self) -> tuple[int, ...]:
        """Every process of the guest."""
        return (self.process.pid,)

    def take_hold(self) -> None:
        """Prepare to look at the guest and to end it, once its runner is ready and alone. Raises ArenaError V2002."""

    def kill(self) -> None:
        """End everything in the jail, from whichever thread; `close` waits until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End everything in the jail and give back what it holds. Raises ArenaError V2002 when that cannot be done."""
        self.kill()
        self.process.wait()
        self.pipes.close()
        self._held.close()

    def confine(self) -> None:
        """Take hold of the guest and make its runner bound itself: what waits on is no root and holds no more than an
        agent may. A second time nothing is left to do."""
        if self._is_confined:
            return
        self.take_hold()
        self._is_confined = True
        with contextlib.suppress(BrokenPipeError):  # it ended: reading on tells how
            os.write(self.pipes.to_guest.fileno(), self._bounds)  # far smaller than a pipe's buffer

    def looks(self) -> dict[Limit, Callable[[], bool]]:
        """How memory and CPU time are looked at: by the jail's group, or where there is none by what the host sees."""

        def is_over_memory() -> bool:
            # Two looks must agree: a process that ends or starts another program during one may not be readable.
            with reading_as(self.owner):
                return all(held_bytes(self.pids()) > self.limits.memory_bytes for _ in range(2))

        group = self.group
        read_cpu_s = group.cpu_time_s if group and group.cpu else TreeCpu(self.process.pid).read_s
        return {
            # The kernel may end one process of the group only; the episode ends with it, as it does without a cgroup.
            "memory": group.was_out_of_memory if group else is_over_memory,
            "cpu": lambda: read_cpu_s() >= self.limits.cpu_time_s,
        }

    def wait(self) -> int:
        """The status of a guest that ended by itself, or that is ended here because it closed its pipe."""
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait(timeout=REAP_S)


class JailSandbox:
    """A `Sandbox` that runs each agent in a fresh jail of one level."""

    def __init__(
        self,
        open_jail: Callable[[EpisodeLimits], Jail],
        level: port.SandboxLevel,
        *,
        slots: int,
        ahead: int = 0,
        admitted: frozenset[str] | None = None,
    ) -> None:
        """At most `slots` jails run at once, further runs wait, and at most `ahead` wait for the runs to come.
        `admitted`: the sha256 of the sources that may run (None: all)."""
        self.level, self.open_jail = level, open_jail
        self._admitted, self._slots = admitted, threading.BoundedSemaphore(slots)
        self._lock, self._ahead = threading.Lock(), ahead
        self._waiting: deque[Future[Jail]] = deque()
        self._openers = ThreadPoolExecutor(max(1, ahead), thread_name_prefix="jail-ahead")
        # Jails that wait are closed when nobody holds the sandbox, or when the process ends.
        weakref.finalize(self, _close_all, self._openers, self._waiting)

    def run(self, job: port.GuestJob, host: port.Host) -> port.GuestExit:
        """Run one agent. Raises ArenaError V2002 when the jail cannot start or end, V2001 when the level does not
        admit this source, and what the host's call or the watch raised."""
        if self._admitted is not None and (sha256 := text_hash(job.source)) not in self._admitted:
            raise ArenaError("V2001", f"source {sha256[:12]} is not a shipped reference agent")
        with (
            self._slots,
            contextlib.closing(self.take(job.limits)) as jail,
            contextlib.closing(Watch(jail.looks(), jail.kill)) as watch,
        ):

            def begin() -> bytes:
                jail.confine()
                self.prepare(job.limits)
                watch.start()
                return port.build_init(job)

            conversation = port.GuestConversation(
                jail.pipes, job.limits, host, time.monotonic, on_ready=begin, broken_limit=watch.broken
            )
            ended = conversation.run()
            broken = watch.broken()
            if ended.end != "died":
                return ended
            if broken is not None:
                return msgspec.structs.replace(ended, end=broken)
            status = jail.wait()
            was_out_of_memory = jail.group is not None and jail.group.was_out_of_memory()
            return explain_death(ended, status, was_out_of_memory=was_out_of_memory)

    def take(self, limits: EpisodeLimits) -> Jail:
        """A jail for one job, the caller's to close. Raises as `open_jail` does."""
        while True:
            with self._lock:
                opening = self._waiting.popleft() if self._waiting else None
            if opening is None:
                return self.open_jail(limits)
            if opening.exception() is None:
                jail = opening.result()
                if jail.limits == limits and jail.process.poll() is None:
                    return jail
                jail.close()

    def prepare(self, limits: EpisodeLimits) -> None:
        """Open one in the background, unless as many wait as may."""
        with self._lock, contextlib.suppress(RuntimeError):  # the process is about to end
            if len(self._waiting) < self._ahead:
                self._waiting.append(self._openers.submit(_open_confined, self.open_jail, limits))


def explain_death(ended: port.GuestExit, status: int, *, was_out_of_memory: bool) -> port.GuestExit:
    """`ended`, a guest that died without a last word, with the limit it died of, or with its cause in `error`.

    `status` is the supervisor's exit status: 128 and the number of the signal that killed the guest, or the negative
    number of the one that killed the supervisor itself. Total: the guest chooses its exit status, and none raises.
    """
    number = -status if status < 0 else status - _SIGNAL_BASE
    if was_out_of_memory:
        return msgspec.structs.replace(ended, end="memory")
    if number in _ENDS_BY_SIGNAL:
        return msgspec.structs.replace(ended, end=_ENDS_BY_SIGNAL[number])
    return msgspec.structs.replace(ended, error=_SIGNAL_NAMES.get(number, f"exit status {status}"))


class Watch:
    """Looks at the limits of one guest, until it is closed."""

    def __init__(self, looks: Looks, end_guest: Callable[[], None]) -> None:
        """`end_guest` kills all that may have broken a limit, and is called once, from the watch's thread."""
        self._looks, self._end_guest = looks, end_guest
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jail-watch", daemon=True)
        self._broken: Limit | None = None
        self._fault: Exception | None = None

    def close(self) -> None:
        """From now on nothing is looked at."""
        self._is_done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def start(self) -> None:
        """Begin to look. Call it once, when the guest's processes are known."""
        self._thread.start()

    def broken(self) -> Limit | None:
        """The first limit that was found broken. Raises what kept the watch from looking."""
        if self._fault is not None:
            raise self._fault
        return self._broken

    def _run(self) -> None:
        wait_s = INTERVAL_S
        try:
            while not self._is_done.wait(wait_s):
                before = time.monotonic()
                self._broken = next((limit for limit, is_over in self._looks.items() if is_over()), None)
                if self._broken is not None:  # set before the guest is ended, so that its end finds the reason
                    break
                wait_s = max(INTERVAL_S, time.monotonic() - before)
            else:
                return
        except Exception as fault:  # noqa: BLE001 - handed to the thread that runs the episode, which raises it
            self._fault = fault
        self._end_guest()


def _open_confined(open_jail: Callable[[EpisodeLimits], Jail], limits: EpisodeLimits) -> Jail:
    jail = open_jail(limits)
    try:
        poll = select.poll()  # until the runner says that it is ready, which stays unread
        poll.register(jail.pipes.from_guest, select.POLLIN)
        found = poll.poll(port.START_MS)
        if not any(event & select.POLLIN for _, event in found):
            late = f"no guest was ready after {port.START_MS} ms"
            raise ArenaError("V2002", "a guest ended before it was ready" if found else late)
        jail.confine()
    except BaseException:
        jail.close()
        raise
    return jail


def _close_all(openers: ThreadPoolExecutor, waiting: deque[Future[Jail]]) -> None:
    openers.shutdown(cancel_futures=True)
    for opening in waiting:
        if not opening.cancelled() and opening.exception() is None:
            opening.result().close()


def open_unjailed(root: GuestRoot, limits: EpisodeLimits) -> Jail:
    """A process without a jail, just started with the guest root's interpreter. Raises ArenaError V2002 when it cannot
    be."""
    with contextlib.ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="arena-reference-", ignore_cleanup_errors=True)
        home = stack.enter_context(folder)
        environment = {**guest_environment(root.path), "HOME": home, "TMPDIR": home}
        process = start_process(guest_command(root.path), environment, folder=home)
        bounds = port.build_bounds(limits, identity=None, is_alone_with_uid=False)
        return Jail(process, limits, bounds, stack.pop_all())


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
            bubblewraps_uid = uid if self.entry == "root-userns" else None  # cannot enter a group of root's
            # any other is in the group itself: the guest has as many processes as without it
            in_group = msgspec.structs.replace(limits, processes=limits.processes + (bubblewraps_uid is None))
            group = stack.enter_context(open_group(self.cgroups, in_group))
            filter_read, filter_write = os.pipe()
            # Memory, no pipe: written to without us it would end bubblewrap, for which its first process waits.
            info = os.memfd_create("jail-info")
            stack.callback(os.close, info)
            try:
                os.write(filter_write, self.program)  # a filter is smaller than a pipe's buffer
                os.close(filter_write)
                command = self._command(limits, filter_fd=filter_read, info_fd=info)
                if group is not None and bubblewraps_uid is None:
                    command = group.entering(command)
                descriptors = (filter_read, info)
                process = start_process(command, {}, descriptors=descriptors, uid=bubblewraps_uid)
            finally:
                os.close(filter_read)
            identity = uid if self.entry == "root" else None
            bounds = port.build_bounds(limits, identity=identity, is_alone_with_uid=True)
            return _Jail(info, bubblewraps_uid is None, process, limits, bounds, stack.pop_all(), group)

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

    def __init__(self, info_fd: int, is_in_group: bool, *started: Any) -> None:
        """`info_fd` is where bubblewrap's account of the jail can be read; `is_in_group`: it was started in the group,
        where there is one; the rest is any jail's."""
        super().__init__(*started)
        self._info_fd, self._is_in_group = info_fd, is_in_group
        self._first_pid = 0
        self._pidfd: int | None = None
        self._folders: list[int] = []

    def take_hold(self) -> None:
        """Find the jail's first process, put what was begun outside the group into it, open folders to be counted."""
        self._first_pid = int(json.loads(os.pread(self._info_fd, _INFO_BYTES, 0))["child-pid"])
        self._pidfd = os.pidfd_open(self._first_pid)
        if self.group is not None and not self._is_in_group:
            # Only the runner lives in the jail now and it waits: what is moved here is everything there is.
            for pid in descendants(self._first_pid):
                self.group.add(pid)
        with coded("the jail's folders cannot be watched", "V2002"):
            for name in _WRITABLE:
                path = Path("/proc", str(self._first_pid), "root", name)
                self._folders.append(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
                self._held.callback(os.close, self._folders[-1])

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
                    pidfd = os.pidfd_open(pid)
                    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    _await_end(pidfd)  # its group can't be removed before
        else:
            _await_end(self._pidfd)
            if self.process.returncode is None:
                with contextlib.suppress(OSError):  # somebody else took its end
                    # bubblewrap reaps the jail's first process, then leaves
                    _await_end(os.pidfd_open(self.process.pid))
        self.process.kill()
        self.process.wait()
        if self._pidfd is not None:
            # A jail that ended by itself may have been left unreaped; it is ours when this is a container's pid 1.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._first_pid, os.WNOHANG)
        self.pipes.close()
        self._held.close()


def _await_end(pidfd: int) -> None:
    """Until the process of a descriptor has ended, and close it. `Popen.wait` with a timeout sleeps in between."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(REAP_S * 1000)
    os.close(pidfd)
