"""Whose failure an ended episode is: one table from (what happened, when) to a code of the registry.

`classify_guest` maps every way a guest can end to a stop reason and, where the agent is at fault, a failure;
`our_fault` is for whatever our own side raised, which is never the agent's. Between the two stands
`reading_guest_bytes`: what a pure reader raises over bytes that the guest sent is the agent's. Details that go into a
record hold nothing that differs between hosts: addresses and random file names are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from foundation.errors import ArenaError, Failure
from harness.limits import EpisodeLimits
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestEnd, GuestExit
from harness.trace import StopReason

# An agent's own exceptions that say, while its file is loaded, that there is nothing to run.
_LOADING = {"SyntaxError", "IndentationError", "TabError", "MissingAgentMainError"}
# Refusals by a limit, as the beginning of what the guest tells. It is a claim, but one against the agent itself.
_REFUSALS: Mapping[str, StopReason] = {
    "MemoryError": "memory",
    "OSError: [Errno 12]": "memory",
    "BlockingIOError: [Errno 11]": "processes",  # fork
    "RuntimeError: can't start new thread": "processes",
    "OSError: [Errno 28]": "disk",  # the mount is full
    "OSError: [Errno 27]": "disk",  # the file is as large as one may be
}
_STOP_BY_PHASE: Mapping[str, StopReason] = {"load": "load_failed", "raise": "raised", "not_json": "not_json"}
# How the sandbox ended it -> code; `final` and `stopped` are the session's to explain. Every other end is a limit, and
# which layer noticed it differs between hosts: the record says no more than the stop reason.
_BY_END: Mapping[GuestEnd, str] = {
    "wall_clock": "A1020",
    "output": "A1026",
    "protocol": "A1027",
    "died": "A1028",
    "frame": "A1029",
}
_LIMIT = "A1030"

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
    detail = stable_text(ended.error)
    if ended.end == "final":
        kind = ended.error_kind
        if not kind:
            return "returned", None
        for beginning, stop in _REFUSALS.items():
            if ended.error.startswith(beginning):
                return stop, Failure(code=_LIMIT)
        code = "A1027" if kind == "not_json" else "A1024"
        if kind == "load" and ended.error.partition(":")[0] in _LOADING:
            code = "A1002"
        return _STOP_BY_PHASE[kind], Failure(code=code, detail=detail)
    assert ended.end != "stopped", "the session stopped it"
    if ended.end not in _BY_END:
        return ended.end, Failure(code=_LIMIT)
    detail = f"{limits.agent_time_ms} ms" if ended.end == "wall_clock" else detail
    return ended.end, Failure(code=_BY_END[ended.end], detail=detail)


def our_fault(error: Exception) -> ArenaError:
    """V2004 for an exception without a code that a tool or a model raised: never the agent's."""
    return ArenaError("V2004", stable_text(f"{type(error).__name__}: {error}"))


def stable_text(text: str) -> str:
    """`text` without what differs from run to run: object addresses and names under /tmp."""
    return _TEMPORARY.sub("/tmp/…", _ADDRESS.sub("0x…", text))
