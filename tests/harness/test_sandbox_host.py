"""Groups, process trees and uids: how the host keeps its own things apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.limits import EpisodeLimits
from harness.sandbox import processes as host


def test_cpu_time_of_a_tree_counts_processes_that_have_ended():
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    program = (
        f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])\nprint(flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as top:
        top.stdout.readline()
        assert host.TreeCpu(top.pid).read_s() >= 0.4
        top.stdin.close()


def test_children_are_the_same_where_the_kernel_lists_none(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        listed = host.descendants(os.getpid())
        monkeypatch.setattr(host, "_children_listed", None)
        monkeypatch.setattr(host.Path, "exists", lambda path: path.name != "children")
        assert child.pid in listed and sorted(host.descendants(os.getpid())) == sorted(listed)
        child.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root leases uids; the leases' directory is root's")
def test_two_jails_never_share_a_uid_and_a_lease_ends_with_its_context(tmp_path):
    with host.lease_uid(tmp_path) as first, host.lease_uid(tmp_path) as second:
        assert (first, second) == (host.FIRST_UID, host.FIRST_UID + 1)
    with host.lease_uid(tmp_path) as again:
        assert again == host.FIRST_UID


V1 = "8:pids:/box\n4:memory:/box\n2:cpuacct:/box\n0::/\n"
V1_MOUNTS = """30 20 0:26 / {root}/memory rw - cgroup cgroup rw,memory
31 20 0:27 / {root}/pids rw - cgroup cgroup rw,pids
33 20 0:29 / {root}/cpu rw - cgroup cgroup rw,cpu,cpuacct
32 20 0:28 / {root}/unified rw - cgroup2 cgroup2 rw
34 20 0:30 / /proc rw - proc proc rw
"""
V2 = "0::/system.slice/arena.service\n"
V2_MOUNTS = "30 20 0:26 / {root} rw - cgroup2 cgroup2 rw\n"
CONTAINER = "0::/docker/abc/inner\n"
CONTAINER_MOUNTS = "30 20 0:26 /docker/abc {root} rw - cgroup2 cgroup2 rw\n"


def groups_of(folder: Path, membership: str, mounts: str) -> host.Cgroups | None:
    (folder / "cgroup").write_text(membership)
    (folder / "mountinfo").write_text(mounts.format(root=folder / "c"))
    return host.own_groups(folder)


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
def test_the_own_group_is_found_in_every_layout(membership, mounts, expected, tmp_path):
    found = groups_of(tmp_path, membership, mounts)
    if expected is None:
        assert found is None
    else:
        version, *paths = expected
        memory, pids, cpu = (tmp_path / "c" / path for path in paths)
        assert found == host.Cgroups(version=version, memory=memory, pids=pids, cpu=cpu)
    assert host.own_groups(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("memory.max", "max", None), ("memory.max", "4096\n", 4096), ("memory.limit_in_bytes", str(2**63 - 4096), None),
     ("memory.limit_in_bytes", "8192", 8192), ("other", "1", None)],
)  # fmt: skip
def test_the_memory_of_the_own_group_is_known_when_it_is_limited(name, text, expected, tmp_path):
    found = groups_of(tmp_path, *((V2, V2_MOUNTS) if name == "memory.max" else (V1, V1_MOUNTS)))
    found.memory.mkdir(parents=True)
    (found.memory / name).write_text(text)
    assert found.memory_limit_bytes() == expected


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_what_a_group_counts_is_read_in_either_version(version, tmp_path):
    group = host.Cgroups(version=version, memory=tmp_path, pids=tmp_path, cpu=tmp_path)
    events = tmp_path / ("memory.events" if version == "v2" else "memory.oom_control")
    for count in (0, 3):
        events.write_text(f"oom_kill_disable 1\nunder_oom 0\noom_kill {count}\n")
        assert group.was_out_of_memory() == (count > 0)
    (tmp_path / "cpuacct.usage").write_text("2500000000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert group.cpu_time_s() == 2.5


def test_groups_left_by_dead_hosts_are_swept_and_others_stay(tmp_path):
    dead, alive, foreign = tmp_path / "arena-jail-999999999-1", tmp_path / f"arena-jail-{os.getpid()}-1", tmp_path / "x"
    for directory in (dead, alive, foreign):
        directory.mkdir()
    host.sweep_groups(host.Cgroups(version="v2", memory=tmp_path, pids=tmp_path))
    assert (dead.exists(), alive.exists(), foreign.exists()) == (False, True, True)


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_real_group_holds_a_process_and_is_gone_afterwards(is_moved):
    found = host.find_cgroups()
    if not isinstance(found, host.Cgroups):
        pytest.skip(f"no writable cgroup: {found}")
    command, pipe = [sys.executable, "-c", "print(flush=True); input()"], subprocess.PIPE
    with (
        host.open_group(found, EpisodeLimits(memory_bytes=64 << 20, processes=8)) as group,
        subprocess.Popen(command if is_moved else group.entering(command), stdin=pipe, stdout=pipe) as child,
    ):
        child.stdout.readline()
        if is_moved:
            group.add(child.pid)
        for directory in group.directories():
            assert (directory / "cgroup.procs").read_text().split() == [str(child.pid)]
        assert (group.pids / "pids.max").read_text() == "8\n"
        assert not group.was_out_of_memory()
        assert group.cpu is None or group.cpu_time_s() >= 0
        child.stdin.close()
    assert not any(directory.exists() for directory in group.directories())
