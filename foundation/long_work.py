"""What work over many values tells of itself while it runs, how often it looks for circles of garbage, and where it
puts what memory need not hold."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from array import array
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


class Spool:
    """Packed values in a file without a name, each read again by its number. Eight bytes of memory a value."""

    def __init__(self) -> None:
        """Raises OSError when the disk does not take it."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with this object
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, packed: bytes) -> None:
        """Add a value. Raises OSError when the disk is full."""
        self._file.seek(self._ends[-1])
        self._file.write(packed)
        self._ends.append(self._ends[-1] + len(packed))

    def get(self, number: int) -> bytes:
        """The value of this number, from 0. Raises IndexError for one that is not there."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        self._file.seek(self._ends[number])
        return self._file.read(self._ends[number + 1] - self._ends[number])
