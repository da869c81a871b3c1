"""The self-test of a jail: run an agent that tries to get out, and believe the level only when it could not.

It runs at every start, because what a kernel allows changes under a running installation: a distribution may forbid
user namespaces, or ship a bubblewrap before 0.8. Attempts are harmless; verdicts that can be had on the host's side
(was the port reached?) are taken there. A jail that fails one check is not used at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from pathlib import Path

import msgspec
import orjson

from foundation.canonical import foreign_text
from foundation.errors import ArenaError
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestCallError, GuestJob, Sandbox
from harness.sandbox.rpc import OPEN_FILES

_LIMITS = EpisodeLimits(agent_time_ms=20_000)
_NO_CAPABILITY = "0" * 16
_TEMPORARY = "$TMPDIR"
_GUEST_ROOT = frozenset({"arena", "dev", "lib", "lib64", "opt", "proc", "tmp", "usr"})


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    """What a level promises about its guest, as far as levels differ."""

    visible: frozenset[str]  # names in / at most
    writable: frozenset[str]  # directories that must be writable; $TMPDIR is the guest's own
    pids_at_most: int  # visible processes
    has_pid_namespace: bool = True  # a host's process can't be named, so the number means another one
    counts_processes: bool = True  # RLIMIT_NPROC is the policy's limit


NAMESPACED = Promises(visible=_GUEST_ROOT, writable=frozenset({"/dev/shm", "/tmp"}), pids_at_most=0)
UNNAMESPACED = Promises(visible=frozenset(), writable=frozenset({_TEMPORARY}), pids_at_most=0, has_pid_namespace=False)


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
    temporary: str
    writable: tuple[str, ...]
    reads_file: bool
    reads_passwd: bool
    reaches_port: bool
    reaches_socket: bool
    reaches_path: bool
    signals_host: bool
    limits_host: bool
    changes_times: bool
    opens_queues: bool
    opens_sockets: bool
    locks_files: bool
    watches_files: bool
    maps_without_file: bool
    grows_buffers: bool
    hides_files: bool
    reads_counters: bool
    sees_first_process: bool
    makes_namespace: bool
    rlimits: dict[str, int]


class _NoCalls:
    """A host for an agent that has nothing to ask."""

    def call(self, method: str, params: dict[str, object]) -> object:
        raise GuestCallError("A1050", f"{method} is not served during the self-test")


def inspect(sandbox: Sandbox, *, is_uid_own: bool, promises: Promises = NAMESPACED) -> tuple[str, ...]:
    """The promises that `sandbox` breaks, in words; empty when it holds.

    `is_uid_own`: the guest must have a uid of its own. Raises ArenaError V2002 when the guest does not start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="arena-selftest-") as directory,
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        canaries = _Canaries(Path(directory), port, abstract, datagrams)
        problem = foreign_text({"canaries": canaries.as_problem()})
        source = (Path(__file__).parents[1] / "guest" / "inspector.py").read_text(encoding="utf-8")
        job = GuestJob(source=source, problem=problem, limits=_LIMITS, tools="[]", models=())
        ended = sandbox.run(job, _NoCalls())
        if ended.end != "final" or ended.error:
            last_line = ended.output_tail.strip().rpartition("\n")[2]
            raise ArenaError("V2002", f"the self-test ended with {ended.end}: {ended.error} {last_line}")
        try:
            report = msgspec.convert(orjson.loads(ended.claim), Report, strict=True)
        except msgspec.ValidationError as error:
            raise ArenaError("V2002", f"the self-test's report is malformed: {error}") from error
        return broken_promises(report, is_uid_own=is_uid_own, promises=promises) + canaries.touched()


def broken_promises(report: Report, *, is_uid_own: bool, promises: Promises = NAMESPACED) -> tuple[str, ...]:
    """The promises that `report` shows broken, in words."""
    limits = {"CORE": 0, "FSIZE": _LIMITS.disk_bytes, "CPU": _LIMITS.cpu_time_s + 1, "AS": _LIMITS.memory_bytes}
    limits |= {"SIGPENDING": 0, "NOFILE": OPEN_FILES}
    if promises.counts_processes:
        limits["NPROC"] = _LIMITS.processes
    writable = {_TEMPORARY if directory == report.temporary else directory for directory in report.writable}
    if _TEMPORARY not in promises.writable:
        writable = set(report.writable)
    is_writable_as_promised = promises.writable == writable
    is_host_reached = not promises.has_pid_namespace and (report.signals_host or report.limits_host)
    is_memory_hidden = report.maps_without_file or report.grows_buffers or report.hides_files
    checks = {
        "it runs as the host's user": is_uid_own and report.uid == os.getuid(),
        "it runs as root": is_uid_own and 0 in (report.uid, report.gid),
        "it has supplementary groups of the host": is_uid_own and bool(set(report.groups) - {report.gid}),
        f"it has capabilities {report.capabilities}": set(report.capabilities) != {_NO_CAPABILITY},
        "it can gain privileges": report.no_new_privileges != "1",
        "no system-call filter is on": report.seccomp != "2",
        "it sees processes of the host": len(report.pids) > promises.pids_at_most,
        f"it sees {sorted(set(report.root) - promises.visible)} in /": not set(report.root) <= promises.visible,
        "it reads a file of the host": report.reads_file or report.reads_passwd,
        f"it can write to {sorted(writable)}": not is_writable_as_promised,
        "it reaches a port of the host": report.reaches_port,
        "it reaches a socket of the host": report.reaches_socket or report.reaches_path,
        "it reaches a process of the host": is_host_reached,
        "it changes a file of the host": report.changes_times,
        "it makes kernel objects that outlive it": report.opens_queues,
        "it opens sockets": report.opens_sockets,
        "it locks files that others see": report.locks_files,
        "it watches files that others see": report.watches_files,
        "it holds memory that no count shows": is_memory_hidden,
        "it reads counters of the whole host": report.reads_counters,
        "it sees the jail's first process": report.sees_first_process,
        "it can make namespaces": report.makes_namespace,
        "its limits are not set": any(report.rlimits[name] > value for name, value in limits.items()),
    }
    return tuple(name for name, is_broken in checks.items() if is_broken)


class _Canaries:
    """Things of the host that a guest is dared to touch, and the host's own look at them."""

    def __init__(self, directory: Path, port: socket.socket, abstract: socket.socket, datagrams: socket.socket) -> None:
        """`port` listens; the other two are bound here, to an abstract name and to a path."""
        self._directory, self._port, self._datagrams = directory, port, datagrams
        directory.chmod(0o777)  # any user may enter by its permissions: only the jail keeps a guest out
        self._abstract = f"arena-selftest-{secrets.token_hex(8)}"
        abstract.bind("\0" + self._abstract)
        abstract.listen()
        self._file = directory / "file"
        self._file.write_bytes(b"canary")
        self._file.chmod(0o644)
        self._changed_ns = self._file.stat().st_mtime_ns
        path = directory / "socket"
        datagrams.bind(str(path))
        path.chmod(0o777)
        port.setblocking(False)
        datagrams.setblocking(False)

    def as_problem(self) -> dict[str, object]:
        """Where the guest finds them."""
        return {
            "file": str(self._file),
            "directory": str(self._directory),
            "datagram": str(self._directory / "socket"),
            "port": self._port.getsockname()[1],
            "abstract": self._abstract,
            "pid": os.getpid(),
        }

    def touched(self) -> tuple[str, ...]:
        """What happened to them, in words, whatever the guest says."""
        found = []
        with contextlib.suppress(BlockingIOError):
            self._port.accept()[0].close()
            found.append("the host's port was reached")
        with contextlib.suppress(BlockingIOError):
            self._datagrams.recv(64)
            found.append("the host's path-named socket was reached")
        if self._file.stat().st_mtime_ns != self._changed_ns:
            found.append("the host's file was changed")
        if {path.name for path in self._directory.iterdir()} != {"file", "socket"}:
            found.append("the host's directory was written to")
        return tuple(found)
