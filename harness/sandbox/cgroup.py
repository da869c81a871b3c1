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

_PREFIX = "arena-jail-"
_NO_LIMIT_BYTES = 1 << 60
_SERIALS = itertools.count(1)  # of this process, whichever sandbox asks
_NAME = re.compile(rf"{_PREFIX}(\d+)-\d+")


class Cgroups(msgspec.Struct, frozen=True, kw_only=True):
    """Where groups can be made: one directory per controller for v1, the same one for all for v2. `cpu` only counts."""

    version: Literal["v1", "v2"]
    memory: Path
    pids: Path
    cpu: Path | None = None


class JailGroup:
    """The group of one jail."""

    def __init__(self, version: Literal["v1", "v2"], directories: tuple[Path, ...], cpu: Path | None = None) -> None:
        """`directories` has that of the memory controller first; `cpu` is the one that counts CPU time."""
        self._version = version
        self._directories = directories
        self._cpu = cpu

    def add(self, pid: int) -> None:
        """Move a process into the group; its later children are born there."""
        for directory in self._directories:
            (directory / "cgroup.procs").write_text(str(pid))

    def was_out_of_memory(self) -> bool:
        """True when the kernel killed a process of the group for memory."""
        name = "memory.events" if self._version == "v2" else "memory.oom_control"
        for line in (self._directories[0] / name).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value) > 0
        return False

    @property
    def counts_cpu(self) -> bool:
        """True when `cpu_time_s` can be asked."""
        return self._cpu is not None

    def cpu_time_s(self) -> float:
        """CPU seconds that the group's processes have used, the ended ones included."""
        assert self._cpu is not None, "this group counts no CPU time"
        if self._version == "v1":
            return int((self._cpu / "cpuacct.usage").read_text()) / 1e9
        lines = dict(line.split() for line in (self._cpu / "cpu.stat").read_text().splitlines())
        return int(lines["usage_usec"]) / 1e6


@contextlib.contextmanager
def open_group(cgroups: Cgroups, *, memory_bytes: int, processes: int) -> Iterator[JailGroup]:
    """A fresh group with its limits set."""
    name = f"{_PREFIX}{os.getpid()}-{next(_SERIALS)}"
    limited = tuple(dict.fromkeys((cgroups.memory / name, cgroups.pids / name)))
    cpu = None if cgroups.cpu is None else cgroups.cpu / name
    directories = limited if cpu is None else tuple(dict.fromkeys((*limited, cpu)))
    for directory in directories:
        directory.mkdir()
    try:
        if cgroups.version == "v2":
            _write(directories[0] / "memory.max", memory_bytes)
            _write(directories[0] / "memory.swap.max", 0, is_optional=True)
        else:
            _write(directories[0] / "memory.limit_in_bytes", memory_bytes)
            _write(directories[0] / "memory.memsw.limit_in_bytes", memory_bytes, is_optional=True)
        _write(limited[-1] / "pids.max", processes)
        yield JailGroup(cgroups.version, directories, cpu)
    finally:
        for directory in directories:
            with contextlib.suppress(OSError):  # busy for a moment more: swept at the next start
                directory.rmdir()


def find_cgroups(membership: str, mounts: str) -> Cgroups | str:
    """Where groups can be made, or the reason why not, in words.

    `membership` is the text of /proc/self/cgroup, `mounts` that of /proc/self/mountinfo.
    """
    found = locate(membership, mounts)
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
        return msgspec.structs.replace(found, cpu=None)
    return found


def memory_limit_bytes(membership: str, mounts: str) -> int | None:
    """The memory that this process's own group allows, by the texts of `find_cgroups`; None where none is set."""
    found = locate(membership, mounts)
    if found is None:
        return None
    name = "memory.max" if found.version == "v2" else "memory.limit_in_bytes"
    try:
        value = (found.memory / name).read_text().strip()
    except OSError:
        return None
    # v1 writes "no limit" as the largest number of pages
    return int(value) if value.isdigit() and int(value) < _NO_LIMIT_BYTES else None


def sweep_groups(cgroups: Cgroups) -> None:
    """Remove empty groups whose host process is gone."""
    for parent in {cgroups.memory, cgroups.pids, cgroups.cpu or cgroups.pids}:
        for directory in parent.glob(f"{_PREFIX}*"):
            match = _NAME.fullmatch(directory.name)
            if match and not Path("/proc", match[1]).exists():
                with contextlib.suppress(OSError):
                    directory.rmdir()


def locate(membership: str, mounts: str) -> Cgroups | None:
    """This process's own groups by the texts of `find_cgroups`; None when a controller is not mounted."""
    paths = {}  # controller ("" for the unified hierarchy) -> this process's path in it
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    directories = {}
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2" and "" in paths:
            directories[""] = _join(point, root, paths[""])
        elif kind == "cgroup":
            for controller in set(options.split(",")) & {"memory", "pids", "cpuacct"} & paths.keys():
                directories[controller] = _join(point, root, paths[controller])
    if "memory" in directories and "pids" in directories:
        cpu = directories.get("cpuacct")
        return Cgroups(version="v1", memory=directories["memory"], pids=directories["pids"], cpu=cpu)
    if "" in directories:
        return Cgroups(version="v2", memory=directories[""], pids=directories[""], cpu=directories[""])
    return None


def _join(point: str, root: str, path: str) -> Path:
    """The directory of `path` in a hierarchy whose `root` is mounted at `point` (a container mounts its own part)."""
    inside = path.removeprefix(root) if root != "/" else path
    return Path(point) / inside.lstrip("/")


def _write(path: Path, value: int, *, is_optional: bool = False) -> None:
    if is_optional and not path.exists():
        return
    path.write_text(str(value))
