"""Processes as a test looks at them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from harness.sandbox.processes import descendants


def started_at(pid: int) -> str:
    """The start time of a living process; empty when it is gone or only waits to be reaped."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def is_alive(pid: int) -> bool:
    return bool(started_at(pid))


def wait_for(is_so: Callable[[], object], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.0005)
    return bool(is_so())


def newborn(before: set[int]) -> list[int]:
    """This process's descendants that were not there before, in order: other fixtures have processes of their own."""
    return [pid for pid in descendants(os.getpid()) if pid not in before]
