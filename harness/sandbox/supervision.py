"""One guest under the watch of its limits, and why it ended: the same for every jail that the host looks into.

Every 100 ms each limit is looked at, whether the host waits, works on a call or writes; a guest that broke one
is ended at once, before its host has finished. Looks take at most half of the watch's time, so a guest that is slow to
look at does not take the host's. If the watch itself fails, that is a fault of ours and is raised to its caller.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal

import msgspec

from harness.limits import EpisodeLimits
from harness.sandbox.cgroup import JailGroup
from harness.sandbox.host_loop import GuestConversation, Pipes
from harness.sandbox.port import GuestEnd, GuestExit, GuestJob, Host
from harness.sandbox.processes import TreeCpu, is_over_memory
from harness.sandbox.workdir import reading_as

Limit = Literal["memory", "cpu", "processes", "disk", "resources"]
Looks = Mapping[Limit, Callable[[], bool]]  # says of each limit whether it is broken right now; looked at in this order

INTERVAL_S = 0.1
_SIGNAL_BASE = 128  # a supervisor exits with this plus the number of the signal that killed the guest
# Which limit a signal of the kernel stands for; SIGKILL stands for several.
_ENDS_BY_SIGNAL: Mapping[int, GuestEnd] = {
    signal.SIGKILL: "resources",
    signal.SIGXCPU: "cpu",
    signal.SIGXFSZ: "disk",
}
# Real-time signals but the first and last have no name: a guest may exit with any status it likes.
_SIGNAL_NAMES: Mapping[int, str] = {one.value: one.name for one in signal.Signals}


class JailWatch:
    """The limits of one guest. A context: on leaving, nothing is looked at any more."""

    def __init__(self, is_over: Looks, end_guest: Callable[[], None], clock: Callable[[], float]) -> None:
        """`end_guest` kills all that may have broken a limit, and is called once, from the watch's thread. `clock`
        gives seconds, monotonic."""
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


def supervise(
    pipes: Pipes,
    job: GuestJob,
    host: Host,
    clock: Callable[[], float],
    *,
    confine: Callable[[], bytes],
    is_over: Looks,
    end_guest: Callable[[], None],
) -> GuestExit:
    """Converse with one guest to its end, watched from the moment it is ready.

    `confine` is called then, before the watch begins, and gives the init frame. A guest that the watch ended is
    reported by the limit it broke; one that died by itself as `died`, for `explain_death`. Raises as
    `GuestConversation.run` does, and what kept the watch from looking.
    """
    with JailWatch(is_over, end_guest, clock) as watch:

        def begin() -> bytes:
            frame = confine()
            watch.start()
            return frame

        ended = GuestConversation(pipes, job.limits, host, clock, on_ready=begin, broken_limit=watch.broken).run()
        broken = watch.broken()
    return ended if broken is None or ended.end != "died" else msgspec.structs.replace(ended, end=broken)


def look_at_use(
    limits: EpisodeLimits,
    group: JailGroup | None,
    *,
    first_pid: int,
    pids: Callable[[], tuple[int, ...]],
    owner: int | None = None,
) -> Looks:
    """How memory and CPU time are looked at: by the jail's group, or where there is none by what the host sees.

    `first_pid` is the process that all others descend from, `pids` gives those of the guest, `owner` their uid where
    only that uid may look at them.
    """
    read_cpu_s = group.cpu_time_s if group and group.counts_cpu else TreeCpu(first_pid).read_s

    def is_over_own_memory() -> bool:
        with reading_as(owner):
            return is_over_memory(pids, limits.memory_bytes)

    return {
        # The kernel may end one process of the group only; the episode ends with it, as it does without a cgroup.
        "memory": group.was_out_of_memory if group else is_over_own_memory,
        "cpu": lambda: read_cpu_s() >= limits.cpu_time_s,
    }


def explain_death(ended: GuestExit, status: int, *, was_out_of_memory: bool) -> GuestExit:
    """`ended`, a guest that died without a last word, with the limit it died of, or with its cause in `error`.

    `status` is the supervisor's exit status: 128 and the number of the signal that killed the guest, or the negative
    number of the one that killed the supervisor itself. Total: the guest chooses its exit status, and none raises.
    """
    number = -status if status < 0 else status - _SIGNAL_BASE
    if was_out_of_memory:
        return msgspec.structs.replace(ended, end="memory")
    if number in _ENDS_BY_SIGNAL:
        return msgspec.structs.replace(ended, end=_ENDS_BY_SIGNAL[number])
    return msgspec.structs.replace(ended, error=_SIGNAL_NAMES.get(number, f"exit status {status}"))
