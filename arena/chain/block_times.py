"""Which block stood at a moment, from the timestamps of finalized blocks.

The answer is the last block whose timestamp is not later than the moment, and never changes: only finalized
blocks are asked, and only once one of them is later. Blocks may be skipped, so nothing is computed from a block time;
it only says where to look first. Few blocks are read, and none much older than the answer, since a node may have
pruned their state; timestamps that were read are remembered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

BLOCK_MS = 12_000  # where to look first; the chain's own pace
REMEMBERED = 4_096

TimeOf = Callable[[int], Awaitable[int]]


class BlockTimes:
    """Timestamps of finalized blocks of one chain, as far as they were read."""

    def __init__(self, time_of: TimeOf) -> None:
        """`time_of` reads the unix milliseconds of a finalized block; blocks count from 0, times never fall."""
        self._time_of = time_of
        self._known: dict[int, int] = {}

    async def last_block(self, unix_ms: int, finalized: int) -> int | None:
        """The last block not later than `unix_ms`; None while no finalized block is later. 0: before the first block.

        Raises what `time_of` raises.
        """
        later, latest_ms = finalized, await self._time(finalized)
        if latest_ms <= unix_ms:
            return None
        later = min((block for block, time in self._known.items() if time > unix_ms), default=later)
        known = max((block for block, time in self._known.items() if time <= unix_ms), default=-1)
        earlier = known if known >= 0 else await self._before(unix_ms, later)
        while later - earlier > 1:
            middle = (later + earlier) // 2
            if await self._time(middle) <= unix_ms:
                earlier = middle
            else:
                later = middle
        return earlier

    async def _before(self, unix_ms: int, later: int) -> int:
        """Some block that is not later than the moment, found in growing steps back from one that is."""
        step = max(1, -(-(await self._time(later) - unix_ms) // BLOCK_MS))
        while later > 0:
            candidate = max(0, later - step)
            if candidate == 0 or await self._time(candidate) <= unix_ms:
                return candidate
            later, step = candidate, step * 2
        return 0

    async def _time(self, block: int) -> int:
        if block not in self._known:
            self._known[block] = await self._time_of(block)
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]
        return self._known[block]
