"""Progress of long work on standard error: a bar per phase on a terminal, a line now and then elsewhere.

Both show the rate and the time left. A phase counts bytes when its name is in `BYTE_PHASES`, otherwise items.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from foundation.progress import Progress, no_progress

if TYPE_CHECKING:
    from rich.progress import TaskID

BYTE_PHASES = frozenset({"read"})
_LINE_EVERY_S = 10.0


@contextmanager
def show_progress(*, is_quiet: bool = False) -> Iterator[Progress]:
    """The function to report to; what it shows goes away with the block on a terminal. Quiet, it shows nothing."""
    if is_quiet:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        yield PhaseLines(lambda line: console.print(line, highlight=False), time.monotonic)
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[rate]:>16}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}
        begun: dict[str, float] = {}

        def advance(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase], begun[phase] = bars.add_task(phase, total=total, rate=""), time.monotonic()
            rate = rate_text(phase, done, time.monotonic() - begun[phase])
            bars.update(tasks[phase], completed=done, total=total, rate=rate)

        yield advance


class PhaseLines:
    """A line when a phase ends, and every ten seconds while it runs. `clock` gives seconds."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._write, self._clock = write, clock
        self._begun: dict[str, float] = {}
        self._shown_s = clock()
        self._ended: set[str] = set()

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Take one report."""
        now = self._clock()
        elapsed_s = now - self._begun.setdefault(phase, now)
        rate = rate_text(phase, done, elapsed_s)
        if done >= total:
            if phase not in self._ended:
                self._ended.add(phase)
                self._write(f"{phase}: done in {elapsed_s:.1f} s{rate and f', {rate}'}")
        elif now - self._shown_s >= _LINE_EVERY_S and done > 0:
            self._shown_s = now
            left_s = elapsed_s * (total - done) / done
            self._write(f"{phase}: {done * 100 // total} %{rate and f', {rate}'}, {left_s:.0f} s left")


def rate_text(phase: str, done: int, elapsed_s: float) -> str:
    """How fast a phase goes; empty while that cannot be said and below one item a second, where time left says more."""
    if elapsed_s <= 0 or done < elapsed_s:
        return ""
    if phase in BYTE_PHASES:
        return f"{done / elapsed_s / 1e6:,.1f} MB/s"
    return f"{done / elapsed_s:,.0f}/s"
