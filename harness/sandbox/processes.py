"""The processes of a jail as the host sees them: who they are, and how much memory they hold.

Reads /proc only. A jail's processes are the descendants of its first process: a daemon that detaches is adopted by the
jail's own pid 1, so it stays in the tree.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
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
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])
