"""The self-test agent: it reports what it can see and reach from inside, with harmless attempts only.

The host compares the report with what the level promises (`harness.sandbox.probe`) and looks at its own side
of each attempt. The problem it is given names the canaries: a file, a directory anybody may write to, a TCP port, an
abstract and a path-named socket, and a process of the host.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
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
_MQ_OPEN = {"x86_64": 240, "aarch64": 180}
_PR_SET_DUMPABLE = 4
_F_SETPIPE_SZ = 1031
_COUNTERS = ("stat", "loadavg", "meminfo", "vmstat", "locks", "sys/fs/file-nr", "sys/kernel/random/boot_id")
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


def _can_read(path: str) -> bool:
    return _succeeds(Path(path).read_bytes)


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


def _can_open_queues() -> bool:
    """With a name that is no address: a kernel that would have looked at it answers EFAULT."""
    number = _MQ_OPEN.get(platform.machine())
    if number is None:
        return False
    _LIBC.syscall(number, None, 0, 0, None)
    return ctypes.get_errno() != errno.EPERM


def _can_lock() -> bool:
    """A lock on a file of the guest root, of each kind; given back at once."""
    with Path(sys.argv[0]).open("rb") as file:
        return _succeeds(
            lambda: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB),
            lambda: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB),
            lambda: fcntl.fcntl(file, fcntl.F_NOTIFY, 0),
        )


def _can_map_without_file() -> bool:
    def map_zero() -> None:
        with Path("/dev/zero").open("r+b", buffering=0) as zero:
            mmap.mmap(zero.fileno(), mmap.PAGESIZE).close()

    return _succeeds(lambda: mmap.mmap(-1, mmap.PAGESIZE).close(), map_zero)


def _can_grow_buffers() -> bool:
    """Larger buffers, files in flight, pages held by a pipe; the calls get no page and no file to hold."""
    left, right = socket.socketpair()
    readable, writable = os.pipe()
    try:
        with left, right:
            return _succeeds(
                lambda: left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20),
                lambda: left.sendmsg([b"x"]),
                lambda: fcntl.fcntl(writable, _F_SETPIPE_SZ, 1 << 17),
                lambda: os.splice(readable, writable, 0),
                lambda: os.sendfile(writable, readable, 0, 0),
            )
    finally:
        os.close(readable)
        os.close(writable)


def agent_main(problem: dict[str, object]) -> dict[str, object]:
    """The report, as the claim of this run: which attempts succeeded, in words, and what levels differ in."""
    canaries = problem["canaries"]
    assert isinstance(canaries, dict)
    file, pid = str(canaries["file"]), int(canaries["pid"])
    time.sleep(_WATCHED_S)
    capabilities = _capabilities()
    successes = {
        f"it has capabilities {capabilities}": set(capabilities) != {0},
        "it can gain privileges": _LIBC.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1,
        "no system-call filter is on": _LIBC.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) != _SECCOMP_MODE_FILTER,
        "it sees processes of the host": any(name.isdigit() for name in _names("/proc")),
        "it reads a file of the host": _can_read(file) or _can_read("/etc/passwd"),
        "it reaches a port of the host": _can_connect(socket.AF_INET, ("127.0.0.1", canaries["port"])),
        "it reaches a socket of the host": _can_connect(socket.AF_UNIX, "\0" + str(canaries["abstract"]))
        or _can_send(str(canaries["datagram"])),
        "it changes a file of the host": _succeeds(lambda: os.utime(file, (1, 1))),
        "it makes kernel objects that outlive it": _can_open_queues(),
        "it opens sockets": _succeeds(lambda: socket.socket(socket.AF_UNIX).close()),
        "it locks files that others see": _can_lock(),
        "it watches files that others see": _LIBC.inotify_init1(0) >= 0,
        "it holds memory that no count shows": _can_map_without_file()
        or _can_grow_buffers()
        or _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0) == 0,
        # numbers that all guests of a host change together
        "it reads counters of the whole host": _LIBC.sysinfo(ctypes.create_string_buffer(256)) == 0
        or any(_can_read(f"/proc/{name}") for name in _COUNTERS),
        "it sees the jail's first process": _can_read("/proc/1/cmdline")
        or _succeeds(lambda: os.close(os.open("/proc/1/mem", os.O_RDONLY))),
        "it can make namespaces": _LIBC.unshare(_CLONE_NEWUSER) == 0,
    }
    return {
        "successes": [name for name, is_so in successes.items() if is_so],
        "ids": [os.getuid(), os.getgid(), *os.getgroups()],
        "root": _names("/"),
        "temporary": os.environ["TMPDIR"],
        "writable": _writable_directories(str(canaries["directory"])),
        "reaches_process": _succeeds(lambda: os.kill(pid, 0), lambda: resource.prlimit(pid, resource.RLIMIT_CORE)),
        "rlimits": {
            name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1]
            for name in ("CORE", "FSIZE", "NOFILE", "CPU", "AS", "NPROC", "SIGPENDING")
        },
    }
