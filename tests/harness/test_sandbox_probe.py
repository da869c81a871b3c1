"""Finding the level of a host: by trying it, with reasons and fixes, and never past the last level."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from harness.sandbox import landlock, probe
from harness.sandbox.guest_files import content_sha256, guest_command, guest_environment, open_guest_root
from harness.sandbox.seccomp import build_filter, native_architecture
from tests.harness.jail_stand import (
    IS_ROOT,
    best_landlock,
    best_sandbox,
    guest_root,
    made_by,
    needs_jail,
    reference_sandbox,
    remade,
    run,
    sandbox_of,
    state_dir,
)

REPOSITORY = Path(__file__).parents[2]
TRIVIAL = "def agent_main(p): return 1"


@pytest.mark.parametrize("name", ["bubblewrap without cgroup", "landlock without cgroup"])
def test_each_level_withstands_the_self_test_without_a_cgroup_too(name):
    sandbox = sandbox_of(name)
    is_uid_own = IS_ROOT if name.startswith("landlock") else made_by(sandbox).entry != "user"
    assert probe.inspect(sandbox, is_uid_own=is_uid_own, has_namespaces=name.startswith("bubblewrap")) == ()


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user needs ABI 6")
@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5])
def test_every_older_abi_withstands_the_self_test_with_a_uid_of_its_own(abi):
    sandbox = remade(best_landlock(), abi=abi, cgroups=None)
    assert probe.inspect(sandbox, is_uid_own=True, has_namespaces=False) == ()


@needs_jail
def test_a_jail_with_a_weak_filter_is_found_out():
    allow_everything = build_filter(native_architecture())[-8:]
    broken = probe.inspect(remade(best_sandbox(), program=allow_everything), is_uid_own=False)
    # A user namespace entered as an ordinary user forbids more of them by itself (--disable-userns).
    assert ("it can make namespaces" in broken) == (made_by(best_sandbox()).entry == "root")
    assert [words for words in broken if "so its filter is another one" in words]


SOUND = probe.Report(
    successes=(),
    ids=(60_600, 60_600),
    root=("arena", "dev", "lib", "lib64", "opt", "proc", "tmp", "usr"),
    temporary="/tmp",
    writable=("/dev/shm", "/tmp"),
    reaches_process=True,  # in its own namespace the number means another process
    rlimits={"CORE": 0, "FSIZE": 1, "NOFILE": 1, "CPU": 1, "AS": 1, "NPROC": 1, "SIGPENDING": 0},
)
OWN = "/tmp/arena-work-1-x"
WITHOUT_NAMESPACES = msgspec.structs.replace(SOUND, root=(), temporary=OWN, writable=(OWN,), reaches_process=False)


WRONG_IDS = ((os.getuid(), 60_600), (0, 60_600), (60_600, 0), (60_600, 60_600, 4))
WRONG_LIMITS = ({"AS": 2**63}, {"NPROC": 65}, {"SIGPENDING": 1}, {"NOFILE": 4096})


@pytest.mark.parametrize(
    ("report", "changes"),
    [
        (
            SOUND,
            [
                *({"ids": ids} for ids in WRONG_IDS),
                *({"rlimits": {**SOUND.rlimits, **limits}} for limits in WRONG_LIMITS),
                {"successes": ("it opens sockets",)},
                {"root": ("arena", "home")},
                {"writable": ("/", "/dev/shm", "/tmp")},
            ],
        ),
        (
            WITHOUT_NAMESPACES,
            [{"root": ("etc",)}, {"writable": (OWN, "/tmp")}, {"writable": ()}, {"reaches_process": True}],
        ),
    ],
    ids=["namespaces", "none"],
)
def test_each_promise_that_a_report_breaks_is_noticed(report, changes):
    has_namespaces = report is SOUND
    assert probe.broken_promises(report, is_uid_own=True, has_namespaces=has_namespaces) == ()
    for change in changes:
        changed = msgspec.structs.replace(report, **change)
        assert probe.broken_promises(changed, is_uid_own=True, has_namespaces=has_namespaces)


@pytest.mark.parametrize(("source", "why"), [("def agent_main(p): return {}", "malformed"), ("x", "NameError")])
def test_a_guest_that_reports_nothing_fails_the_self_test(source, why):
    class OtherSandbox:
        def run(self, job, host):
            return reference_sandbox(source).run(msgspec.structs.replace(job, source=source), host)

    with pytest.raises(ArenaError, match=why):
        probe.inspect(OtherSandbox(), is_uid_own=True)


def test_a_level_nobody_knows_is_a_wrong_setting():
    with pytest.raises(ArenaError, match="V2030"):
        probe.open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="none")


def test_the_reference_level_runs_what_ships_and_refuses_everything_else():
    shipped = reference_sandbox(TRIVIAL)
    assert run(TRIVIAL, sandbox=shipped).claim == "1"
    with pytest.raises(ArenaError, match="V2001"):
        run(TRIVIAL + " ", sandbox=shipped)


SCRIPT = """
import sys
from pathlib import Path
from harness.sandbox.probe import level_fixes, open_sandbox
from foundation.errors import ArenaError
state = Path(sys.argv[1])
sandbox = open_sandbox(state, reference_sha256s=frozenset(), slots=1)
print(sandbox.level.name, sandbox.level.may_race, all(level_fixes(state)))
try:
    open_sandbox(state, reference_sha256s=frozenset(), slots=1, wanted="bubblewrap")
except ArenaError as error:
    print(error.failure.code)
"""


@needs_jail
def test_where_namespaces_are_not_allowed_it_falls_back_or_refuses_with_a_fix():
    """A jail that forbids further namespaces stands for a host that does."""
    forbidding = [made_by(best_sandbox()).binary, "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--"]
    command = [*forbidding, sys.executable, "-c", SCRIPT, state_dir()]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    # A root whose only uid is its own cannot give a guest another; an ordinary user has Landlock from ABI 6 on.
    has_landlock = os.geteuid() != 0 and landlock.landlock_abi() >= landlock.SCOPES_ABI
    level = "landlock True" if has_landlock else "reference-agents-only False"
    assert done.stdout.splitlines()[-2:] == [f"{level} True", "V2001"]


@pytest.mark.parametrize(("abi", "mode", "is_refused"), [
    (0, "own-uid", True), (0, "host-uid", True), (1, "own-uid", False), (5, "host-uid", True), (6, "host-uid", False),
])  # fmt: skip
def test_an_old_landlock_is_refused_only_where_what_it_lacks_matters(abi, mode, is_refused):
    assert bool(probe.landlock_obstacle(abi, mode)) == is_refused


def test_a_forced_level_fails_with_its_reasons_instead_of_falling_back(monkeypatch):
    monkeypatch.setattr("harness.sandbox.probe.landlock_abi", lambda: 0)
    with pytest.raises(ArenaError) as caught:
        probe.open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="landlock")
    assert caught.value.failure.code == "V2001" and "Landlock ABI 0" in caught.value.failure.detail
    assert "lsm=" in probe.level_fixes(state_dir(), "landlock")[0]


def test_a_root_that_no_other_uid_can_enter_has_a_copy_elsewhere_or_a_fix():
    if not IS_ROOT or landlock.landlock_abi() == 0:
        pytest.skip("an ordinary user's guest enters what its user can")

    def refuse():
        raise ArenaError("V2060", "read-only")

    (attempt,) = probe.try_landlock(guest_root(), 1, refuse)
    assert attempt.sandbox is None and "read-only" in attempt.reason and "--guest-dir" in attempt.fix
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        (attempt,) = probe.try_landlock(guest_root(), 1, lambda: open_guest_root(Path(directory)))
        assert attempt.sandbox is not None, attempt.reason


@pytest.mark.skipif(not IS_ROOT, reason="only root has a uid to give up")
@needs_jail
def test_root_without_the_right_to_mount_still_has_a_jail_with_an_own_uid():
    how = made_by(best_sandbox())
    if any(parent.stat().st_mode & 0o001 == 0 for parent in how.binary.parents):
        pytest.skip("the binary stands where other uids cannot go, so this way in cannot hold")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        sandbox = remade(best_sandbox(), entry="root-userns", root=open_guest_root(Path(directory)))
        assert probe.inspect(sandbox, is_uid_own=True) == ()


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
    with pytest.raises(ArenaError) as caught:
        run("def agent_main(p): return 1", None, remade(best_landlock(), root=open_guest_root(tmp_path)))
    assert caught.value.failure.code == "V2002" and "confined" in caught.value.failure.detail


def test_an_abi_masks_what_it_does_not_know():
    counts = [landlock.handled_rights(abi).bit_count() for abi in (0, 1, 2, 3, 4, 5, 6, 99)]
    assert counts == [0, 13, 14, 15, 15, 16, 16, 16]


@given(st.integers(1, 12))
def test_rules_never_ask_for_a_right_that_is_not_handled_and_nothing_is_both_written_and_run(abi):
    given_rules = dict(landlock.rules(Path("/guest"), Path("/work"), abi))
    for rights in given_rules.values():
        assert rights & ~landlock.handled_rights(abi) == 0 and rights & landlock.READ_FILE
        assert not (rights & landlock.EXECUTE and rights & (landlock.WRITE_FILE | landlock.MAKE_REG))
    assert {path for path, rights in given_rules.items() if rights & landlock.WRITE_FILE} == {"/work", "/dev/null"}
    assert not [path for path in given_rules if path.startswith(("/proc", "/etc", "/usr", "/sys", "/dev/shm"))]


# -- the guest root: what it holds, that anybody can read it, and that equal inputs give equal names


SYSTEM_PYTHON = Path("/usr/bin/python3")


def test_builders_that_race_end_with_one_complete_root(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        roots = list(pool.map(lambda _: open_guest_root(tmp_path), range(2)))
    assert len({root.content_sha256 for root in roots}) == 1
    assert content_sha256(roots[0].path) == roots[0].content_sha256
    assert not list((tmp_path / "guest").glob("building-*"))


def test_any_uid_can_read_every_file_and_nobody_else_can_write():
    for directory, _, files in os.walk(guest_root().path):
        assert Path(directory).stat().st_mode & 0o005 == 0o005, directory
        for name in files:
            path = Path(directory, name)
            if not path.is_symlink():
                mode = path.stat().st_mode
                assert mode & stat.S_IROTH and not mode & (stat.S_IWOTH | stat.S_IWGRP), path


def test_it_holds_interpreter_library_runner_and_sdk_but_no_packages_and_no_shell():
    root = guest_root().path
    held = {str(path.relative_to(root)) for path in root.rglob("*")}
    assert {"opt/py/bin/python3", "arena/runner.py", "arena/arena_sdk/tools.py"} <= held
    assert not [name for name in held if name.endswith(("site-packages", "dist-packages", "/sh", "/bash"))]
    assert not [name for name in held if "msgspec" in name or "bittensor" in name]


@pytest.mark.parametrize("interpreter", [Path(sys.executable), SYSTEM_PYTHON], ids=["running", "system"])
def test_the_copied_interpreter_starts_with_its_own_library(interpreter, tmp_path):
    if not interpreter.exists():
        pytest.skip(f"there is no {interpreter}")
    root = open_guest_root(tmp_path, interpreter)
    command = [
        guest_command(root.path)[0],
        "-s",
        "-P",
        "-c",
        "import ssl, ctypes, sqlite3, json, sys; print(json.__file__)",
    ]
    done = subprocess.run(command, env=guest_environment(root.path), capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(root.path))


def test_a_program_that_is_no_python_is_reported_with_a_code(tmp_path):
    with pytest.raises(ArenaError, match="V2060"):
        open_guest_root(tmp_path, Path("/bin/true"))
