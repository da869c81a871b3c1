"""A measurement in a process of its own: what it prints, and the most memory that it and all it starts hold."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time

import psutil

LOOK_S = 0.03
LOOKS_APART = 10  # from one search for new processes to the next: it reads of every process there is, and takes long


def run_apart(program: str, *arguments: str) -> tuple[bytes, float]:
    """(what the program printed, peak memory in MB, looked at every few hundredths of a second).

    Processes that it starts are looked for every few tenths.
    """
    with tempfile.TemporaryFile() as said:
        running = psutil.Popen([sys.executable, "-c", program, *arguments], stdout=said)
        peak, looks, family = 0, 0, [running]
        while running.poll() is None:
            if looks % LOOKS_APART == 0:
                family = _family(running)
            peak, looks = max(peak, sum(map(_resident, family))), looks + 1
            time.sleep(LOOK_S)
        if running.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {running.returncode}")
        said.seek(0)
        return said.read(), peak / (1 << 20)


def _family(process: psutil.Process) -> list[psutil.Process]:
    """A process and all it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return [process]


def _resident(process: psutil.Process) -> int:
    """Bytes that a process holds, 0 once it has ended; pages that several share are counted for each."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0
