"""Why a guest died that sent no final message: exit statuses, read in one place for all adapters."""

from __future__ import annotations

import signal
from collections.abc import Mapping

import msgspec

from harness.sandbox.port import GuestEnd, GuestExit

_SIGNAL_BASE = 128  # a supervisor exits with this plus the number of the signal that killed the guest
# Which limit a signal of the kernel stands for; SIGKILL stands for several.
_ENDS_BY_SIGNAL: Mapping[int, GuestEnd] = {
    signal.SIGKILL: "resources",
    signal.SIGXCPU: "cpu",
    signal.SIGXFSZ: "disk",
}
# Real-time signals but the first and last have no name: a guest may exit with any status it likes.
_SIGNAL_NAMES: Mapping[int, str] = {one.value: one.name for one in signal.Signals}


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
