"""The self-test of a jail: run an agent that tries to get out, and believe the level only when it could not.

It runs at every start, because what a kernel allows changes under a running installation (sandbox notes, section 5,
gotchas 5 and 9). Attempts are harmless; verdicts that can be had on the host's side (was the port reached?) are taken
there. A jail that fails one check is not used at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import orjson

from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestCallError, GuestJob, Sandbox
from problems.canonical import foreign_text
from problems.errors import ArenaError

_LIMITS = EpisodeLimits(agent_time_ms=20_000)
_EXPECTED_ROOT = {"arena", "dev", "lib", "lib64", "opt", "proc", "tmp", "usr"}
_EXPECTED_WRITABLE = ["/dev/shm", "/tmp"]
_NO_CAPABILITY = "0" * 16
_PIDS_AT_MOST = 3  # the jail's pid 1 and the guest, and nothing of the host


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the inspector says about itself (`guest/inspector.py`)."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: tuple[str, ...]
    no_new_privileges: str
    seccomp: str
    pids: tuple[int, ...]
    root: tuple[str, ...]
    environment: tuple[str, ...]
    writable: tuple[str, ...]
    reads_file: bool
    reads_passwd: bool
    reaches_port: bool
    reaches_socket: bool
    makes_namespace: bool
    rlimits: dict[str, int]


class _NoCalls:
    """A host for an agent that has nothing to ask."""

    def call(self, method: str, params: dict[str, object]) -> object:
        raise GuestCallError("A1050", f"{method} is not served during the self-test")


def inspect(sandbox: Sandbox, *, is_uid_own: bool) -> tuple[str, ...]:
    """The promises of a namespaced jail that `sandbox` breaks, in words; empty when it holds.

    `is_uid_own`: the guest must have a uid of its own. Raises ArenaError V2002 when the jail does not start.
    """
    with _canaries() as (canaries, was_reached):
        problem = foreign_text({"canaries": canaries})
        source = (Path(__file__).parent / "guest" / "inspector.py").read_text(encoding="utf-8")
        job = GuestJob(source=source, problem=problem, limits=_LIMITS, tools="[]", models=())
        ended = sandbox.run(job, _NoCalls())
        if ended.end != "final" or ended.error:
            last_line = ended.output_tail.strip().rpartition("\n")[2]
            raise ArenaError("V2002", f"the self-test ended with {ended.end}: {ended.error} {last_line}")
        try:
            report = msgspec.convert(orjson.loads(ended.claim), Report, strict=True)
        except msgspec.ValidationError as error:
            raise ArenaError("V2002", f"the self-test's report is malformed: {error}") from error
        return broken_promises(report, is_uid_own=is_uid_own, was_reached=was_reached())


def broken_promises(report: Report, *, is_uid_own: bool, was_reached: bool) -> tuple[str, ...]:
    """The promises that `report` shows broken, in words. `was_reached`: the host saw a connection."""
    limits = {
        "CORE": 0,
        "FSIZE": _LIMITS.disk_bytes,
        "CPU": _LIMITS.cpu_time_s + 1,
        "AS": _LIMITS.memory_bytes,
        "NPROC": _LIMITS.processes,
    }
    checks = {
        "it runs as the host's user": is_uid_own and report.uid == os.getuid(),
        "it runs as root": is_uid_own and 0 in (report.uid, report.gid),
        "it has supplementary groups of the host": is_uid_own and bool(set(report.groups) - {report.gid}),
        f"it has capabilities {report.capabilities}": set(report.capabilities) != {_NO_CAPABILITY},
        "it can gain privileges": report.no_new_privileges != "1",
        "no system-call filter is on": report.seccomp != "2",
        "it sees processes of the host": len(report.pids) > _PIDS_AT_MOST,
        f"it sees {sorted(set(report.root) - _EXPECTED_ROOT)} in /": not set(report.root) <= _EXPECTED_ROOT,
        "it reads a file of the host": report.reads_file or report.reads_passwd,
        f"it can write to {list(report.writable)}": list(report.writable) != _EXPECTED_WRITABLE,
        "it reaches a port of the host": report.reaches_port or was_reached,
        "it reaches a socket of the host": report.reaches_socket,
        "it can make namespaces": report.makes_namespace,
        "its limits are not set": any(report.rlimits[name] > value for name, value in limits.items()),
    }
    return tuple(name for name, is_broken in checks.items() if is_broken)


@contextlib.contextmanager
def _canaries() -> Iterator[tuple[dict[str, object], Callable[[], bool]]]:
    abstract = f"arena-selftest-{secrets.token_hex(8)}"
    with (
        tempfile.NamedTemporaryFile() as file,
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        file.write(b"canary")
        file.flush()
        Path(file.name).chmod(0o644)
        unix.bind("\0" + abstract)
        unix.listen()
        port.setblocking(False)

        def was_reached() -> bool:
            try:
                port.accept()[0].close()
            except BlockingIOError:
                return False
            return True

        canaries: dict[str, object] = {"file": file.name, "port": port.getsockname()[1], "abstract": abstract}
        yield canaries, was_reached
