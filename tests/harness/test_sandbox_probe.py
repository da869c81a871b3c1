"""Finding the level of a host: by trying it, with reasons and fixes, and never past the last level."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import orjson
import pytest

from foundation.errors import ArenaError
from harness.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox
from harness.sandbox.guest_files import open_guest_root
from harness.sandbox.landlock import SCOPES_ABI, landlock_abi
from harness.sandbox.port import GuestExit
from harness.sandbox.probe import (
    UNNAMESPACED,
    Report,
    broken_promises,
    diagnose,
    inspect,
    landlock_fix,
    landlock_obstacle,
    open_sandbox,
)
from harness.sandbox.seccomp import build_filter, native_architecture
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
    assert {"it opens sockets", "it locks files that others see", "it watches files that others see"} <= set(broken)
    assert {"it holds memory that no count shows", "it reads counters of the whole host"} <= set(broken)


SOUND = Report(
    uid=60_600, gid=60_600, groups=(), capabilities=("0" * 16,) * 3, no_new_privileges="1", seccomp="2", pids=(),
    root=("arena", "dev", "lib", "lib64", "opt", "proc", "tmp", "usr"), environment=(), temporary="/tmp",
    writable=("/dev/shm", "/tmp"), reads_file=False, reads_passwd=False, reaches_port=False, reaches_socket=False,
    reaches_path=False, signals_host=False, limits_host=False, changes_times=False, opens_queues=False,
    makes_namespace=False, opens_sockets=False, locks_files=False, watches_files=False, maps_without_file=False,
    grows_buffers=False, hides_files=False, reads_counters=False, sees_first_process=False,
    rlimits={"CORE": 0, "FSIZE": 1, "NOFILE": 1, "CPU": 1, "AS": 1, "NPROC": 1, "SIGPENDING": 0},
)  # fmt: skip


SOUND_WITHOUT_NAMESPACES = msgspec.structs.replace(
    SOUND, pids=(), root=(), temporary="/tmp/arena-work-1-x", writable=("/tmp/arena-work-1-x",)
)


def test_a_sound_report_breaks_no_promise():
    assert broken_promises(SOUND, is_uid_own=True) == ()
    assert broken_promises(SOUND_WITHOUT_NAMESPACES, is_uid_own=True, promises=UNNAMESPACED) == ()


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
        {"reaches_path": True},
        {"changes_times": True},
        {"opens_queues": True},
        {"makes_namespace": True},
        {"opens_sockets": True},
        {"locks_files": True},
        {"watches_files": True},
        {"maps_without_file": True},
        {"grows_buffers": True},
        {"hides_files": True},
        {"reads_counters": True},
        {"sees_first_process": True},
        {"rlimits": {**SOUND.rlimits, "AS": 2**63}},
        {"rlimits": {**SOUND.rlimits, "SIGPENDING": 1}},
        {"rlimits": {**SOUND.rlimits, "NOFILE": 4096}},
    ],
    ids=lambda change: "-".join(change),
)
def test_each_promise_that_a_report_breaks_is_noticed(change):
    assert broken_promises(msgspec.structs.replace(SOUND, **change), is_uid_own=True)


@pytest.mark.parametrize(
    "change",
    [
        {"uid": 0},
        {"pids": (1,)},
        {"root": ("etc",)},
        {"writable": ("/tmp/arena-work-1-x", "/tmp")},
        {"writable": ()},
        {"signals_host": True},
        {"limits_host": True},
        {"reaches_path": True},
        {"seccomp": "0"},
    ],
    ids=lambda change: "-".join(change),
)
def test_without_namespaces_a_guest_sees_nothing_at_all_and_reaches_no_process(change):
    report = msgspec.structs.replace(SOUND_WITHOUT_NAMESPACES, **change)
    assert broken_promises(report, is_uid_own=True, promises=UNNAMESPACED)


class TouchingSandbox:
    """Runs nothing, reports a sound guest, and touches a canary on the host's side."""

    def __init__(self, touch):
        self._touch = touch
        self.level = best_sandbox().level

    def run(self, job, host):
        self._touch(orjson.loads(job.problem)["canaries"])
        return GuestExit(end="final", claim=msgspec.json.encode(SOUND).decode())


def _send_datagram(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
        stream.sendto(b"x", path)


@pytest.mark.parametrize(
    ("touch", "found"),
    [
        (lambda c: socket.create_connection(("127.0.0.1", c["port"])).close(), "port was reached"),
        (lambda c: _send_datagram(c["datagram"]), "socket was reached"),
        (lambda c: os.utime(c["file"], (1, 1)), "file was changed"),
        (lambda c: Path(c["directory"], "new").touch(), "directory was written to"),
    ],
)
def test_what_the_host_saw_counts_whatever_the_guest_says(touch, found):
    (broken,) = inspect(TouchingSandbox(touch), is_uid_own=True)
    assert found in broken


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


def test_doctor_names_what_holds(jail):
    findings = diagnose(state_dir())
    assert [finding for finding in findings if finding.subject.startswith("jail") and finding.is_ok]
    assert all(finding.is_ok or finding.fix for finding in findings)


SCRIPT = """
import sys
from pathlib import Path
from harness.sandbox.probe import diagnose, open_sandbox
from foundation.errors import ArenaError
state = Path(sys.argv[1])
sandbox = open_sandbox(state, reference_sha256s=frozenset(), slots=1)
print(sandbox.level.name, sandbox.level.may_race, all(f.fix for f in diagnose(state) if not f.is_ok))
try:
    open_sandbox(state, reference_sha256s=frozenset(), slots=1, wanted="bubblewrap")
except ArenaError as error:
    print(error.failure.code)
"""


def run_where_namespaces_are_forbidden():
    """A jail that forbids further namespaces stands for a host that does."""
    best = best_sandbox()
    assert isinstance(best, BubblewrapSandbox)
    forbidding = [str(best.bubblewrap.binary), "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--"]
    done = subprocess.run(
        [*forbidding, sys.executable, "-c", SCRIPT, str(state_dir())],
        cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.splitlines()[-2:]


def test_where_namespaces_are_not_allowed_it_falls_back_or_refuses_with_a_fix(jail):
    # A root whose only uid is its own cannot give a guest another; an ordinary user has Landlock from ABI 6 on.
    has_landlock = os.geteuid() != 0 and landlock_abi() >= SCOPES_ABI
    level = "landlock True" if has_landlock else "reference-agents-only False"
    assert run_where_namespaces_are_forbidden() == [f"{level} True", "V2001"]


@pytest.mark.parametrize(("abi", "mode", "is_refused"), [
    (0, "own-uid", True), (0, "host-uid", True), (1, "own-uid", False), (5, "host-uid", True), (6, "host-uid", False),
])  # fmt: skip
def test_an_old_landlock_is_refused_only_where_what_it_lacks_matters(abi, mode, is_refused):
    assert bool(landlock_obstacle(abi, mode)) == is_refused
    assert landlock_fix(abi)


def test_a_forced_level_fails_with_its_reasons_instead_of_falling_back(monkeypatch):
    monkeypatch.setattr("harness.sandbox.probe.landlock_abi", lambda: 0)
    with pytest.raises(ArenaError) as caught:
        open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="landlock")
    assert caught.value.failure.code == "V2001" and "Landlock ABI 0" in caught.value.failure.detail


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
