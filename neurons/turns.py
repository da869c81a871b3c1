"""Turns: how every loop of the node repeats itself until it is drained.

Promise: a failure that a retry can mend costs a growing pause and a log line, never the loop; any other failure is
raised and ends the node. Waiting ends at once when the drain is set.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from arena.store.port import LeaseLostError
from problems.errors import ArenaError

PAUSE_S_MAX = 60.0


async def take_turns(
    name: str,
    turn: Callable[[], Awaitable[object]],
    drain: asyncio.Event,
    log: FilteringBoundLogger,
    *,
    every_s: float,
) -> None:
    """Call `turn` every `every_s` seconds until drained. Raises the first ArenaError that is not retryable."""
    pause_s = 0.0
    while not drain.is_set():
        try:
            await turn()
            pause_s = 0.0
        except ArenaError as error:
            if not error.entry.is_retryable:
                raise
            pause_s = min(PAUSE_S_MAX, max(1.0, pause_s * 2))
            log.warning("waiting", loop=name, seconds=pause_s, code=error.failure.code, detail=error.failure.detail)
        await drained_within(drain, max(every_s, pause_s * random.uniform(0.8, 1.2)))


async def drained_within(drain: asyncio.Event, seconds: float) -> bool:
    """Wait; True as soon as the drain is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(drain.wait(), seconds)
    return drain.is_set()


async def persist(
    name: str, action: Callable[[], Awaitable[object]], drain: asyncio.Event, log: FilteringBoundLogger
) -> None:
    """Repeat `action` until it succeeds, with growing pauses. Raises what no retry can mend (a lost lease
    among it), and the last failure once drained."""
    pause_s = 0.0
    while True:
        try:
            await action()
            return
        except LeaseLostError:
            raise
        except ArenaError as error:
            if not error.entry.is_retryable or drain.is_set():
                raise
            pause_s = min(PAUSE_S_MAX, max(1.0, pause_s * 2))
            log.warning("trying again", action=name, seconds=pause_s, code=error.failure.code)
        await drained_within(drain, pause_s)
