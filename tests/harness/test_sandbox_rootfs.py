"""The guest root: what it holds, that anybody can read it, and that equal inputs give equal names."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.sandbox.guest_files import (
    content_sha256,
    guest_command,
    guest_environment,
    guest_files,
    open_guest_root,
)
from harness.sandbox.probe import open_sandbox
from tests.harness.jail_stand import WHY_NO_JAIL, guest_root, has_jail, run

SYSTEM_PYTHON = Path("/usr/bin/python3")


def test_the_same_inputs_give_the_same_hash_wherever_they_are_built(tmp_path):
    assert open_guest_root(tmp_path).content_sha256 == guest_root().content_sha256


def test_the_hash_is_that_of_the_content_and_names_the_directory():
    root = guest_root()
    assert root.path.name == root.content_sha256 == content_sha256(root.path)


def test_builders_that_race_end_with_one_complete_root(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        roots = list(pool.map(lambda _: open_guest_root(tmp_path), range(3)))
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
    with pytest.raises(ArenaError) as caught:
        open_guest_root(tmp_path, Path("/bin/true"))
    assert caught.value.failure.code == "V2060"


def _install(directory: Path, *, code: bytes = b"VALUE = 41\n", extra: dict[str, bytes] | None = None) -> Path:
    """A tiny distribution `tinypure` 1.2, as an installer leaves it behind."""
    files = {
        "tinypure/__init__.py": code,
        "tinypure-1.2.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tinypure\nVersion: 1.2\n",
        **(extra or {}),
    }
    lines = []
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    (directory / "tinypure-1.2.dist-info" / "INSTALLER").write_bytes(os.urandom(8))
    lines += ["tinypure-1.2.dist-info/INSTALLER,,", "tinypure-1.2.dist-info/RECORD,,", "../../bin/tiny,sha256=x,1"]
    (directory / "tinypure-1.2.dist-info" / "RECORD").write_text("\n".join(lines) + "\n")
    return directory


def test_an_allowed_package_is_importable_in_the_jail_and_part_of_the_hash(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(_install(tmp_path / "site")))
    root = open_guest_root(tmp_path / "a", packages=("tinypure==1.2",))
    assert root.content_sha256 != guest_root().content_sha256
    assert root.content_sha256 == open_guest_root(tmp_path / "b", packages=("tinypure==1.2",)).content_sha256
    command = [*guest_command(root.path)[:3], "-c", "import tinypure, importlib.metadata as m; "
               "print(tinypure.VALUE, m.version('tinypure'))"]  # fmt: skip
    done = subprocess.run(command, env=guest_environment(root.path), capture_output=True, text=True, check=True)
    assert done.stdout == "41 1.2\n"
    held = {str(path.relative_to(root.path)) for path in root.path.rglob("tinypure*")}
    assert not [name for name in held if name.endswith(("INSTALLER", "RECORD"))]


def test_an_agent_imports_an_allowed_package_and_no_other(tmp_path, monkeypatch):
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    monkeypatch.syspath_prepend(str(_install(tmp_path / "site")))
    sandbox = open_sandbox(tmp_path / "state", reference_sha256s=frozenset(), slots=1, packages=["tinypure==1.2"])
    source = """
import tinypure
def agent_main(p):
    try:
        import msgspec
    except ImportError:
        return tinypure.VALUE
"""
    assert run(source, None, sandbox).claim == "41"
    assert run(source).error.startswith("ModuleNotFoundError")


@pytest.mark.parametrize(
    ("requirement", "why"),
    [
        ("tinypure", "name==version"),
        ("tinypure>=1", "name==version"),
        ("tinypure==1.3", "found: 1.2"),
        ("absent==1", "not installed"),
        ("../tinypure==1.2", "name==version"),
    ],
)
def test_a_package_that_is_not_exactly_there_is_refused_in_words(requirement, why, tmp_path):
    with pytest.raises(ArenaError) as caught:
        guest_files([requirement], [_install(tmp_path)])
    assert caught.value.failure.code == "V2060" and why in caught.value.failure.detail


def test_a_package_altered_after_it_was_installed_is_refused(tmp_path):
    (_install(tmp_path) / "tinypure" / "__init__.py").write_text("VALUE = 'altered'")
    with pytest.raises(ArenaError, match="RECORD"):
        guest_files(["tinypure==1.2"], [tmp_path])


def test_a_compiled_package_is_refused(tmp_path):
    directory = _install(tmp_path, extra={"tinypure/fast.cpython-311-x86_64-linux-gnu.so": b"\x7fELF"})
    with pytest.raises(ArenaError, match="pure Python"):
        guest_files(["tinypure==1.2"], [directory])


def test_a_package_cannot_replace_a_module_of_the_standard_library(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(_install(tmp_path / "site", extra={"json/__init__.py": b""})))
    with pytest.raises(ArenaError, match="standard library"):
        open_guest_root(tmp_path / "state", packages=("tinypure==1.2",))
