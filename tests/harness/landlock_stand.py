"""Landlock sandboxes for the tests, on whatever kernel and as whoever runs them."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.sandbox.guest_files import open_guest_root
from harness.sandbox.landlock import Landlock, LandlockSandbox
from harness.sandbox.probe import open_sandbox
from tests.harness.sandbox_contract import is_alive

IS_ROOT = os.geteuid() == 0


@functools.cache
def open_state_dir() -> Path:
    """Where a guest with a uid of its own can reach its interpreter."""
    path = Path(tempfile.mkdtemp(prefix="arena-landlock-"))
    path.chmod(0o755)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def landlock_or_reason() -> LandlockSandbox | str:
    try:
        sandbox = open_sandbox(open_state_dir(), reference_sha256s=frozenset(), slots=4, wanted="landlock")
    except ArenaError as error:
        return error.failure.detail
    assert isinstance(sandbox, LandlockSandbox)
    return sandbox


def best_landlock() -> LandlockSandbox:
    found = landlock_or_reason()
    if isinstance(found, str):
        pytest.skip(f"Landlock does not hold here: {found}")
    return found


def older(abi: int) -> LandlockSandbox:
    """The same adapter as on a kernel whose Landlock is `abi`, without a cgroup."""
    best = best_landlock()
    how = Landlock(abi=min(abi, best.landlock.abi), uid_mode=best.landlock.uid_mode, cgroups=None)
    root = open_guest_root(open_state_dir())
    return LandlockSandbox(how, root, best.level, slots=4, clock=time.monotonic)


def guests_left() -> list[int]:
    """Living processes started from the guest root of these tests."""
    marker = str(open_state_dir()).encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(marker):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if is_alive(pid)]
