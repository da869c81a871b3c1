"""The processes of a jail as the host sees them: who they are, how much memory they hold and how long they computed.

Reads /proc only. A jail's processes are the descendants of its first process: a daemon that detaches is adopted by the
jail's own pid 1, so it stays in the tree.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_INTERVAL_S = 0.1


def descendants(pid: int) -> tuple[int, ...]:
    """`pid` and every process below it, parents first; empty when it is gone."""
    if not Path("/proc", str(pid)).exists():
        return ()
    children = _children_listed if Path("/proc/thread-self/children").exists() else _children_by_scan()
    family = [pid]
    for member in family:
        family.extend(children(member))
    return tuple(family)


def resident_bytes(pids: tuple[int, ...]) -> int:
    """Resident memory of `pids` together. Pages that they share count once for each: an upper bound."""
    total = 0
    for pid in pids:
        try:
            total += int(Path("/proc", str(pid), "statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
    return total * _PAGE_BYTES


class MemoryWatchdog:
    """Asks `is_over` at most every 100 ms whether a jail broke its memory limit, and remembers a yes."""

    def __init__(self, is_over: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._is_over, self._clock = is_over, clock
        self._next_s = 0.0
        self._has_bitten = False

    def has_bitten(self) -> bool:
        """True once the limit was broken."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + _INTERVAL_S
            self._has_bitten = self._has_bitten or self._is_over()
        return self._has_bitten


class CpuMeter:
    """Asks `read` at most every 100 ms for the CPU seconds that a jail has used; what it gives never falls."""

    def __init__(self, read: Callable[[], float], clock: Callable[[], float]) -> None:
        self._read, self._clock = read, clock
        self._next_s = 0.0
        self._used_s = 0.0

    def used_s(self) -> float:
        """CPU seconds used so far."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + _INTERVAL_S
            self._used_s = max(self._used_s, self._read())
        return self._used_s


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


def is_tree_over(root_pid: int, memory_bytes: int) -> bool:
    """True when the processes below `root_pid` hold more than `memory_bytes`; for hosts without a writable cgroup."""
    return resident_bytes(descendants(root_pid)) > memory_bytes


def _children_listed(pid: int) -> list[int]:
    """Children as the kernel lists them for each thread of the parent."""
    found: list[int] = []
    try:
        for task in Path("/proc", str(pid), "task").iterdir():
            found.extend(int(child) for child in (task / "children").read_text().split())
    except OSError:
        return found  # it ended meanwhile
    return found


def _children_by_scan() -> Callable[[int], list[int]]:
    """The same from one pass over all processes, for kernels without the list."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(int(entry.name))) is not None:
            children[parent].append(int(entry.name))
    return lambda pid: children[pid]


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, the state first; empty when the process is gone."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
