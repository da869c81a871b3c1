"""Bubblewrap: the contract of every jail, and the limits that its namespaces keep; how guests end without a jail."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.sandbox.port import GuestExit, GuestJob, Host
from harness.sandbox.processes import descendants
from tests.harness.jail_stand import (
    WHY_NO_JAIL,
    CallHost,
    best_sandbox,
    has_jail,
    jail_without_cgroup,
    reference_sandbox,
    run,
)
from tests.harness.sandbox_contract import EndingsContract, SandboxContract

needs_jail = pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)


@needs_jail
class TestBubblewrap(SandboxContract, EndingsContract):
    @pytest.fixture
    def sandbox(self):
        return best_sandbox()

    @pytest.fixture
    def bare(self):
        return jail_without_cgroup()


class AnySource:
    """The level without a jail, for whatever source it is given."""

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        return reference_sandbox(job.source).run(job, host)


class TestReference(EndingsContract):
    @pytest.fixture
    def sandbox(self):
        return AnySource()


@needs_jail
def test_forks_end_at_the_limit_inside_the_jail():
    source = """
import os, time
def agent_main(p):
    count = 0
    try:
        for _ in range(60):
            if os.fork() == 0:
                time.sleep(30)
            count += 1
    except OSError as error:
        return [count, type(error).__name__]
    return [count, ""]
"""
    count, error = json.loads(run(source, processes=20).claim)
    assert count < 20 and error == "BlockingIOError"


@needs_jail
def test_the_disk_is_small_on_every_writable_mount():
    source = """
import os
from arena_sdk import tools
def fill(directory):
    written = 0
    try:
        for i in range(64):
            with open(os.path.join(directory, f"f{i}"), "wb") as file:
                written += file.write(b"x" * (1 << 20))
    except OSError:
        pass
    return written
def agent_main(p):
    tools.call("look")
    writable = [d for d, _, _ in os.walk("/") if os.access(d, os.W_OK)]
    return {directory: fill(directory) for directory in writable}
"""
    mounted: set[str] = set()
    before = set(descendants(os.getpid()))

    def look(method, params):
        (*_, guest) = [pid for pid in descendants(os.getpid()) if pid not in before]
        lines = Path("/proc", str(guest), "mounts").read_text().splitlines()
        mounted.update(line.split()[1] for line in lines if line.split()[3].startswith("rw"))
        return {"result": "1", "failure": None}

    filled = json.loads(run(source, CallHost(look), disk_bytes=8 << 20).claim)
    # Devices are bind mounts of one file each: nothing can be put there.
    assert {place for place in mounted if not place.startswith("/dev/")} | {"/dev/shm"} == set(filled)
    assert filled["/tmp"] and sum(filled.values()) <= 9 << 20, filled
