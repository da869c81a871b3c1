"""How long to wait between attempts at what keeps failing."""

from __future__ import annotations

import msgspec


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses that double from `first_ms` up to `most_ms`."""

    first_ms: int
    most_ms: int

    def pause_ms(self, failures: int) -> int:
        """The pause after so many failures in a row, in milliseconds; none after none."""
        if failures < 1:
            return 0
        return min(self.most_ms, self.first_ms << min(failures - 1, 62))
