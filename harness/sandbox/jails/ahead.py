"""Jails opened ahead: while an agent runs, the next jail starts, confines its runner and waits for a source.

Nothing of an episode is in a jail that waits: source, problem and limits of time begin when it is handed over. It is
used once, for a job of exactly the limits it was opened with, and closed otherwise. One that could not be opened, or
ended while it waited, is replaced in the episode's own thread, which then raises what is wrong.

A jail ends with the thread that opened it, so these are opened by threads that live as long as this object.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from harness.limits import EpisodeLimits


class WaitingJail(Protocol):
    """A jail before its agent."""

    def await_runner(self) -> None:
        """Wait until its runner is ready. Raises ArenaError when that does not come."""
        ...

    def confine(self) -> None:
        """Bound what the runner may take."""
        ...

    def is_alive(self) -> bool:
        """False once it has ended by itself."""
        ...

    def close(self) -> None:
        """Kill what is in it and give back what was opened."""
        ...


JailT = TypeVar("JailT", bound=WaitingJail)


class JailsAhead(Generic[JailT]):
    """At most `at_most` jails that wait; with 0, each is opened when it is asked for. Thread-safe."""

    def __init__(self, open_jail: Callable[[EpisodeLimits], JailT], at_most: int) -> None:
        """`open_jail` starts a jail and returns at once. It must not hold this object: jails that wait are closed when
        nobody does, or when the process ends."""
        self._open, self._at_most = open_jail, at_most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[EpisodeLimits, Future[JailT]]] = deque()
        self._openers = ThreadPoolExecutor(max(1, at_most), thread_name_prefix="jail-ahead")
        weakref.finalize(self, _close, self._openers, self._waiting)

    def take(self, limits: EpisodeLimits) -> JailT:
        """A jail for one job, the caller's to close. Raises as `open_jail` does."""
        while (found := self._next()) is not None:
            opened_with, opening = found
            if opening.exception() is not None:
                continue
            jail = opening.result()
            if opened_with == limits and jail.is_alive():
                return jail
            jail.close()
        return self._open(limits)

    def prepare(self, limits: EpisodeLimits) -> None:
        """Open one in the background, unless as many wait as may."""
        with self._lock, contextlib.suppress(RuntimeError):  # the process is about to end
            if len(self._waiting) < self._at_most:
                self._waiting.append((limits, self._openers.submit(_open_confined, self._open, limits)))

    def _next(self) -> tuple[EpisodeLimits, Future[JailT]] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None


def _open_confined(open_jail: Callable[[EpisodeLimits], JailT], limits: EpisodeLimits) -> JailT:
    jail = open_jail(limits)
    try:
        jail.await_runner()
        jail.confine()
    except BaseException:
        jail.close()
        raise
    return jail


def _close(openers: ThreadPoolExecutor, waiting: deque[tuple[EpisodeLimits, Future[JailT]]]) -> None:
    openers.shutdown(cancel_futures=True)
    for _, opening in waiting:
        if not opening.cancelled() and opening.exception() is None:
            opening.result().close()
