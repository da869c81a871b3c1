"""Memory and process limits of a whole jail through cgroups, and its CPU time: v2, v1, or none.

A group is made below the host process's own group, so limits above still hold, and it is empty and gone when
its context ends; groups left by a killed host are swept at the next start. Where no group can be written,
`find_cgroups` says why and the caller uses a watchdog instead. It never changes a group it did not make.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from harness.limits import EpisodeLimits

_PREFIX = "arena-jail-"
_NO_LIMIT_BYTES = 1 << 60
_SERIALS = itertools.count(1)  # of this process, whichever sandbox asks
_NAME = re.compile(rf"{_PREFIX}(\d+)-\d+")
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


class JailGroup:
    """The group of one jail."""

    def __init__(self, groups: Cgroups) -> None:
        self._groups = groups

    def add(self, pid: int) -> None:
        """Move a process into the group; its later children are born there."""
        for directory in self._groups.directories():
            (directory / "cgroup.procs").write_text(str(pid))

    def was_out_of_memory(self) -> bool:
        """True when the kernel killed a process of the group for memory."""
        text = (self._groups.memory / _MEMORY[self._groups.version][2]).read_text()
        return re.search(r"^oom_kill [1-9]", text, re.MULTILINE) is not None

    @property
    def counts_cpu(self) -> bool:
        """True when `cpu_time_s` can be asked."""
        return self._groups.cpu is not None

    def cpu_time_s(self) -> float:
        """CPU seconds that the group's processes have used, the ended ones included."""
        assert self._groups.cpu is not None, "this group counts no CPU time"
        if self._groups.version == "v1":
            return int((self._groups.cpu / "cpuacct.usage").read_text()) / 1e9
        lines = dict(line.split() for line in (self._groups.cpu / "cpu.stat").read_text().splitlines())
        return int(lines["usage_usec"]) / 1e6


@contextlib.contextmanager
def open_group(cgroups: Cgroups | None, limits: EpisodeLimits) -> Iterator[JailGroup | None]:
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
        yield JailGroup(own)
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
