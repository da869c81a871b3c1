"""The level of a bank's stock: how many of the coming races it serves, for how long, and how old it is.

Pure figures from values. Races are counted in the order of their closes, up to the first that has no batch:
batches behind a gap cannot be raced before the gap is filled.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

DAY_MS = 86_400_000
HORIZON_RACES = 400  # how far ahead a stock is measured


class StockLevel(msgspec.Struct, frozen=True, kw_only=True):
    """What is in stock at one moment.

    `races` counts coming races that have a batch, `lasts_ms` is the time until the close of the first that has none.
    """

    races: int
    lasts_ms: int
    oldest_made_ms: int | None = None  # unix milliseconds; None: nothing waits
    newest_made_ms: int | None = None
    is_made_here: bool = False  # the bank makes problems when it is empty, and cannot run low

    def is_low(self, days_min: int) -> bool:
        """Whether the stock lasts for fewer days than an operator has to keep."""
        return not self.is_made_here and self.lasts_ms < days_min * DAY_MS


def measure_level(
    served: Sequence[bool], closes_ms: Sequence[int], now_ms: int, made_ms: Sequence[int], *, is_made_here: bool = False
) -> StockLevel:
    """The level, where `served[n]` says whether the race that closes at `closes_ms[n]` has a batch.

    `made_ms` are the unix milliseconds at which the waiting batches were made. When every race has a batch, the stock
    lasts until the last close. Raises ValueError when the two sequences differ in length.
    """
    races, until_ms = 0, now_ms
    for has_batch, close_ms in zip(served, closes_ms, strict=True):
        until_ms = close_ms
        if not has_batch:
            break
        races += 1
    return StockLevel(
        races=races,
        lasts_ms=max(0, until_ms - now_ms) if races else 0,
        oldest_made_ms=min(made_ms, default=None),
        newest_made_ms=max(made_ms, default=None),
        is_made_here=is_made_here,
    )
