"""The way in: early checks with a fix in words, and a Makefile that installs once."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture(scope="module")
def preflight() -> ModuleType:
    spec = importlib.util.spec_from_file_location("preflight", ROOT / ".ci" / "preflight.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_early_checks_parse_on_a_python_that_is_too_old() -> None:
    tree = ast.parse((ROOT / ".ci" / "preflight.py").read_text("utf-8"), feature_version=(3, 5))
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert imported <= set(sys.stdlib_module_names)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.ImportFrom)]


@pytest.mark.parametrize(
    ("platform", "libc", "host", "loaders", "said"),
    [
        ("linux", ("glibc", "2.36"), "x86_64-pc-linux-gnu", ["/lib/ld-musl-x86_64.so.1"], None),
        ("linux", ("", ""), "x86_64-pc-linux-musl", ["/lib/ld-musl-x86_64.so.1"], "musl"),
        ("linux", ("glibc", "2.17"), "x86_64-pc-linux-gnu", [], "glibc 2.17 is too old"),
        ("darwin", ("", ""), "None", [], "darwin is not supported"),
    ],
)
def test_a_c_library_our_wheels_cannot_use_is_named(
    preflight: ModuleType, platform: str, libc: tuple[str, str], host: str, loaders: list[str], said: str | None
) -> None:
    found = preflight.check_libc(platform, libc, host, loaders)
    assert (found is None) if said is None else (said in found[0] and found[1])


def test_what_a_host_lacks_is_named_with_its_fix(preflight: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_MAKE_TARGET", "test")
    assert preflight.check_python((3, 9), ["python3.12"])[1] == "make test PYTHON=python3.12"
    assert "install Python 3.11" in preflight.check_python((3, 9), [])[1]
    assert preflight.check_python((3, 11), []) is None
    assert preflight.check_python((3, 15), []) is not None
    assert "apt install python3.11-venv" in preflight.check_venv(["ensurepip"], (3, 11))[1]
    assert preflight.modules_missing(("venv", "no_such_module")) == ["no_such_module"]
    assert "chown" in preflight.check_writable("/clone", False)[1]
    assert "VENV=" in preflight.check_space("/clone", 10 << 20, True)[1]
    assert preflight.check_space("/clone", 3 << 30, True) is None
    assert "2,400 MB" in preflight.check_space("/clone", 3 << 30, False)[0]
    assert "64-bit" in preflight.check_machine("i686", False)[1]
    assert preflight.check_machine("aarch64", True) is None


def test_this_host_passes_the_early_checks_and_a_fault_ends_with_its_fix(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / ".ci" / "preflight.py"), str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path / "venv")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The Makefile with a stand-in for Python that notes what it is asked to do: what is tested is make's own logic."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    stand_in = tmp_path / "python-stand-in"
    stand_in.write_text(
        '#!/bin/sh\necho "$@" >> "$CALLS"\n'
        'if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; : > "$3/bin/pip"; fi\n'
    )
    stand_in.chmod(0o755)
    return tmp_path


def make(clone: Path, *arguments: str) -> list[str]:
    calls = clone / "calls"
    calls.unlink(missing_ok=True)
    command = ["make", f"PYTHON={clone / 'python-stand-in'}", *arguments]
    environment = {**os.environ, "CALLS": str(calls), "MAKEFLAGS": "", "ARGS": ""}
    subprocess.run(command, cwd=clone, env=environment, check=True, capture_output=True)
    return calls.read_text().splitlines() if calls.exists() else []


@needs_make
def test_a_demo_installs_once_without_development_tools_and_again_for_changed_pins(clone: Path) -> None:
    first = make(clone, "demo")
    assert [call.split()[0] for call in first[:2]] == [".ci/preflight.py", "-m"]
    (install,) = [call for call in first if "pip install" in call]
    assert "--constraint constraints.txt" in install and install.endswith("--editable .")
    assert first[-1] == "-m neurons.cli.app demo"
    assert make(clone, "demo") == ["-m neurons.cli.app demo"]


def test_continuous_integration_runs_make_test_and_says_when_make_is_missing(tmp_path: Path) -> None:
    for name in ("dirname", "sh"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK) and "exec make test" in script.read_text()
    command = ["/bin/sh", str(script)]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "fix: apt install make" in done.stderr
