"""The jail without namespaces: Landlock, a system-call filter without sockets, rlimits, and a warden that ends it all.

A guest reads the guest root and a few devices, writes one fresh directory that is measured and deleted, and
reaches no socket, no process and no file content of the host. When `run` returns, none of its processes is alive,
daemons included; when the host is killed, its warden ends them. For hosts that forbid namespaces.

Two ways in:
  own-uid    root leases a pair of uids: the guest's, and the warden's, which the guest cannot signal. Any Landlock ABI:
             what an old one lacks (truncate, TCP, device requests, scopes) the filter or the uid covers.
  host-uid   an ordinary user's own uid stays. Needs ABI 6: without scoped signals the guest could kill its host.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.cgroup import Cgroups, open_group
from harness.sandbox.guest_files import (
    GuestRoot,
    guest_command,
    guest_environment,
    library_directories,
    loader,
)
from harness.sandbox.host_loop import Pipes, build_bounds, build_init
from harness.sandbox.port import GuestExit, GuestJob, Host, SandboxLevel
from harness.sandbox.processes import descendants, lease_uid
from harness.sandbox.seccomp import Exposure, build_filter, native_architecture
from harness.sandbox.supervision import Limit, explain_death, look_at_use, supervise
from harness.sandbox.workdir import WorkDirectory, make_work_directory, measure, remove

UidMode = Literal["own-uid", "host-uid"]

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_DIR, MAKE_REG, MAKE_FIFO, MAKE_SYM, REFER, TRUNCATE = 1 << 7, 1 << 8, 1 << 10, 1 << 12, 1 << 13, 1 << 14
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_RIGHTS_UNTIL_ABI = ((1, 13), (2, 14), (3, 15), (5, 16))  # (ABI, how many file rights it knows)
SCOPES_ABI = 6
_LACKING = ((3, "truncate"), (4, "TCP"), (5, "device requests"), (SCOPES_ABI, "scoped signals and sockets"))

_CREATE_RULESET, _QUERY_VERSION = 444, 1
_WARDEN = Path(__file__).with_name("warden.py")
_REAP_S = 10.0
_THREAD_SLACK = 256  # of the user's other programs that may start threads during an episode
_OOM_FIRST = "1000"
_SWEEP = """
import os, signal, sys
guest, own = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([]); os.setresgid(guest, guest, guest); os.setresuid(own, guest, own)
os.kill(-1, signal.SIGKILL)
"""


class Landlock(msgspec.Struct, frozen=True, kw_only=True):
    """How to confine on this host: the kernel's Landlock ABI, whose uid a guest has, and what bounds memory."""

    abi: int
    uid_mode: UidMode
    cgroups: Cgroups | None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """`rights` beneath `path` (Landlock bits)."""

    path: Path
    rights: int


def landlock_abi() -> int:
    """The version the running kernel reports; 0 where Landlock is not built in or not switched on."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_QUERY_VERSION))))


def handled_rights(abi: int) -> int:
    """All file rights that Landlock `abi` knows: what no rule gives is denied."""
    count = max((bits for since, bits in _RIGHTS_UNTIL_ABI if since <= abi), default=0)
    return (1 << count) - 1


def scopes(abi: int) -> int:
    """The scopes that Landlock `abi` knows."""
    return _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= SCOPES_ABI else 0


def lacking(abi: int) -> tuple[str, ...]:
    """What Landlock `abi` cannot restrict, of what this adapter relies on; the filter or an own uid covers it."""
    return tuple(name for since, name in _LACKING if abi < since)


def rules(root: Path, work: Path, abi: int) -> tuple[Rule, ...]:
    """Everything a guest may do with files, masked by what `abi` knows. No device but these, no /proc, no /dev/shm."""
    handled = handled_rights(abi)
    reading = READ_FILE | READ_DIR | EXECUTE
    writing = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE
    writing |= MAKE_DIR | MAKE_REG | MAKE_FIFO | MAKE_SYM | REFER
    given = [
        Rule(path=root, rights=reading),
        # The kernel starts a program through the loader at this fixed place; the libraries come from the guest root.
        Rule(path=Path("/", loader(platform.machine())), rights=READ_FILE | EXECUTE),
        Rule(path=work, rights=writing & handled),
        Rule(path=Path("/dev/null"), rights=READ_FILE | WRITE_FILE),
    ]
    sources = (Path("/dev/zero"), Path("/dev/random"), Path("/dev/urandom"))
    return (*given, *(Rule(path=path, rights=READ_FILE) for path in sources if path.exists()))


class LandlockSandbox:
    """A `Sandbox` at level `landlock`."""

    def __init__(
        self, landlock: Landlock, root: GuestRoot, level: SandboxLevel, *, slots: int, clock: Callable[[], float]
    ) -> None:
        """At most `slots` guests run at once; further runs wait. `clock` gives seconds, monotonic."""
        self.landlock, self._root, self.level = landlock, root, level
        exposure: Exposure = landlock.uid_mode
        self._filter = build_filter(native_architecture(), exposure)
        self._slots = threading.BoundedSemaphore(slots)
        self._clock = clock

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run one agent. Raises ArenaError V2002 when it cannot be confined, or its processes cannot be ended."""
        how, limits = self.landlock, job.limits
        with self._slots, contextlib.ExitStack() as stack:
            uids = None
            if how.uid_mode == "own-uid":
                uids = (stack.enter_context(lease_uid()), stack.enter_context(lease_uid()))
            group = None
            if how.cgroups is not None:
                group = stack.enter_context(
                    open_group(how.cgroups, memory_bytes=limits.memory_bytes, processes=limits.processes)
                )
            try:
                work = make_work_directory(uids[0] if uids else None)
            except OSError as error:
                raise ArenaError("V2002", f"no work directory can be made: {error}") from error
            stack.callback(remove, work.path)
            guest = stack.enter_context(self._start(work, uids, limits))

            def confine() -> bytes:
                for pid in guest.pids():
                    if group is not None:
                        group.add(pid)
                    Path("/proc", str(pid), "oom_score_adj").write_text(_OOM_FIRST)  # before its warden
                is_alone = uids is not None
                bounds = build_bounds(limits, identity=None, is_alone_with_uid=is_alone, is_host_watched=False)
                return bounds + build_init(job)

            def is_over_disk() -> bool:
                # Twice: a file that moves or a process that ends during one look may count twice or not be readable.
                return all(measure(work, guest.pids(), limits.disk_bytes) > limits.disk_bytes for _ in range(2))

            is_over: dict[Limit, Callable[[], bool]] = {
                "resources": guest.has_lost_warden,
                **look_at_use(limits, group, first_pid=guest.process.pid, pids=guest.pids, owner=work.owner),
                "disk": is_over_disk,
            }
            if uids is None:
                is_over["processes"] = lambda: len(guest.pids()) > limits.processes
            ended = supervise(
                guest.pipes, job, host, self._clock, confine=confine, is_over=is_over, end_guest=guest.release
            )
            if ended.end != "died":
                return ended
            return explain_death(ended, guest.wait(), was_out_of_memory=group is not None and group.was_out_of_memory())

    @contextlib.contextmanager
    def _start(self, work: WorkDirectory, uids: tuple[int, int] | None, limits: EpisodeLimits) -> Iterator[_Guest]:
        control_read, control_write = os.pipe()
        environment = guest_environment(self._root.path)
        libraries = (*library_directories(self._root.path), environment["LD_LIBRARY_PATH"])
        environment["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
        command = guest_command(self._root.path)
        order = {
            "control_fd": control_read,
            "uids": uids,
            "scoped": scopes(self.landlock.abi),
            "handled": handled_rights(self.landlock.abi),
            "rules": [(str(r.path), r.rights) for r in rules(self._root.path, work.path, self.landlock.abi)],
            "filter": self._filter.hex(),
            "processes_ceiling": None if uids else _tasks_of_this_user() + limits.processes + _THREAD_SLACK,
            "directory": str(work.path),
            "command": command,
            "environment": {**environment, "HOME": str(work.path), "TMPDIR": str(work.path)},
        }
        try:
            process = subprocess.Popen(
                [command[0], "-s", "-S", "-P", "-B", str(_WARDEN), json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(control_read,),
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(control_write)
            raise ArenaError("V2002", f"the guest's interpreter cannot be started: {error}") from error
        finally:
            os.close(control_read)
        guest = _Guest(process, control_write, uids)
        try:
            yield guest
        finally:
            guest.close()


class _Guest:
    """A started warden with its guest, and what is needed to end them."""

    def __init__(self, process: subprocess.Popen[bytes], control_fd: int, uids: tuple[int, int] | None) -> None:
        self.process, self.pipes = process, Pipes.of(process)
        self._control_fd: int | None = control_fd
        self._control_lock = threading.Lock()
        self._uids = uids

    def pids(self) -> tuple[int, ...]:
        """Every process of the guest: all that descends from the warden, which adopts what detaches."""
        return descendants(self.process.pid)[1:]

    def wait(self) -> int:
        """The status of a guest that ended by itself, or that is ended here because it closed its pipe."""
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self.release()
            return self.process.wait(timeout=_REAP_S)

    def has_lost_warden(self) -> bool:
        """True when the warden itself was killed, by an operator or for memory; `close` then says whose fault it is."""
        return (self.process.poll() or 0) < 0

    def close(self) -> None:
        """End everything and return when it is gone. Raises ArenaError V2002 when the warden did not do it."""
        self.release()
        try:
            status = self.process.wait(timeout=_REAP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.pipes.close()
        if status < 0:
            if self._uids is not None:
                # What a killed warden had adopted has another parent now, and can only be found by a uid of its own.
                command = [sys.executable, "-I", "-S", "-c", _SWEEP, *map(str, self._uids)]
                for _ in range(2):  # the second finds no process: then the first one reached all
                    subprocess.run(command, capture_output=True, check=False, timeout=_REAP_S)
            raise ArenaError("V2002", "the guest's warden was killed; nothing of this run counts")

    def release(self) -> None:
        """Tell the warden to end everything; from whichever thread."""
        with self._control_lock:
            if self._control_fd is not None:
                os.close(self._control_fd)
                self._control_fd = None


def _tasks_of_this_user() -> int:
    """Threads of the host's uid right now: what RLIMIT_NPROC counts before a guest starts."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                count += sum(1 for _ in (entry / "task").iterdir())
        except OSError:
            continue  # it ended
    return count
