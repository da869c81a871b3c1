"""A measurement in a process of its own: what it prints, and the most memory that it and all it starts hold."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time

import psutil

LOOK_S = 0.03


def run_apart(program: str, *arguments: str) -> tuple[bytes, float]:
    """(what the program printed, peak memory in MB, looked at every few hundredths of a second)."""
    with tempfile.TemporaryFile() as said:
        running = psutil.Popen([sys.executable, "-c", program, *arguments], stdout=said)
        peak = 0
        while running.poll() is None:
            peak = max(peak, _resident(running))
            time.sleep(LOOK_S)
        if running.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {running.returncode}")
        said.seek(0)
        return said.read(), peak / (1 << 20)


def _resident(process: psutil.Process) -> int:
    """Bytes that a process and all it started hold; pages that they share are counted for each."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
    return total
