"""The guest's command line and environment variables: the same at every level, wherever the guest root stands."""

from __future__ import annotations

from pathlib import Path

from harness.sandbox.guest_root.rootfs import PYTHON_HOME, RUNNER


def guest_environment(root: Path = Path("/")) -> dict[str, str]:
    """All variables a guest has. `root` is the guest root as the guest sees it."""
    home = str(root / PYTHON_HOME.lstrip("/"))
    return {
        "PATH": f"{home}/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": f"{home}/lib",
        "MALLOC_ARENA_MAX": "2",  # the C library reserves 64 MiB of the address-space limit for each arena
        "PYTHONHOME": home,
        "PYTHONHASHSEED": "0",  # the order of sets is part of what an agent does: the same on every host
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }


def guest_command(root: Path = Path("/")) -> list[str]:
    """How the runner is started. Not with -I, which would drop the variables above; -s -P keep user and script
    directories off the module path."""
    python = str(root / PYTHON_HOME.lstrip("/") / "bin" / "python3")
    return [python, "-s", "-P", str(root / RUNNER.lstrip("/"))]
