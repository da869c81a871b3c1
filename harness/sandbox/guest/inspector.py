"""The self-test agent: it reports what it can see and reach from inside, with harmless attempts only.

The host compares the report with what the level promises (`harness.sandbox.selftest`) and looks at its own side of each
attempt. The problem it is given names the canaries: a file, a directory, a TCP port and an abstract socket of the host.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
from pathlib import Path

_CLONE_NEWUSER = 0x10000000


def _can_read(path: str) -> bool:
    try:
        Path(path).read_bytes()
    except OSError:
        return False
    return True


def _can_connect(family: int, address: str | tuple[str, int]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as stream:
            stream.settimeout(1)
            stream.connect(address)
    except OSError:
        return False
    return True


def _writable_directories() -> list[str]:
    found = []
    for directory, names, _ in os.walk("/"):
        if directory.startswith(("/proc", "/sys", "/opt/py/lib/python")):
            names[:] = []
            continue
        path = Path(directory, "arena-inspector")
        try:
            path.touch(exist_ok=False)
            found.append(directory)
            path.unlink()
        except OSError:
            continue
    return sorted(found)


def _status() -> dict[str, str]:
    pairs = (line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {key: value.strip() for key, value in pairs}


def _can_create_user_namespace() -> bool:
    return bool(ctypes.CDLL(None).unshare(_CLONE_NEWUSER) == 0)


def agent_main(problem: dict[str, object]) -> dict[str, object]:
    """The report, as the claim of this run."""
    canaries = problem["canaries"]
    assert isinstance(canaries, dict)
    status = _status()
    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "capabilities": [status[name] for name in ("CapPrm", "CapEff", "CapAmb")],
        "no_new_privileges": status["NoNewPrivs"],
        "seccomp": status["Seccomp"],
        "pids": sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()),
        "root": sorted(entry.name for entry in Path("/").iterdir()),
        "environment": sorted(os.environ),
        "writable": _writable_directories(),
        "reads_file": _can_read(str(canaries["file"])),
        "reads_passwd": _can_read("/etc/passwd"),
        "reaches_port": _can_connect(socket.AF_INET, ("127.0.0.1", canaries["port"])),
        "reaches_socket": _can_connect(socket.AF_UNIX, "\0" + str(canaries["abstract"])),
        "makes_namespace": _can_create_user_namespace(),
        "rlimits": {
            name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1]
            for name in ("CORE", "FSIZE", "NOFILE", "CPU", "AS", "NPROC")
        },
    }
