"""How long to wait between attempts at what keeps failing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from foundation.errors import ArenaError

_Value = TypeVar("_Value")


class NextTry(msgspec.Struct, frozen=True):
    """Something that failed: how often in a row, the pause that follows, and when it is over (unix milliseconds)."""

    failures: int = 0
    pause_ms: int = 0
    not_before_ms: int = 0


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses that double from `first_ms` up to `most_ms`."""

    first_ms: int
    most_ms: int

    def pause_ms(self, failures: int) -> int:
        """The pause after so many failures in a row, in milliseconds; none after none."""
        if failures < 1:
            return 0
        return min(self.most_ms, self.first_ms << min(failures - 1, 62))

    def after(self, before: NextTry, now_ms: int) -> NextTry:
        """The next try after one more failure, at `now_ms` (unix milliseconds)."""
        pause_ms = self.pause_ms(before.failures + 1)
        return NextTry(failures=before.failures + 1, pause_ms=pause_ms, not_before_ms=now_ms + pause_ms)


def retried(
    once: Callable[[], _Value],
    attempts: int,
    pause_ms: Callable[[ArenaError, int], float | None],
    sleep: Callable[[float], None],
) -> _Value:
    """The first result of `once` in so many attempts. `pause_ms` names the pause after an error and so many failures in
    a row, None where trying again is no use; `sleep` takes seconds. Raises the last ArenaError."""
    for failures in range(1, attempts + 1):
        try:
            return once()
        except ArenaError as error:
            wait_ms = pause_ms(error, failures) if failures < attempts else None
            if wait_ms is None:
                raise
        sleep(wait_ms / 1000)
    raise ValueError("at least one attempt")
