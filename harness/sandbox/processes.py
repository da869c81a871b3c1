"""The processes of a jail as the host sees and bounds them: who they are, what they hold, their uid and their cgroup.

What is seen is read from /proc. A jail's processes are the descendants of its first process: a daemon that detaches is
adopted by the jail's own pid 1, so it stays in the tree. A cgroup (v2 or v1) is made below the host process's own, so
limits above still hold, and is empty and gone when its context ends; groups left by a killed host are swept at the next
start. Where none can be written, `find_cgroups` says why. It never changes a group it did not make.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from foundation.durable_files import coded, try_lock
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_COUNTED = ("VmRSS:", "VmSwap:", "VmPTE:")
_PIPE_BYTES = 1 << 16  # a pipe as it is made: the filter refuses a larger one; an event poll on all files takes less
_MAPPING_BYTES = 512  # the kernel's notes on one mapping, with its share of trees
_MAPPINGS_AT_MOST = 8_192
UNMEASURABLE = 1 << 62
_Found = TypeVar("_Found")

# Unassigned in systemd's table of uid ranges, and below 65536, so that it exists in small containers too.
FIRST_UID = 60_600
LAST_UID = 61_183
_LOCKS = Path("/run/agent-arena/uids")


def descendants(pid: int) -> tuple[int, ...]:
    """`pid` and every process below it, parents first; empty when it is gone."""
    if not Path("/proc", str(pid)).exists():
        return ()
    children = _children_listed if Path("/proc/thread-self/children").exists() else _children_by_scan()
    family = [pid]
    for member in family:
        family.extend(children(member))
    return tuple(family)


def held_bytes(pids: tuple[int, ...]) -> int:
    """Memory that `pids` hold together, at least.

    Beside what the kernel counts of each, where shared pages count once for each process: what pipes, socket pairs and
    event polls may keep in the kernel, and the kernel's own notes on each mapping. A process that hides its descriptors
    or mappings, or has more mappings than any program needs, counts as `UNMEASURABLE`.
    """
    total = sum(next(filter(None, map(_shown_memory, _faces(pid))), 0) for pid in pids)
    try:
        total += _MAPPING_BYTES * sum(read_face(pid, _mappings) or 0 for pid in pids)
        descriptors = [name for pid in pids for name in read_face(pid, open_files) or ()]
    except PermissionError:
        return UNMEASURABLE
    buffers: dict[str, int] = {}  # what the objects behind descriptors may hold; a shared one counts once
    for name in descriptors:
        try:
            target = str(name.readlink())
        except PermissionError:
            target = f"socket:{name}"
        except OSError:
            continue  # it was closed
        if target.startswith("socket:"):
            buffers[target] = socket_bytes()
        elif target.startswith(("pipe:", "anon_inode:")):
            buffers[target if target.startswith("pipe:") else str(name)] = _PIPE_BYTES
    return total + sum(buffers.values())


class TreeCpu:
    """CPU time of a process tree from samples, for hosts without a cgroup that counts it.

    A lower bound: of a process that ends between two samples and that nobody waits for, the last part is not seen.
    """

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._living: dict[tuple[int, int], int] = {}  # (pid, start time) -> ticks at the last sample
        self._gone = 0  # ticks of those that have ended

    def read_s(self) -> float:
        """CPU seconds of the tree, from a fresh sample."""
        living, inherited = {}, 0
        for pid in descendants(self._root_pid):
            fields = _stat(pid)
            if fields:
                own, of_children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
                living[pid, int(fields[19])] = own
                inherited += own + of_children
        self._gone += sum(ticks for process, ticks in self._living.items() if process not in living)
        self._living = living
        return max(self._gone + sum(living.values()), inherited) / _TICKS_PER_S


@functools.cache
def socket_bytes() -> int:
    """The most that one end of a socket pair may hold: the sender's buffer, which one more message may pass."""
    return 2 * int(Path("/proc/sys/net/core/wmem_default").read_text())


@contextmanager
def reading_as(uid: int | None) -> Iterator[None]:
    """This thread looks at files and processes as `uid` (None: as itself). What that uid owns is open to it, without a
    capability that root may lack in a container, and nothing that a guest puts in the way is looked at with root's
    rights."""
    if uid is None:
        yield
        return
    libc = ctypes.CDLL(None)
    try:
        libc.setfsgid(uid)
        libc.setfsuid(uid)
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())


def read_face(pid: int, read: Callable[[Path], _Found]) -> _Found | None:
    """`read` where the kernel shows `pid` alive, all of whose threads have the same files and mappings; None when it
    has ended. Raises PermissionError where it hides."""
    for face in _faces(pid):
        try:
            if _shown_memory(face) is not None:
                return read(face)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            if _shown_memory(face) is not None:  # else it is about to end
                raise
    return None


def open_files(face: Path) -> list[Path]:
    """The descriptors that a face shows."""
    return list((face / "fd").iterdir())


def _faces(pid: int) -> Iterator[Path]:
    """Where the kernel shows `pid`: under its own number, then under each thread's. When the first thread of a process
    has ended, its own number shows an empty process that the others still are."""
    process = Path("/proc", str(pid))
    yield process
    try:
        yield from (process / "task").iterdir()
    except OSError:
        return  # it ended


def _shown_memory(face: Path) -> int | None:
    """Bytes that one face shows: resident, swapped out and page tables; None for one that is dead or dying."""
    try:
        lines = (face / "status").read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) for line in lines if line.startswith(_COUNTED)]
    return 1024 * sum(sizes) if sizes else None


def _mappings(face: Path) -> int:
    """Lines of its memory map; more than a program needs are not read to the end."""
    count = 0
    with (face / "maps").open("rb", buffering=0) as lines:
        while chunk := lines.read(1 << 16):
            count += chunk.count(b"\n")
            if count > _MAPPINGS_AT_MOST:
                return UNMEASURABLE // _MAPPING_BYTES
    return count


def _children_listed(pid: int) -> list[int]:
    """Children as the kernel lists them for each thread of the parent."""
    found: list[int] = []
    try:
        for task in Path("/proc", str(pid), "task").iterdir():
            found.extend(map(int, (task / "children").read_bytes().split()))
    except OSError:
        return found  # it ended meanwhile
    return found


def _children_by_scan() -> Callable[[int], list[int]]:
    """The same from one pass over all processes, for kernels without the list."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
    return lambda pid: children[pid]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, the state first; empty when the process is gone."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@contextmanager
def lease_uid(locks: Path = _LOCKS) -> Iterator[int]:
    """A uid that no other jail on this host has while the context lasts. Raises ArenaError V2002 when all are taken."""
    with coded(f"uid leases cannot be kept in {locks}", "V2002"):
        locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    for uid in range(FIRST_UID, LAST_UID + 1):
        descriptor = os.open(locks / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(descriptor):
                yield uid
                return
        finally:
            os.close(descriptor)
    raise ArenaError("V2002", f"all uids from {FIRST_UID} to {LAST_UID} are in use")


_PREFIX = "arena-jail-"
_NO_LIMIT_BYTES = 1 << 60
_SERIALS = itertools.count(1)  # of this process, whichever sandbox asks
_NAME = re.compile(rf"{_PREFIX}(\d+)-\d+")
# Puts itself into each group that is named before `--`, and becomes the command behind it.
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit; shift; done; shift; exec "$@"'
# The memory controller's files: what may be taken, with swap, and what was killed for it.
_MEMORY = {
    "v1": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"),
    "v2": ("memory.max", "memory.swap.max", "memory.events"),
}


class Cgroups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of this host's process, or of a jail below them: one directory per controller for v1, the same one for
    all for v2. `cpu` only counts."""

    version: Literal["v1", "v2"]
    memory: Path
    pids: Path
    cpu: Path | None = None

    def directories(self) -> tuple[Path, ...]:
        """Each once."""
        return tuple(dict.fromkeys(path for path in (self.memory, self.pids, self.cpu) if path is not None))

    def memory_limit_bytes(self) -> int | None:
        """The memory that the group allows; None where none is set."""
        try:
            value = (self.memory / _MEMORY[self.version][0]).read_text().strip()
        except OSError:
            return None
        # v1 writes "no limit" as the largest number of pages
        return int(value) if value.isdigit() and int(value) < _NO_LIMIT_BYTES else None

    def entering(self, command: list[str]) -> list[str]:
        """`command`, begun in the group, and so is everything it starts. To move a process that runs, the kernel waits
        some 10 ms in which nothing on the host can start; v1, but not v2, spares one that moves itself."""
        entry = "tasks" if self.version == "v1" else "cgroup.procs"
        return ["/bin/sh", "-c", _ENTER, "sh", *(str(path / entry) for path in self.directories()), "--", *command]

    def add(self, pid: int) -> None:
        """Move a process into the group; its later children are born there."""
        for directory in self.directories():
            (directory / "cgroup.procs").write_bytes(b"%d" % pid)

    def was_out_of_memory(self) -> bool:
        """True when the kernel killed a process of the group for memory."""
        text = (self.memory / _MEMORY[self.version][2]).read_text()
        return re.search(r"^oom_kill [1-9]", text, re.MULTILINE) is not None

    def cpu_time_s(self) -> float:
        """CPU seconds that the group's processes have used, the ended ones included; where `cpu` is counted."""
        assert self.cpu is not None, "this group counts no CPU time"
        if self.version == "v1":
            return int((self.cpu / "cpuacct.usage").read_text()) / 1e9
        lines = dict(line.split() for line in (self.cpu / "cpu.stat").read_text().splitlines())
        return int(lines["usage_usec"]) / 1e6


@contextlib.contextmanager
def open_group(cgroups: Cgroups | None, limits: EpisodeLimits) -> Iterator[Cgroups | None]:
    """A fresh group with its limits set; None where there are no groups."""
    if cgroups is None:
        yield None
        return
    name = f"{_PREFIX}{os.getpid()}-{next(_SERIALS)}"
    cpu = None if cgroups.cpu is None else cgroups.cpu / name
    own = Cgroups(version=cgroups.version, memory=cgroups.memory / name, pids=cgroups.pids / name, cpu=cpu)
    for directory in own.directories():
        directory.mkdir()
    try:
        limit, with_swap, _ = _MEMORY[own.version]
        (own.memory / limit).write_text(str(limits.memory_bytes))
        if (own.memory / with_swap).exists():  # v2 counts swap apart
            (own.memory / with_swap).write_text("0" if own.version == "v2" else str(limits.memory_bytes))
        (own.pids / "pids.max").write_text(str(limits.processes))
        yield own
    finally:
        for directory in own.directories():
            with contextlib.suppress(OSError):  # busy for a moment more: swept at the next start
                directory.rmdir()


def find_cgroups() -> Cgroups | str:
    """Where groups can be made, with those of dead hosts swept; or the reason why not, in words."""
    found = own_groups()
    if found is None:
        return "no memory and pids controllers are mounted"
    if found.version == "v2":
        enabled = ""
        with contextlib.suppress(OSError):
            enabled = (found.memory / "cgroup.subtree_control").read_text()
        if not {"memory", "pids"} <= set(enabled.split()):
            return f"memory and pids are not delegated below {found.memory}"
    for directory in (found.memory, found.pids):
        if not os.access(directory, os.W_OK):
            return f"{directory} is not writable"
    if found.cpu is not None and not os.access(found.cpu, os.W_OK):
        found = msgspec.structs.replace(found, cpu=None)
    sweep_groups(found)
    return found


def sweep_groups(cgroups: Cgroups) -> None:
    """Remove empty groups whose host process is gone."""
    for parent in cgroups.directories():
        for directory in parent.glob(f"{_PREFIX}*"):
            match = _NAME.fullmatch(directory.name)
            if match and not Path("/proc", match[1]).exists():
                with contextlib.suppress(OSError):
                    directory.rmdir()


def own_groups(proc: Path = Path("/proc/self")) -> Cgroups | None:
    """The groups of the process that `proc` shows; None when a controller is not mounted, or nothing can be read."""
    try:
        membership, mounts = (proc / "cgroup").read_text(), (proc / "mountinfo").read_text()
    except OSError:
        return None
    paths = {}  # controller ("" for the unified hierarchy) -> this process's path in it
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    directories = {}
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        named = {""} if kind == "cgroup2" else set(options.split(",")) if kind == "cgroup" else set()
        for controller in named & {"", "memory", "pids", "cpuacct"} & paths.keys():
            # a container mounts its own part of a hierarchy
            inside = paths[controller].removeprefix(root) if root != "/" else paths[controller]
            directories[controller] = Path(point) / inside.lstrip("/")
    if "memory" in directories and "pids" in directories:
        cpu = directories.get("cpuacct")
        return Cgroups(version="v1", memory=directories["memory"], pids=directories["pids"], cpu=cpu)
    whole = directories.get("")
    return None if whole is None else Cgroups(version="v2", memory=whole, pids=whole, cpu=whole)
