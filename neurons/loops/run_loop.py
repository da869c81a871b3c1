"""How every loop of the node repeats itself until it is drained.

After a failure that a retry can mend the loop logs a line, pauses (longer each time) and goes on; any other
failure is raised and ends the node. After a full disk the loop waits for space. Pauses are spread, so that loops and
nodes that failed together don't come back together. Waiting ends at once when the drain is set.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from arena.records.port import LeaseLostError
from foundation.backoff import Backoff
from foundation.errors import ArenaError
from foundation.logs import get_logger
from neurons.health.status import Wait

Action = Callable[[], Awaitable[object]]
PAUSES = Backoff(first_ms=1_000, most_ms=60_000)
SPREAD = (0.8, 1.2)
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class StopSignal(asyncio.Event):
    """The node's one signal to its loops to stop, and where they say what they wait for until then."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        spread: Callable[[float, float], float] = random.uniform,
        on_failure: Callable[[str, str], None] = lambda loop, code: None,
    ) -> None:
        """`spread` draws a factor between two bounds; `on_failure` hears the loop and the code of every failure."""
        super().__init__()
        self._now_ms, self._on_failure, self._spread = now_ms, on_failure, spread
        self.waits: dict[str, Wait] = {}

    def failed(self, loop: str, error: ArenaError) -> None:
        """Keep what a loop waits for."""
        before = self.waits.get(loop)
        self.waits[loop] = Wait(
            loop=loop,
            code=error.failure.code,
            detail=error.failure.detail,
            since_ms=before.since_ms if before else self._now_ms(),
            failures=before.failures + 1 if before else 1,
        )
        self._on_failure(loop, error.failure.code)

    def went_on(self, loop: str) -> None:
        """A loop waits for nothing any more."""
        self.waits.pop(loop, None)

    def pause_s(self, failures: int) -> float:
        """How long a loop pauses after so many failures in a row, in seconds, spread."""
        return PAUSES.pause_ms(failures) / 1_000 * self._spread(*SPREAD)


class Loop(Protocol):
    """A loop: what it is called, and what it does every `every_s` seconds."""

    name: str
    every_s: float

    async def turn(self) -> object:
        """Do it once. Raises ArenaError: what a retry can mend is retried, anything else ends the node."""
        ...


async def run_loop(name: str, turn: Action, drain: StopSignal, *, every_s: float) -> None:
    """Call `turn` every `every_s` seconds until drained. Raises the first ArenaError that is not retryable."""
    failures = 0
    while not drain.is_set():
        failures = await _attempt(name, turn, failures, drain)
        await drained_within(drain, max(every_s, drain.pause_s(failures)))


async def persist(name: str, action: Action, drain: StopSignal) -> None:
    """Repeat `action` until it succeeds, with growing pauses. Raises what no retry can mend (a lost lease
    among it), and the last failure once drained."""
    failures = 0
    while failures := await _attempt(name, action, failures, drain, is_last=drain.is_set()):
        await drained_within(drain, drain.pause_s(failures))


async def drained_within(drain: StopSignal, seconds: float) -> bool:
    """Wait; True as soon as the drain is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(drain.wait(), seconds)
    return drain.is_set()


async def _attempt(name: str, action: Action, failures: int, drain: StopSignal, *, is_last: bool = False) -> int:
    """Do it once: 0, or after a failure that a retry can mend the number of them in a row. Raises any other one, and
    with `is_last` every one."""
    log, loop = get_logger(), name.partition(" ")[0]  # what is written may be of many attempts; the wait is one
    try:
        await _coded(action)
    except LeaseLostError:
        drain.went_on(loop)
        raise
    except ArenaError as error:
        if not error.entry.is_retryable or is_last:
            raise
        code, detail, seconds = error.failure.code, error.failure.detail, PAUSES.pause_ms(failures + 1) / 1_000
        text = f"{name}: {code} {detail or error.entry.title}; tried again in {seconds:.0f} s"
        before = drain.waits.get(loop)
        say = log.debug if before and before.code == code else log.warning  # an outage is told once; status goes on
        say("waiting", loop=loop, seconds=seconds, code=code, detail=detail, text=text)
        drain.failed(loop, error)
        return failures + 1
    if failures:
        log.info("goes on", loop=loop, failures=failures, text=f"{name}: goes on after {failures} failures")
    drain.went_on(loop)
    return 0


async def _coded(action: Action) -> None:
    """Do it; a disk that is full is V2115, whatever code the part that met it has for its folder."""
    try:
        await action()
    except (OSError, ArenaError) as error:
        cause = error.__cause__ if isinstance(error, ArenaError) else error
        if not isinstance(cause, OSError) or cause.errno not in _DISK_FULL:
            raise
        raise ArenaError("V2115", str(cause.filename or cause.strerror)) from error
