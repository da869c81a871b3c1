"""The self-test agent: it reports what it can see and reach from inside, with harmless attempts only.

What hosts differ in is tried: namespaces, mounts, Landlock, uids and limits. The system-call filter is the same program
on every host, so that it is on is enough here; what it stops is the business of its own tests and of the red team.

The host compares the report with what the level promises (`harness.sandbox.probe`). The problem it is given names
the canaries: a directory anybody may write to with a file and a socket in it, a TCP port, an abstract socket, and a
process of the host.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_PR_GET_SECCOMP, _PR_GET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_IS_SET = 21, 39, 47, 1
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64
_SECCOMP_MODE_FILTER = 2
_WATCHED_S = 0.15  # the host looks every 100 ms: a host that may not see its guest is found out here
_LIBC = ctypes.CDLL(None, use_errno=True)


def _succeeds(*attempts: Callable[[], object]) -> bool:
    """True when one of them does not raise."""
    for attempt in attempts:
        try:
            attempt()
        except OSError:
            continue
        return True
    return False


def _can_connect(family: int, address: str | tuple[str, int]) -> bool:
    def connect() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as stream:
            stream.settimeout(1)
            stream.connect(address)

    return _succeeds(connect)


def _can_send(path: str) -> bool:
    """A datagram to a path-named socket, through one end of a socket pair: no socket() is needed for it."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with left, right:
        return _succeeds(lambda: left.sendto(b"inspector", path))


def _writable_directories(canary: str) -> list[str]:
    temporary = os.environ["TMPDIR"]
    likely = [temporary, str(Path(temporary).parent), canary, "/tmp", "/var/tmp", "/run", "/dev/shm", "/dev", "/"]
    for directory, names, _ in os.walk("/"):
        if directory.startswith(("/proc", "/sys", "/opt/py/lib/python")):
            names[:] = []
        else:
            likely.append(directory)
    found = set()
    for directory in likely:
        path = Path(directory, "arena-inspector")
        try:
            path.touch(exist_ok=False)
            found.add(directory)
            path.unlink()
        except OSError:
            continue
    return sorted(found)


def _names(directory: str) -> list[str]:
    try:
        return sorted(entry.name for entry in Path(directory).iterdir())
    except OSError:
        return []


def _capabilities() -> list[int]:
    """Permitted, effective and ambient sets, asked of the kernel: /proc may be closed."""
    data = ctypes.create_string_buffer(24)
    if _LIBC.capget(struct.pack("=Ii", _CAPABILITY_VERSION, 0), data) != 0:
        return [-1]
    effective, permitted, _, effective_high, permitted_high, _ = struct.unpack("=6I", data.raw)
    ambient = sum(
        1 << number
        for number in range(_CAPABILITIES)
        if _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_IS_SET, number, 0, 0) == 1
    )
    return [permitted | permitted_high << 32, effective | effective_high << 32, ambient]


def _lock() -> None:
    with Path(sys.argv[0]).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back at once


def agent_main(problem: dict[str, object]) -> dict[str, object]:
    """The report, as the claim of this run: which attempts succeeded, in words, and what levels differ in."""
    canaries = problem["canaries"]
    assert isinstance(canaries, dict)
    directory, pid = str(canaries["directory"]), int(canaries["pid"])
    file = f"{directory}/file"
    time.sleep(_WATCHED_S)
    capabilities = _capabilities()
    successes = {
        f"it has capabilities {capabilities}": set(capabilities) != {0},
        "it can gain privileges": _LIBC.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1,
        "no system-call filter is on": _LIBC.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) != _SECCOMP_MODE_FILTER,
        "it sees processes of the host": any(name.isdigit() for name in _names("/proc")),
        "it reads a file of the host": _succeeds(Path(file).read_bytes, Path("/etc/passwd").read_bytes),
        "it reaches a port of the host": _can_connect(socket.AF_INET, ("127.0.0.1", canaries["port"])),
        "it reaches a socket of the host": _can_connect(socket.AF_UNIX, "\0" + str(canaries["abstract"]))
        or _can_send(f"{directory}/socket"),
        "it changes a file of the host": _succeeds(lambda: os.utime(file, (1, 1))),
        "it opens sockets, so its filter is another one": _succeeds(lambda: socket.socket(socket.AF_UNIX).close()),
        "it locks files, so its filter is another one": _succeeds(_lock),
        "it can make namespaces": _LIBC.unshare(_CLONE_NEWUSER) == 0,
    }
    return {
        "successes": [name for name, is_so in successes.items() if is_so],
        "ids": [os.getuid(), os.getgid(), *os.getgroups()],
        "root": _names("/"),
        "temporary": os.environ["TMPDIR"],
        "writable": _writable_directories(directory),
        "reaches_process": _succeeds(lambda: os.kill(pid, 0), lambda: resource.prlimit(pid, resource.RLIMIT_CORE)),
        "rlimits": {
            name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1]
            for name in ("CORE", "FSIZE", "NOFILE", "CPU", "AS", "NPROC", "SIGPENDING")
        },
    }
