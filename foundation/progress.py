"""What long work tells of itself while it runs."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # phase, done, in all: 0 where nobody knows
PhaseProgress = Callable[[int, int], None]  # of one phase: done, in all: 0 where nobody knows


def no_progress(phase: str, done: int, total: int) -> None:
    """Tells nobody."""
