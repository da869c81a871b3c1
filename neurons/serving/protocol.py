"""What a node and its serving process say to each other: JSON lines over pipes, one typed value each.

What the process may know stands in `ServingSetup`, and a hotkey's key does not; a DSN's password travels over
the pipe, never on a command line or in an environment.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from arena.policy import Policy
from foundation.errors import Failure
from problems.model import Problem

LINE_BYTES_MAX = 256 << 20
NO_SOCKET = -1


class ServingSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The first line to the process. `reads` and `door` are descriptors of listening sockets that it inherits,
    NO_SOCKET where there is nothing to serve; `reads_port` is what the door tells of the public reads, 0: nowhere."""

    hotkey: str
    network: str
    netuid: int
    state_dir: str
    dsn: str
    bodies_url: str
    policy: Policy
    suites: dict[str, tuple[Problem, ...]]
    catalogue_dir: str
    reads: int = NO_SOCKET
    reads_port: int = 0
    clients: int
    is_sn15_served: bool
    door: int = NO_SOCKET
    log_format: Literal["auto", "console", "json"]
    log_level: Literal["debug", "info", "warning", "error"]


class ServingState(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the process: it serves, with so many streams of the live tail; or `failure` is why it ends."""

    clients: int = 0
    failure: Failure | None = None


STOP_LINE = b'"stop"\n'


def encode_line(value: ServingSetup | ServingState) -> bytes:
    """One line."""
    return msgspec.json.encode(value) + b"\n"
