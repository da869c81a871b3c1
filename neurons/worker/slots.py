"""Which worker slot takes the next job, and how long one rests in which no worker can be started.

A job waits until a slot that may take it is free, in the order of asking; those that only this machine may take go
first, since they are short (what an episode elsewhere found is settled, a stored trace is judged) and an episode is
not. A slot is with one job at a time. For one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection

import msgspec

from foundation.backoff import Backoff
from foundation.errors import Failure

RESTS = Backoff(first_ms=1_000, most_ms=300_000)  # of a slot, by failed starts in a row


class RestingSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot in which no worker could be started, `tries` times in a row; `host` is "" for this machine."""

    slot: int
    host: str
    since_ms: int
    tries: int
    failure: Failure


class FreeSlots:
    """Slots by number; those in `away` are on other machines."""

    def __init__(self, away: Collection[int]) -> None:
        self._away = frozenset(away)
        self._idle: deque[int] = deque()
        self._waiting: deque[tuple[asyncio.Future[int], bool]] = deque()

    async def take(self, *, is_home: bool) -> int:
        """The next free slot; `is_home`: one on this machine."""
        if (found := next((slot for slot in self._idle if self._may(slot, is_home)), None)) is not None:
            self._idle.remove(found)
            return found
        granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((granted, is_home))
        try:
            return await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # it was granted in the same moment
                self.give(granted.result())
            raise

    def give(self, slot: int) -> None:
        """The slot is free."""
        self._waiting = deque(one for one in self._waiting if not one[0].done())
        for granted, is_home in sorted(self._waiting, key=lambda one: not one[1]):  # stable: else as they asked
            if self._may(slot, is_home):
                granted.set_result(slot)
                return
        self._idle.append(slot)

    def _may(self, slot: int, is_home: bool) -> bool:
        return not is_home or slot not in self._away
