"""How many requests an endpoint gets at once, from all processes of a node: a small model server falls over otherwise.

A slot is a lock on a file, so one that is held by a process that dies is free at once, and nothing is left to
clean up. Waiting is host time: the agent's clock stands still. Which of those that wait comes next is not said.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from foundation.codes.names import NO_TURN
from foundation.errors import ArenaError

_POLL_S = 0.02


class RequestSlots:
    """`count` slots below `folder`, shared by every process that names this folder. Thread-safe."""

    def __init__(
        self,
        folder: Path,
        count: int,
        timeout_ms: int,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._files = tuple(folder / f"{place}.lock" for place in range(count))
        self._timeout_ms = timeout_ms
        self._sleep = sleep
        self._clock_ms = clock_ms

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold one slot. Raises ArenaError U3008 when none came free within `timeout_ms`, V2012 when the folder can't
        be written."""
        ends_ms = self._clock_ms() + self._timeout_ms
        while True:
            with contextlib.ExitStack() as stack:
                if any(self._is_taken(file, stack) for file in self._files):
                    yield
                    return
            if self._clock_ms() >= ends_ms:
                raise ArenaError(NO_TURN, f"none of {len(self._files)} slots came free in {self._timeout_ms} ms")
            self._sleep(_POLL_S)

    def _is_taken(self, file: Path, stack: contextlib.ExitStack) -> bool:
        """True when this call took the slot; it is given back with the stack."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            stream = file.open("ab")
        except OSError as error:
            raise ArenaError("V2012", f"{file}: {error}") from error
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a lock of its own for every open file: other threads of this process have to wait, too
            stream.close()
            return False
        stack.callback(stream.close)
        return True
