"""The sandbox port: run one untrusted agent on one problem, with the host behind a pipe.

An adapter starts a fresh jail per call, speaks length-prefixed JSON-RPC over stdin/stdout, kills everything at the
end, and reports how the guest ended. It decides nothing about scores and records nothing: the session does.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from harness.limits import EpisodeLimits

GuestEnd = Literal[
    "final",  # the guest sent its last frame
    "stopped",  # the host ended it through Host.call raising EpisodeOver
    "wall_clock",
    "output",
    "frame",
    "protocol",
    "died",
    "memory",
    "cpu",
    "processes",
    "disk",
    "resources",  # the kernel ended it for a limit that it did not name
]


class SandboxLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The level actually reached on this host; stands in every record's provenance."""

    name: Literal["bubblewrap", "landlock", "reference-agents-only"]
    layers: tuple[str, ...]  # e.g. user-namespace, network-namespace, seccomp, cgroup-v2, own-uid
    degraded: tuple[str, ...] = ()  # layers that are missing, each with its reason
    guest_sha256: str  # of the guest root and runner
    python_version: str  # minor version of the guest's Python
    may_race: bool


class GuestJob(msgspec.Struct, frozen=True, kw_only=True):
    """What enters the jail: source and problem view (JSON text), nothing else."""

    source: str
    problem: str
    limits: EpisodeLimits
    tools: str  # canonical tool schemas, JSON text, for arena_sdk.tools.schemas()
    models: tuple[str, ...]  # for arena_sdk.llm.models()


class GuestExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the guest ended. `claim` and `error` come from the guest and are claims."""

    end: GuestEnd
    claim: str = ""  # JSON text of the return value
    error: str = ""  # exception type and message, as the guest tells it
    error_kind: Literal["", "load", "raise", "not_json"] = ""
    output_tail: str = ""  # last bytes of stdout and stderr; never in the body
    start_ms: int = 0  # until the guest was ready to run the agent
    agent_time_ms: int = 0


class EpisodeOver(Exception):  # noqa: N818 - it ends an episode as planned; it is no error
    """Raised by `Host.call` to end the episode at once (a limit was reached, or terminate was called)."""


class Host(Protocol):
    """The host side of the RPC, given to the sandbox by the session."""

    def call(self, method: str, params: dict[str, object]) -> object:
        """Answer `tool.call` or `llm.chat`. Returns a JSON-able value.

        Raises `GuestCallError` for what the guest is told as an error, `EpisodeOver` to stop, ArenaError for a fault
        of ours (the adapter kills the jail and lets it pass through).
        """
        ...


class GuestCallError(Exception):
    """An error answer to one guest call: `code` from the registry and a sentence for the agent."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


class Sandbox(Protocol):
    """One way to run agents. Thread-safe: several episodes may run at once."""

    @property
    def level(self) -> SandboxLevel: ...

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run one agent to its end in a fresh jail. Raises ArenaError V2002 when the jail cannot start, V2001 when the
        level does not admit this source."""
        ...
