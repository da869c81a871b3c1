"""Whose failure an ended episode is: one table from (what happened, when) to a code of the registry.

`classify_guest` maps every way a guest can end to a stop reason and, where the agent is at fault, a failure;
`classify_host` maps whatever our own side raised to a failure that is never the agent's. Between the two stands
`reading_guest_bytes`: what a pure reader raises over bytes that the guest sent is the agent's. Details that go into a
record hold nothing that differs between hosts: addresses and random file names are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from foundation.errors import ArenaError, Failure
from harness.limits import EpisodeLimits
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit
from harness.trace import StopReason

GuestPhase = Literal["load", "raise", "not_json"]
HostPhase = Literal["start", "tool", "model", "loop"]

# Exceptions with a code of their own, by the phase they ended; everything else is `_BY_PHASE`'s.
_BY_EXCEPTION: Mapping[tuple[GuestPhase, str], str] = {
    ("load", "SyntaxError"): "A1002",
    ("load", "IndentationError"): "A1002",
    ("load", "TabError"): "A1002",
    ("load", "MissingAgentMainError"): "A1003",
}
# Refusals by a limit, as the beginning of what the guest tells. It is a claim, but one against the agent itself.
_REFUSALS: Mapping[str, str] = {
    "MemoryError": "A1030",
    "OSError: [Errno 12]": "A1030",
    "BlockingIOError: [Errno 11]": "A1032",  # fork
    "RuntimeError: can't start new thread": "A1032",
    "OSError: [Errno 28]": "A1033",  # the mount is full
    "OSError: [Errno 27]": "A1033",  # the file is as large as one may be
}
_BY_PHASE: Mapping[GuestPhase, str] = {"load": "A1024", "raise": "A1024", "not_json": "A1025"}
_STOP_BY_PHASE: Mapping[GuestPhase, StopReason] = {"load": "load_failed", "raise": "raised", "not_json": "not_json"}

# How the sandbox ended it -> stop reason and code; `final` and `stopped` are the session's to explain.
_BY_END: Mapping[str, tuple[StopReason, str]] = {
    "wall_clock": ("wall_clock", "A1020"),
    "output": ("output", "A1026"),
    "protocol": ("protocol", "A1027"),
    "died": ("died", "A1028"),
    "frame": ("frame", "A1029"),
    "memory": ("memory", "A1030"),
    "cpu": ("cpu", "A1031"),
    "processes": ("processes", "A1032"),
    "disk": ("disk", "A1033"),
    "resources": ("resources", "A1030"),
}
_STOP_BY_REFUSAL: Mapping[str, StopReason] = {"A1030": "memory", "A1032": "processes", "A1033": "disk"}
# Which layer noticed these differs between hosts: the record says no more than the stop reason.
_LAYERED_ENDS = {"memory", "cpu", "processes", "disk", "resources"}

_HOST_FALLBACK: Mapping[HostPhase, str] = {"start": "V2002", "tool": "V2004", "model": "V2004", "loop": "V2004"}

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_TEMPORARY = re.compile(r"/tmp/\S+")


class UnreadableError(Exception):
    """A pure reader failed over what the guest sent: the agent's fault, with no detail that the guest could choose."""


@contextmanager
def reading_guest_bytes() -> Iterator[None]:
    """Run a pure reader over guest bytes. Whatever it raises becomes UnreadableError, since the agent provoked it.

    Never put a tool, an engine, a model or a file inside: their faults are ours. MemoryError and OSError stay what they
    are even here, because a full host raises them over any bytes.
    """
    try:
        yield
    except (ArenaError, GuestCallError, EpisodeOver, MemoryError, OSError):
        raise
    except Exception as error:
        raise UnreadableError from error


def classify_guest(ended: GuestExit, limits: EpisodeLimits) -> tuple[StopReason, Failure | None]:
    """Stop reason and failure of a guest that was not stopped by the session.

    (`returned`, None) when `agent_main` returned: whether that is a failure depends on what it recommended.
    """
    if ended.end == "final" and not ended.error_kind:
        return "returned", None
    if ended.end == "final" and ended.error_kind:
        code = classify_refusal(ended.error)
        if code is not None:
            return _STOP_BY_REFUSAL[code], Failure(code=code)
        code = classify_exception(ended.error.partition(":")[0], ended.error_kind)
        return _STOP_BY_PHASE[ended.error_kind], Failure(code=code, detail=stable_text(ended.error))
    stop, code = _BY_END[ended.end]
    if ended.end == "wall_clock":
        detail = f"{limits.agent_time_ms} ms"
    else:
        detail = "" if ended.end in _LAYERED_ENDS else stable_text(ended.error)
    return stop, Failure(code=code, detail=detail)


def classify_refusal(error: str) -> str | None:
    """The code of the limit that refused what `error` says (exception and message); None when none did."""
    return next((code for beginning, code in _REFUSALS.items() if error.startswith(beginning)), None)


def classify_exception(name: str, phase: GuestPhase) -> str:
    """The code for an exception class `name` that ended the agent in `phase`."""
    return _BY_EXCEPTION.get((phase, name), _BY_PHASE[phase])


def classify_host(error: Exception, phase: HostPhase) -> Failure:
    """The failure behind an exception on our side: its own code when it has one, else the phase's. Never an A code
    that is not already the exception's own."""
    if isinstance(error, ArenaError):
        return error.failure
    return Failure(code=_HOST_FALLBACK[phase], detail=stable_text(f"{type(error).__name__}: {error}"))


def stable_text(text: str) -> str:
    """`text` without what differs from run to run: object addresses and names under /tmp."""
    return _TEMPORARY.sub("/tmp/…", _ADDRESS.sub("0x…", text))
