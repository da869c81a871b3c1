"""Whatever is wrong: a code, whose fault it is and what to do next; and nothing already written is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from arena.chain.keys import keypair_signer
from neurons.demo.demo import VALIDATOR
from tests.neurons.arena_stand import make_run, read_back

ROOT = Path(__file__).resolve().parents[2]


def arena(*arguments: str | Path, timeout_s: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "neurons.cli.app", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=timeout_s,
        env={**os.environ, "OPENAI_BASE_URL": "", **environment},
        check=False,
    )


def run_agent(base: Path, catalogue: Path, source: bytes, *more: str) -> subprocess.CompletedProcess[str]:
    agent = base / "agent_under_test.py"
    agent.write_bytes(source)
    return arena("run", agent, "--no-gate", "--count", "1", "--catalogue", catalogue, "--state-dir", base, *more)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (b"\xff\xfe not utf-8", "A1001"),
        (b"def agent_main(problem:\n", "A1002"),
        (b"x = 1\n", "A1003"),
        (b"def agent_main(problem):\n    return object()\n", "A1025"),
        (b"def agent_main(problem):\n    raise RuntimeError('no')\n", "A1024"),
        (b"def agent_main(problem):\n    while True:\n        print('x' * 65536)\n", "A1026"),
        (b"import os\ndef agent_main(problem):\n    os._exit(7)\n", "A1028"),
        (b"def agent_main(problem):\n    return None\n", "A1060"),
    ],
)
def test_a_bad_agent_is_told_its_code_owner_and_remedy(
    arena_base: Path, small_catalogue: Path, source: bytes, code: str
) -> None:
    answer = run_agent(arena_base, small_catalogue, source)
    shown = answer.stdout + answer.stderr
    assert answer.returncode == 1, shown
    assert code in shown
    assert f"error[{code}]" in shown or f"{code}: arena explain {code}" in shown, shown


def test_an_agent_that_loops_forever_is_stopped_by_the_limit(arena_base: Path, small_catalogue: Path) -> None:
    import msgspec
    from msgspec.structs import replace

    from tests.neurons.arena_stand import SMALL

    policy = replace(SMALL, name="hurried", limits=replace(SMALL.limits, agent_time_ms=1_500))
    path = arena_base / "hurried.json"
    path.write_bytes(msgspec.json.encode(policy))
    answer = run_agent(
        arena_base, small_catalogue, b"def agent_main(problem):\n    while True:\n        pass\n", "--policy", str(path)
    )
    assert answer.returncode == 1
    assert "A1020" in answer.stdout + answer.stderr


def test_a_missing_agent_file_is_a_usage_error(arena_base: Path, small_catalogue: Path) -> None:
    answer = arena("run", arena_base / "nowhere.py", "--catalogue", small_catalogue, "--state-dir", arena_base)
    assert answer.returncode == 2
    assert "A1009" in answer.stderr


def test_a_missing_model_endpoint_is_the_upstreams_fault_and_gives_no_score(
    arena_base: Path, small_catalogue: Path
) -> None:
    import msgspec
    from msgspec.structs import replace

    from tests.neurons.arena_stand import SMALL

    policy = replace(SMALL, name="impatient", inference=replace(SMALL.inference, attempts=2, backoff_ms=10))
    path = arena_base / "impatient.json"
    path.write_bytes(msgspec.json.encode(policy))
    source = (ROOT / "harness" / "agents" / "baseline.py").read_bytes()
    answer = run_agent(
        arena_base, small_catalogue, source, "--policy", str(path), "--model-url", "http://127.0.0.1:9/v1"
    )
    assert answer.returncode == 3
    assert "U300" in answer.stderr
    assert "Check --model-url or OPENAI_BASE_URL" in answer.stderr


@pytest.mark.parametrize("damage", ["truncated", "edited", "missing"])
def test_a_broken_index_is_refused_before_anything_runs(
    arena_base: Path, small_catalogue: Path, tmp_path: Path, damage: str
) -> None:
    broken = tmp_path / "index"
    shutil.copytree(small_catalogue, broken)
    target = next(broken.glob("*codes*"))
    if damage == "truncated":
        target.write_bytes(target.read_bytes()[:-100])
    elif damage == "edited":
        content = bytearray(target.read_bytes())
        content[len(content) // 2] ^= 1
        target.write_bytes(bytes(content))
    else:
        shutil.rmtree(broken)
    answer = arena(
        "run", ROOT / "harness" / "agents" / "nop.py", "--count", "1", "--catalogue", broken, "--state-dir", arena_base
    )
    assert answer.returncode == 3
    assert ("V2011" if damage == "missing" else "V2010") in answer.stderr
    assert "arena catalogue build" in answer.stderr


def test_a_postgres_that_will_not_start_is_named_with_its_log_and_loses_nothing(
    arena_base: Path, small_catalogue: Path
) -> None:
    run = make_run(arena_base, small_catalogue, names=("nop",))
    hotkey = keypair_signer(VALIDATOR).hotkey
    before, _ = read_back(run, hotkey, ())  # the first start makes the cluster
    assert before.is_ok
    settings_file = next(run.folder.rglob("postgresql.conf"))
    sound = settings_file.read_text()
    settings_file.write_text(sound + "\nshared_buffers = 'nonsense'\n")
    answer = arena(
        "validator", "--wallet.hotkey", VALIDATOR, "--policy", run.settings.policy, "--state-dir", run.folder,
        "--catalogue-dir", small_catalogue, "--guest-dir", arena_base, "--workers", "1",
    )  # fmt: skip
    assert answer.returncode == 3
    assert "V2020" in answer.stderr
    assert ".log" in answer.stderr
    settings_file.write_text(sound)
    after, _ = read_back(run, hotkey, ())
    assert after == before


def test_an_unknown_setting_names_its_nearest() -> None:
    answer = arena("validator", "--wallet.hotky", "x", "--dry-run")
    assert answer.returncode == 2
    assert "--wallet.hotkey" in answer.stderr
