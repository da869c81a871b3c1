"""Finding the level of a host: by trying it, with reasons and fixes, and never past the last level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from harness.sandbox.guest_files import open_guest_root
from harness.sandbox.landlock import landlock_abi
from harness.sandbox.probe import inspect, level_fixes, open_sandbox, try_landlock
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
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root gives guests a uid of their own")


@pytest.mark.parametrize("name", ["bubblewrap without cgroup", "landlock without cgroup"])
def test_each_level_withstands_the_self_test_without_a_cgroup_too(name):
    assert inspect(sandbox_of(name), is_uid_own=IS_ROOT, has_namespaces=name.startswith("bubblewrap")) == ()


@needs_root
@pytest.mark.parametrize("abi", [1, 3, 5])
def test_every_older_abi_withstands_the_self_test_with_a_uid_of_its_own(abi):
    sandbox = remade(best_landlock(), abi=abi, cgroups=None)
    assert inspect(sandbox, is_uid_own=True, has_namespaces=False) == ()


@needs_jail
def test_a_jail_with_a_weak_filter_is_found_out():
    allow_everything = build_filter(native_architecture())[-8:]
    broken = inspect(remade(best_sandbox(), program=allow_everything), is_uid_own=False)
    # A user namespace entered as an ordinary user forbids more of them by itself (--disable-userns).
    assert ("it can make namespaces" in broken) == (made_by(best_sandbox()).entry == "root")
    assert [words for words in broken if "so its filter is another one" in words]


@needs_jail
def test_a_jail_that_gives_more_than_its_level_promises_is_found_out():
    broken = inspect(best_sandbox(), is_uid_own=False, has_namespaces=False)
    assert [words.partition(" [")[0] for words in broken] == ["it sees", "it can write to"]


@pytest.mark.parametrize(("source", "why"), [("def agent_main(p): return {}", "malformed"), ("x", "NameError")])
def test_a_guest_that_reports_nothing_fails_the_self_test(source, why):
    class OtherSandbox:
        def run(self, job, host):
            return reference_sandbox(source).run(msgspec.structs.replace(job, source=source), host)

    with pytest.raises(ArenaError, match=why):
        inspect(OtherSandbox(), is_uid_own=True)


def test_the_reference_level_runs_what_ships_and_refuses_everything_else():
    shipped = reference_sandbox(TRIVIAL)
    assert run(TRIVIAL, sandbox=shipped).claim == "1"
    with pytest.raises(ArenaError) as caught:
        run(TRIVIAL + " ", sandbox=shipped)
    assert caught.value.failure.code == "V2001"


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
    """A jail that forbids further namespaces stands for a host that does; its root has no uid to give a guest."""
    forbidding = [made_by(best_sandbox()).binary, "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--"]
    command = [*forbidding, sys.executable, "-c", SCRIPT, state_dir()]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-2:] == ["reference-agents-only False True", "V2001"]


def test_a_forced_level_fails_with_its_reasons_instead_of_falling_back(monkeypatch):
    monkeypatch.setattr("harness.sandbox.probe.landlock_abi", lambda: 0)
    with pytest.raises(ArenaError) as caught:
        open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="landlock")
    assert caught.value.failure.code == "V2001" and "Landlock ABI 0" in caught.value.failure.detail
    assert "lsm=" in level_fixes(state_dir(), "landlock")[0]
    with pytest.raises(ArenaError) as caught:
        open_sandbox(state_dir(), reference_sha256s=frozenset(), slots=1, wanted="none")
    assert caught.value.failure.code == "V2030"


@pytest.mark.skipif(landlock_abi() == 0, reason="no Landlock here")
def test_landlock_needs_root_and_a_guest_root_that_every_uid_can_enter(monkeypatch, tmp_path):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert try_landlock(guest_root(), 1).fix == "run as root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--guest-dir" in try_landlock(open_guest_root(tmp_path), 1).fix
