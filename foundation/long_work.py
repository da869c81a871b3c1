"""What work over many values tells of itself while it runs, and how often it looks for circles of garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

Progress = Callable[[str, int, int], None]  # phase, done, in all: 0 where nobody knows
PhaseProgress = Callable[[int, int], None]  # of one phase: done, in all: 0 where nobody knows


def no_progress(phase: str, done: int, total: int) -> None:
    """Tells nobody."""


OBJECTS_MADE = 50_000  # between two looks; Python's own number is 700


def look_rarely() -> None:
    """From now on in this process. A look goes over all that lives: an eighth of the time of a pass over a log."""
    gc.set_threshold(OBJECTS_MADE, *gc.get_threshold()[1:])


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """The same for the length of the block."""
    before = gc.get_threshold()
    look_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
