"""How often circles of garbage are looked for: rarely in a pass over many values, of which none stands in one."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

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
