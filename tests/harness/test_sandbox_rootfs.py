"""The guest root: what it holds, that anybody can read it, and that equal inputs give equal names."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.sandbox.guest_files import content_sha256, guest_command, guest_environment, open_guest_root
from tests.harness.jail_stand import guest_root

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
