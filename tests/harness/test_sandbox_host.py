"""What happens to guests when their host does not end well, and how the host keeps its own things apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.sandbox.cgroup import (
    Cgroups,
    find_cgroups,
    locate,
    memory_limit_bytes,
    open_group,
    sweep_groups,
)
from harness.sandbox.processes import FIRST_UID, TreeCpu, counted_bytes, descendants, lease_uid
from tests.harness.jail_stand import WHY_NO_JAIL, has_jail, state_dir

REPOSITORY = Path(__file__).parents[2]

HOST = """
import os, sys
from pathlib import Path
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestJob
from harness.sandbox.probe import open_sandbox
from foundation.canonical import text_hash

source = sys.argv[3]
sandbox = open_sandbox(Path(sys.argv[1]), reference_sha256s=frozenset({text_hash(source)}), slots=1, wanted=sys.argv[2])

class Host:
    def call(self, method, params):
        print("started", flush=True)
        return {"result": "1", "failure": None}

sandbox.run(GuestJob(source=source, problem="{}", limits=EpisodeLimits(), tools="[]", models=()), Host())
"""
LOOPING = (
    "import time\nfrom arena_sdk import tools\ndef agent_main(p):\n tools.call('x')\n while True: time.sleep(0.01)"
)


@pytest.mark.parametrize("level", ["bubblewrap", "reference-agents-only"])
def test_killing_the_host_leaves_no_guest_behind(level, tmp_path):
    if level == "bubblewrap" and not has_jail():
        pytest.skip(WHY_NO_JAIL)
    command = [sys.executable, "-c", HOST, str(state_dir()), level, LOOPING]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # a killed host leaves its guest's work folder there
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert any("started" in line for line in host.stdout)
        guests = {pid: _started_at(pid) for pid in descendants(host.pid)[1:]}
        assert len(guests) >= (3 if level == "bubblewrap" else 1)
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(_started_at(pid) == born for pid, born in guests.items()):
        time.sleep(0.02)
    assert not [pid for pid, born in guests.items() if _started_at(pid) == born]


def test_a_process_tree_is_found_whole_and_its_memory_summed():
    child = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"]
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as top:
        deadline = time.monotonic() + 20
        while len(descendants(top.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        family = descendants(top.pid)
        assert len(family) == 2 and family[0] == top.pid
        assert counted_bytes(family) > counted_bytes(family[:1]) > 1 << 20
        assert top.stdin is not None
        top.stdin.close()
    assert descendants(top.pid) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root leases uids; the leases' directory is root's")
def test_two_jails_never_share_a_uid_and_a_lease_ends_with_its_context(tmp_path):
    with lease_uid(tmp_path) as first, lease_uid(tmp_path) as second:
        assert (first, second) == (FIRST_UID, FIRST_UID + 1)
    with lease_uid(tmp_path) as again:
        assert again == FIRST_UID


V1 = "8:pids:/box\n4:memory:/box\n2:cpuacct:/box\n0::/\n"
V1_MOUNTS = """30 20 0:26 / {root}/memory rw - cgroup cgroup rw,memory
31 20 0:27 / {root}/pids rw - cgroup cgroup rw,pids
33 20 0:29 / {root}/cpu rw - cgroup cgroup rw,cpu,cpuacct
32 20 0:28 / {root}/unified rw - cgroup2 cgroup2 rw
"""
V2 = "0::/system.slice/arena.service\n"
V2_MOUNTS = "30 20 0:26 / {root} rw - cgroup2 cgroup2 rw\n"
CONTAINER = "0::/docker/abc/inner\n"
CONTAINER_MOUNTS = "30 20 0:26 /docker/abc {root} rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("membership", "mounts", "expected"),
    [
        (V1, V1_MOUNTS, ("v1", "memory/box", "pids/box", "cpu/box")),
        (V2, V2_MOUNTS, ("v2", *["system.slice/arena.service"] * 3)),
        (CONTAINER, CONTAINER_MOUNTS, ("v2", *["inner"] * 3)),
        (V2, "", None),
        ("", V1_MOUNTS, None),
    ],
    ids=["v1 and hybrid", "v2", "a container's part", "nothing mounted", "no membership"],
)
def test_the_own_group_is_found_in_every_layout(membership, mounts, expected):
    found = locate(membership, mounts.format(root="/c"))
    if expected is None:
        assert found is None
    else:
        version, memory, pids, cpu = expected
        assert found == Cgroups(version=version, memory=Path("/c", memory), pids=Path("/c", pids), cpu=Path("/c", cpu))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("memory.max", "max", None), ("memory.max", "4096\n", 4096), ("memory.limit_in_bytes", str(2**63 - 4096), None),
     ("memory.limit_in_bytes", "8192", 8192)],
)  # fmt: skip
def test_the_memory_of_the_own_group_is_known_when_it_is_limited(name, text, expected, tmp_path):
    membership, mounts = (V2, V2_MOUNTS) if name == "memory.max" else (V1, V1_MOUNTS)
    found = locate(membership, mounts.format(root=tmp_path))
    found.memory.mkdir(parents=True)
    (found.memory / name).write_text(text)
    assert memory_limit_bytes(membership, mounts.format(root=tmp_path)) == expected


def test_cpu_time_of_a_tree_counts_processes_that_have_ended():
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    program = (
        f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])\nprint(flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as top:
        assert top.stdout is not None and top.stdin is not None
        top.stdout.readline()
        assert TreeCpu(top.pid).read_s() >= 0.4
        top.stdin.close()


def test_groups_left_by_dead_hosts_are_swept_and_others_stay(tmp_path):
    dead, alive, foreign = tmp_path / "arena-jail-999999999-1", tmp_path / f"arena-jail-{os.getpid()}-1", tmp_path / "x"
    for directory in (dead, alive, foreign):
        directory.mkdir()
    sweep_groups(Cgroups(version="v2", memory=tmp_path, pids=tmp_path))
    assert (dead.exists(), alive.exists(), foreign.exists()) == (False, True, True)


def test_a_real_group_holds_a_process_and_is_gone_afterwards():
    found = find_cgroups(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    if not isinstance(found, Cgroups):
        pytest.skip(f"no writable cgroup: {found}")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        with open_group(found, memory_bytes=64 << 20, processes=8) as group:
            group.add(child.pid)
            own = found.memory.glob(f"arena-jail-{os.getpid()}-*")
            (directory,) = (one for one in own if str(child.pid) in (one / "cgroup.procs").read_text().split())
            assert not group.was_out_of_memory()
            assert not group.counts_cpu or group.cpu_time_s() >= 0
            assert child.stdin is not None
            child.stdin.close()
            child.wait()
        assert not directory.exists()


def _started_at(pid: int) -> str:
    """The start time of a live process; empty when it is gone or only waits to be reaped."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
