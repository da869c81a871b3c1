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
import re
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from foundation.durable_files import coded
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.guest_files import GuestRoot, guest_command, guest_environment, library_directories, loader
from harness.sandbox.jail import FILES_AT_MOST, REAP_S, Jail, Limit, start_process
from harness.sandbox.port import build_bounds
from harness.sandbox.processes import (
    UNMEASURABLE,
    Cgroups,
    descendants,
    lease_uid,
    open_files,
    open_group,
    read_face,
    reading_as,
)
from harness.sandbox.seccomp import build_filter, native_architecture

UidMode = Literal["own-uid", "host-uid"]

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_DIR, MAKE_REG, MAKE_FIFO, MAKE_SYM, REFER, TRUNCATE = 1 << 7, 1 << 8, 1 << 10, 1 << 12, 1 << 13, 1 << 14
_SCOPES = 1 | 2  # abstract sockets, signals
_RIGHTS_UNTIL_ABI = ((1, 13), (2, 14), (3, 15), (5, 16))  # (ABI, how many file rights it knows)
SCOPES_ABI = 6

_CREATE_RULESET, _QUERY_VERSION = 444, 1
_WARDEN = Path(__file__).with_name("warden.py")
_THREAD_SLACK = 256  # of the user's other programs that may start threads during an episode
_OOM_FIRST = "1000"
_SWEEP = """
import os, signal, sys
guest, own = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([]); os.setresgid(guest, guest, guest); os.setresuid(own, guest, own)
os.kill(-1, signal.SIGKILL)
"""


class Landlock(msgspec.Struct, frozen=True, kw_only=True):
    """How to confine on this host: the kernel's Landlock ABI, whose uid a guest has, what bounds memory, and what a
    guest sees."""

    abi: int
    uid_mode: UidMode
    cgroups: Cgroups | None
    root: GuestRoot

    def open(self, limits: EpisodeLimits) -> Jail:
        """A guest that has just been started. Raises ArenaError V2002 when it cannot be confined."""
        with contextlib.ExitStack() as stack:
            uids = None
            if self.uid_mode == "own-uid":
                uids = (stack.enter_context(lease_uid()), stack.enter_context(lease_uid()))
            group = stack.enter_context(open_group(self.cgroups, limits))
            with coded("no work directory can be made", "V2002"):
                work = make_work_directory(uids[0] if uids else None)
            stack.callback(remove, work)
            process, control_fd = self._start(work, uids, limits)
            bounds = build_bounds(limits, identity=None, is_alone_with_uid=uids is not None)
            return _Guest(control_fd, uids, work, process, limits, bounds, stack.pop_all(), group)

    def _start(
        self, work: Path, uids: tuple[int, int] | None, limits: EpisodeLimits
    ) -> tuple[subprocess.Popen[bytes], int]:
        """The warden, and a descriptor whose closing makes it end everything. Raises ArenaError V2002."""
        environment = guest_environment(self.root.path)
        libraries = (*library_directories(self.root.path), environment["LD_LIBRARY_PATH"])
        environment["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
        command = guest_command(self.root.path)
        control_read, control_write = os.pipe()
        order = {
            "control_fd": control_read,
            "uids": uids,
            "scoped": _SCOPES if self.abi >= SCOPES_ABI else 0,
            "handled": handled_rights(self.abi),
            "rules": rules(self.root.path, work, self.abi),
            "filter": build_filter(native_architecture(), self.uid_mode).hex(),
            "processes_ceiling": None if uids else _tasks_of_this_user() + limits.processes + _THREAD_SLACK,
            "directory": str(work),
            "command": command,
            "environment": {**environment, "HOME": str(work), "TMPDIR": str(work)},
        }
        warden = [command[0], "-s", "-S", "-P", "-B", str(_WARDEN), json.dumps(order)]
        try:
            return start_process(warden, environment, descriptors=(control_read,)), control_write
        except ArenaError:
            os.close(control_write)
            raise
        finally:
            os.close(control_read)


def landlock_abi() -> int:
    """The version the running kernel reports; 0 where Landlock is not built in or not switched on."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_QUERY_VERSION))))


def handled_rights(abi: int) -> int:
    """All file rights that Landlock `abi` knows: what no rule gives is denied."""
    count = max((bits for since, bits in _RIGHTS_UNTIL_ABI if since <= abi), default=0)
    return (1 << count) - 1


def rules(root: Path, work: Path, abi: int) -> tuple[tuple[str, int], ...]:
    """Everything a guest may do with files: paths and the rights beneath each, masked by what `abi` knows. No device
    but these, no /proc, no /dev/shm."""
    reading = READ_FILE | READ_DIR | EXECUTE
    writing = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE
    writing |= MAKE_DIR | MAKE_REG | MAKE_FIFO | MAKE_SYM | REFER
    sources = (path for path in ("/dev/zero", "/dev/random", "/dev/urandom") if Path(path).exists())
    return (
        (str(root), reading),
        # The kernel starts a program through the loader at this fixed place; the libraries come from the guest root.
        (f"/{loader(platform.machine())}", READ_FILE | EXECUTE),
        (str(work), writing & handled_rights(abi)),
        ("/dev/null", READ_FILE | WRITE_FILE),
        *((path, READ_FILE) for path in sources),
    )


class _Guest(Jail):
    """A started warden with its guest, which ends when the control pipe closes."""

    def __init__(self, control_fd: int, uids: tuple[int, int] | None, work: Path, *started: Any) -> None:
        super().__init__(*started)
        self.owner = uids[0] if uids else None
        self._control_fd: int | None = control_fd
        self._control_lock = threading.Lock()
        self._uids, self._work = uids, work

    def pids(self) -> tuple[int, ...]:
        """All that descends from the warden, which adopts what detaches."""
        return descendants(self.process.pid)[1:]

    def take_hold(self) -> None:
        """Put the guest into the group, and before its warden for the kernel when memory runs out."""
        for pid in self.pids():
            if self.group is not None:
                self.group.add(pid)
            Path("/proc", str(pid), "oom_score_adj").write_text(_OOM_FIRST)

    def looks(self) -> dict[Limit, Callable[[], bool]]:
        """The warden first: one that was killed, by an operator or for memory, ends the run; `close` says whose fault
        it is. Then memory, CPU time and disk, and processes where the uid has others too."""

        def is_over_disk() -> bool:
            # Twice: a file that moves or a process that ends during one look may count twice or not be readable.
            limit = self.limits.disk_bytes
            return all(measure(self._work, self.owner, self.pids(), limit) > limit for _ in range(2))

        found: dict[Limit, Callable[[], bool]] = {
            "resources": lambda: (self.process.poll() or 0) < 0,
            **super().looks(),
            "disk": is_over_disk,
        }
        if self._uids is None:
            found["processes"] = lambda: len(self.pids()) > self.limits.processes
        return found

    def kill(self) -> None:
        """Tell the warden to end everything."""
        with self._control_lock:
            if self._control_fd is not None:
                os.close(self._control_fd)
                self._control_fd = None

    def close(self) -> None:
        """End everything and return when it is gone. Raises ArenaError V2002 when the warden did not do it."""
        self.kill()
        with self._held:
            try:
                status = self.process.wait(timeout=REAP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                status = self.process.wait()
            self.pipes.close()
            if status < 0 and self._uids is not None:
                # What a killed warden had adopted has another parent now, and can only be found by a uid of its own.
                command = [sys.executable, "-I", "-S", "-c", _SWEEP, *map(str, self._uids)]
                for _ in range(2):  # the second finds no process: then the first one reached all
                    subprocess.run(command, capture_output=True, check=False, timeout=REAP_S)
        if status < 0:
            raise ArenaError("V2002", "the guest's warden was killed; nothing of this run counts")


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


_PREFIX = "arena-work-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-\w+")
_BLOCK_BYTES = 512
_DEPTH_AT_MOST = 64


def make_work_directory(owner: int | None) -> Path:
    """A fresh directory, 0700, for temporary files, given to uid `owner` (None: it stays ours). Raises OSError."""
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    if owner is not None:
        os.chown(path, owner, owner)
    return path


def sweep_work_directories() -> None:
    """Remove directories of ours whose host process is gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        match = _NAME.fullmatch(path.name)
        is_dead = match is not None and not Path("/proc", match[1]).exists()
        if is_dead and not path.is_symlink() and os.access(path, os.R_OK | os.W_OK | os.X_OK):
            remove(path)


def measure(work: Path, owner: int | None, pids: tuple[int, ...], file_limit_bytes: int) -> int:
    """Bytes on the disk that the guest with uid `owner` (None: ours) holds, at least; `pids` are all its processes.

    A deleted file that is only mapped is in no descriptor table; it counts as `file_limit_bytes`, the most one file may
    have (RLIMIT_FSIZE). What cannot be looked at counts as `UNMEASURABLE`.
    """
    held: dict[int, int] = {}  # by inode
    mapped: set[int] = set()
    device = work.stat().st_dev
    try:
        with reading_as(owner):
            total = _listed_bytes(work)
            for pid in pids:
                held |= read_face(pid, lambda face: _deleted_open_files(face, device)) or {}
                mapped.update(read_face(pid, lambda face: _deleted_mapped_files(face, work)) or ())
    except PermissionError:
        return UNMEASURABLE
    return total + sum(held.values()) + file_limit_bytes * len(mapped - held.keys())


def remove(path: Path) -> None:
    """Delete the directory `path` and everything in it. Nobody may be changing it any more. Raises OSError."""
    # rm follows no link and has no recursion to exhaust; a directory that a guest closed to everybody is opened first
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if path.exists():
            subprocess.run([*command, "--", path], capture_output=True, check=False)
    if path.exists():
        raise OSError(f"{path} cannot be removed")


def _listed_bytes(path: Path) -> int:
    total = entries = 0
    waiting = [(str(path), 0)]
    while waiting:
        directory, depth = waiting.pop()
        try:
            with os.scandir(directory) as found:
                for entry in found:
                    entries += 1
                    if entries > FILES_AT_MOST or depth > _DEPTH_AT_MOST:
                        return UNMEASURABLE
                    with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                        facts = entry.stat(follow_symlinks=False)
                        total += facts.st_blocks * _BLOCK_BYTES
                        if stat.S_ISDIR(facts.st_mode):
                            waiting.append((entry.path, depth + 1))
        except FileNotFoundError:
            continue  # the next measurement sees what is left
        except PermissionError:
            raise
        except OSError:  # a path that is too long
            return UNMEASURABLE
    return total


def _deleted_open_files(face: Path, device: int) -> dict[int, int]:
    """inode -> bytes of files without a name on a device that a process has open."""
    found: dict[int, int] = {}
    for descriptor in open_files(face):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it was closed
            facts = descriptor.stat()
            if (facts.st_nlink, facts.st_dev) == (0, device) and stat.S_ISREG(facts.st_mode):
                found[facts.st_ino] = facts.st_blocks * _BLOCK_BYTES
    return found


def _deleted_mapped_files(face: Path, work: Path) -> set[int]:
    """Inodes of files without a name, once in the directory, that a process has mapped."""
    lines = (face / "maps").read_text(errors="replace").splitlines()
    fields = [line.split(None, 5) for line in lines if line.endswith(" (deleted)")]
    return {int(field[4]) for field in fields if field[-1].startswith(f"{work}/")}
