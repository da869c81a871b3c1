"""Finding the level of a host: by trying it, with reasons and fixes, and never past the last level."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from harness.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox
from harness.sandbox.probe import diagnose, open_sandbox
from harness.sandbox.rootfs import open_guest_root
from harness.sandbox.seccomp import build_filter, native_architecture
from harness.sandbox.selftest import Report, broken_promises, inspect
from problems.errors import ArenaError
from tests.harness.jail_stand import (
    WHY_NO_JAIL,
    best_sandbox,
    guest_root,
    has_jail,
    jail_without_cgroup,
    reference_sandbox,
    run,
    state_dir,
)

REPOSITORY = Path(__file__).parents[2]
TRIVIAL = "def agent_main(p): return 1"


@pytest.fixture
def jail() -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)


def test_the_level_names_its_layers_and_the_guest(jail):
    level = best_sandbox().level
    assert level.may_race and {"pid-namespace", "network-namespace", "seccomp", "rlimits"} <= set(level.layers)
    assert level.guest_sha256 == guest_root().content_sha256
    assert level.python_version == ".".join(map(str, sys.version_info[:2]))


def test_each_way_in_that_holds_here_withstands_the_self_test(jail):
    for sandbox in (best_sandbox(), jail_without_cgroup()):
        assert isinstance(sandbox, BubblewrapSandbox)
        assert inspect(sandbox, is_uid_own=sandbox.bubblewrap.entry != "user") == ()


def test_a_jail_with_a_weak_filter_is_found_out(jail):
    best = best_sandbox()
    assert isinstance(best, BubblewrapSandbox)
    allow_everything = build_filter(native_architecture())[-8:]
    weak = BubblewrapSandbox(best.bubblewrap, guest_root(), allow_everything, best.level, slots=1, clock=lambda: 0.0)
    broken = inspect(weak, is_uid_own=False)
    # A user namespace entered as an ordinary user forbids more of them by itself (--disable-userns).
    assert ("it can make namespaces" in broken) == (best.bubblewrap.entry == "root")


SOUND = Report(
    uid=60_600, gid=60_600, groups=(), capabilities=("0" * 16,) * 3, no_new_privileges="1", seccomp="2", pids=(1, 2),
    root=("arena", "dev", "lib", "lib64", "opt", "proc", "tmp", "usr"), environment=(), writable=("/dev/shm", "/tmp"),
    reads_file=False, reads_passwd=False, reaches_port=False, reaches_socket=False, makes_namespace=False,
    rlimits={"CORE": 0, "FSIZE": 1, "NOFILE": 1, "CPU": 1, "AS": 1, "NPROC": 1},
)  # fmt: skip


def test_a_sound_report_breaks_no_promise():
    assert broken_promises(SOUND, is_uid_own=True, was_reached=False) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"uid": os.getuid()},
        {"uid": 0},
        {"gid": 0},
        {"groups": (4,)},
        {"capabilities": ("0" * 16, "0" * 15 + "1", "0" * 16)},
        {"no_new_privileges": "0"},
        {"seccomp": "0"},
        {"pids": tuple(range(1, 200))},
        {"root": ("arena", "home")},
        {"writable": ("/", "/dev/shm", "/tmp")},
        {"writable": ("/dev", "/dev/shm", "/tmp")},
        {"reads_file": True},
        {"reads_passwd": True},
        {"reaches_port": True},
        {"reaches_socket": True},
        {"makes_namespace": True},
        {"rlimits": {"CORE": 0, "FSIZE": 1, "NOFILE": 1, "CPU": 1, "AS": 2**63, "NPROC": 1}},
    ],
    ids=lambda change: "-".join(change),
)
def test_each_promise_that_a_report_breaks_is_noticed(change):
    assert broken_promises(msgspec.structs.replace(SOUND, **change), is_uid_own=True, was_reached=False)


def test_a_connection_that_the_host_saw_counts_whatever_the_guest_says():
    assert broken_promises(SOUND, is_uid_own=True, was_reached=True) == ("it reaches a port of the host",)


def test_a_level_nobody_knows_is_a_wrong_setting():
    with pytest.raises(ArenaError) as caught:
        open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="none")
    assert caught.value.failure.code == "V2030"


def test_the_reference_level_runs_what_ships_and_refuses_everything_else():
    shipped = reference_sandbox(TRIVIAL)
    assert run(TRIVIAL, sandbox=shipped).claim == "1"
    with pytest.raises(ArenaError) as caught:
        run(TRIVIAL + " ", sandbox=shipped)
    assert caught.value.failure.code == "V2003"


def test_the_reference_level_says_what_it_is_and_may_not_race(capfd):
    sandbox = open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="reference-agents-only")
    assert sandbox.level.name == "reference-agents-only" and not sandbox.level.may_race
    assert sandbox.level.degraded
    assert "reference_agents_only" in "".join(capfd.readouterr())


def test_doctor_names_what_holds(jail):
    findings = diagnose(state_dir())
    assert [finding for finding in findings if finding.subject.startswith("jail") and finding.is_ok]
    assert all(finding.is_ok or finding.fix for finding in findings)


SCRIPT = """
import sys
import tempfile
import time
from pathlib import Path
from harness.sandbox.probe import diagnose, open_sandbox
from problems.errors import ArenaError
state = Path(sys.argv[1])
sandbox = open_sandbox(state, reference_sha256s=frozenset(), slots=1)
print(sandbox.level.name, sandbox.level.may_race, all(f.fix for f in diagnose(state) if not f.is_ok))
try:
    open_sandbox(state, reference_sha256s=frozenset(), slots=1, wanted="bubblewrap")
except ArenaError as error:
    print(error.failure.code)
"""


def test_where_namespaces_are_not_allowed_it_falls_back_or_refuses_with_a_fix(jail):
    best = best_sandbox()
    assert isinstance(best, BubblewrapSandbox)
    # A jail that forbids further namespaces stands for a host that does.
    forbidding = [str(best.bubblewrap.binary), "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--"]
    done = subprocess.run(
        [*forbidding, sys.executable, "-c", SCRIPT, str(state_dir())],
        cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["reference-agents-only False True", "V2001"]


def test_a_binary_that_is_no_bubblewrap_is_a_fault_of_ours(jail):
    how = Bubblewrap(binary=Path("/bin/false"), entry="user", cgroups=None)
    sandbox = BubblewrapSandbox(how, guest_root(), b"", best_sandbox().level, slots=1, clock=lambda: 0.0)
    with pytest.raises(ArenaError) as caught:
        run(TRIVIAL, sandbox=sandbox)
    assert caught.value.failure.code == "V2002"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a uid to give up")
def test_root_without_the_right_to_mount_still_has_a_jail_with_an_own_uid(jail):
    best = best_sandbox()
    assert isinstance(best, BubblewrapSandbox)
    if any(parent.stat().st_mode & 0o001 == 0 for parent in best.bubblewrap.binary.parents):
        pytest.skip("the binary stands where other uids cannot go, so this way in cannot hold")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        how = Bubblewrap(binary=best.bubblewrap.binary, entry="root-userns", cgroups=best.bubblewrap.cgroups)
        program = build_filter(native_architecture())
        root = open_guest_root(Path(directory))
        sandbox = BubblewrapSandbox(how, root, program, best.level, slots=1, clock=time.monotonic)
        assert inspect(sandbox, is_uid_own=True) == ()
