"""The watch over a guest: looks at what its processes use, from a thread of its own.

Promise: every 100 ms each limit is looked at, whether the host waits, works on a call or writes; a guest that broke one
is ended at once, before its host has finished. Looks take at most half of the watch's time, so a guest that is slow to
look at does not take the host's. If the watch itself fails, that is a fault of ours and is raised to its caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal

Limit = Literal["memory", "cpu", "processes", "disk", "resources"]

INTERVAL_S = 0.1


class JailWatch:
    """The limits of one guest. A context: on leaving, nothing is looked at any more."""

    def __init__(
        self,
        is_over: Mapping[Limit, Callable[[], bool]],
        end_guest: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`is_over` says of each limit whether it is broken right now; `end_guest` kills all that may have broken it,
        and is called once, from the watch's thread. `clock` gives seconds, monotonic."""
        self._is_over, self._end_guest, self._clock = is_over, end_guest, clock
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jail-watch", daemon=True)
        self._broken: Limit | None = None
        self._fault: Exception | None = None

    def __enter__(self) -> JailWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def start(self) -> None:
        """Begin to look. Call it once, when the guest's processes are known."""
        self._thread.start()

    def broken(self) -> Limit | None:
        """The first limit that was found broken. Raises what kept the watch from looking."""
        if self._fault is not None:
            raise self._fault
        return self._broken

    def look(self) -> float:
        """One look at every limit, as the thread takes it; how many seconds to wait for the next."""
        before = self._clock()
        for limit, is_over in self._is_over.items():
            if is_over():
                self._broken = limit  # set before the guest is ended, so that its end finds the reason
                self._end_guest()
                break
        return max(INTERVAL_S, self._clock() - before)

    def _run(self) -> None:
        wait_s = INTERVAL_S
        while self._broken is None and not self._is_done.wait(wait_s):
            try:
                wait_s = self.look()
            except Exception as fault:  # noqa: BLE001 - handed to the thread that runs the episode, which raises it
                self._fault = fault
                self._end_guest()
                return
