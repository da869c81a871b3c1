"""The program that strangers run with their engine: what it prints is signed, and says what failed or was not tried."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.sandbox.probing.probe import try_bubblewrap
from tests.harness.jail_stand import WHY_NO_JAIL, guest_root, has_jail
from tests.harness.sandbox_contract import SandboxContract

PROGRAM = Path(__file__).parents[2] / "docker" / "check_engine.py"
IMAGE = f"127.0.0.1:5000/guest@sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_engine", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_engine"] = module
    spec.loader.exec_module(module)
    return module


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *words], cwd=PROGRAM.parents[1], capture_output=True, text=True
    )


def test_an_engine_that_is_not_here_is_said_to_be_unusable_and_why_and_the_result_is_signed(tmp_path: Path) -> None:
    # a client that answers nobody: whatever engine this host has is not asked
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--engine", "runsc", "--engine", "docker", "--image", IMAGE],
        cwd=PROGRAM.parents[1],
        env={"PATH": "/nowhere", "PYTHONPATH": str(PROGRAM.parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    printed = json.loads(done.stdout)
    assert [(one["name"], one["state"]) for one in printed["result"]["engines"]] == [
        ("runsc", "unusable"),
        ("docker", "unusable"),
    ]
    assert all("does not answer" in one["reason"] and one["fix"] for one in printed["result"]["engines"])
    assert {"machine", "kernel", "libc", "python"} <= set(printed["result"]["host"])
    file = tmp_path / "result.json"
    file.write_text(done.stdout)
    assert call("--verify", str(file)).returncode == 0
    file.write_text(done.stdout.replace('"unusable"', '"passed"', 1))
    assert call("--verify", str(file)).returncode == 1
    resigned = json.loads(done.stdout) | {"hotkey": "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"}
    file.write_text(json.dumps(resigned))
    assert call("--verify", str(file)).returncode == 1


def test_an_image_without_digest_is_a_wrong_use() -> None:
    assert call("--engine", "docker", "--image", "guest:latest").returncode == 2


@pytest.mark.skipif(not has_jail(), reason=WHY_NO_JAIL)
def test_each_check_of_an_engine_that_is_here_is_in_the_result(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = tmp_path / "engine_contract.py"
    contract.write_text(
        "from tests.harness.jail_stand import run\n"
        "def test_answers(engine): assert run('def agent_main(p): return 4', None, engine).claim == '4'\n"
        "def test_breaks(engine): assert run('def agent_main(p): return 4', None, engine).claim == '5'\n"
    )
    monkeypatch.setattr(program, "CONTRACT", contract)
    found = program.examine("bubblewrap", guest_root(), "")
    assert [(check.name, check.outcome) for check in found.checks] == [
        ("self-test", "passed"),
        ("test_answers", "passed"),
        ("test_breaks", "failed"),
    ]
    assert "'4' == '5'" in found.checks[-1].detail
    level = next(each.sandbox for each in try_bubblewrap(guest_root(), 1) if each.sandbox is not None).level
    assert (found.state, found.layers) == ("failed", level.layers)


def test_the_contract_it_asks_is_every_adapters(program: ModuleType) -> None:
    assert program.CONTRACT.is_file()
    assert SandboxContract.__name__ in program.CONTRACT.read_text("utf-8")
