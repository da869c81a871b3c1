"""`make prove` runs each proof in a process of its own, goes on where it was stopped, and hides no failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.prove.results import Result, page, read_page, totals

HERE = Path(__file__).parents[2]
PROOFS = """
import os, subprocess, sys, time
from pathlib import Path
import pytest
from msgspec.structs import replace

pytestmark = pytest.mark.prove

def ran(name):
    with Path(name + ".ran").open("a") as f:
        f.write("x")

@pytest.mark.parametrize("case", ["a", "b"])
def test_first(case):
    ran("first")

def test_second():
    ran("second")
    Path("second.pid").write_text(str(os.getpid()))
    while not Path("go").exists():
        time.sleep(0.02)

def test_third():
    assert Path("mended").exists(), "the | third one"

def test_fourth():
    pytest.skip("no such machine")

def test_fifth():
    raise TimeoutError("timed out after 3 s")

def test_sixth():
    os._exit(9)
"""
CONFIGURATION = '[tool.pytest.ini_options]\naddopts = "-q"\nmarkers = ["prove: long"]\n'


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A checkout with six proofs and one test that is none."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_proofs.py").write_text(PROOFS)
    (tmp_path / "tests" / "test_other.py").write_text("def test_other():\n    raise AssertionError\n")
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION)
    return tmp_path


def start(toy: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.prove", "--root", str(toy), *arguments]
    fast = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the toy needs none, and each start loads them all
    return subprocess.Popen(command, cwd=HERE, env=fast, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(toy: Path, *arguments: str) -> tuple[int, str]:
    runner = start(toy, *arguments)
    told, _ = runner.communicate()
    return runner.returncode, told


def state_of(toy: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((toy / "build" / "prove" / "state.json").read_text())
    return {test.rpartition("::")[2]: result for test, result in found.items()}


def wait_for(path: Path) -> None:
    while not path.exists() or not path.read_text():
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on_with_the_proof_that_was_under_way(toy: Path, how: signal.Signals) -> None:
    runner = start(toy)
    wait_for(toy / "second.pid")
    proof = int((toy / "second.pid").read_text())
    runner.send_signal(how)
    told, _ = runner.communicate()
    while is_running(proof):
        time.sleep(0.02)
    if how is signal.SIGINT:
        assert runner.returncode == 130 and "goes on from here" in told
        assert "tests/test_proofs.py::test_second` | not run" in (toy / "docs" / "prove.md").read_text()
    assert list(state_of(toy)) == ["test_first"]
    (toy / "go").touch()
    status, told = run(toy)
    assert status == 1 and "6 proofs, 1 have a result" in told
    assert (toy / "first.ran").read_text() == "xx" and (toy / "second.ran").read_text() == "xx"
    assert {name: result["outcome"] for name, result in state_of(toy).items()} == {
        "test_first": "passed",
        "test_second": "passed",
        "test_third": "failed",
        "test_fourth": "skipped",
        "test_fifth": "timed out",
        "test_sixth": "failed",
    }
    assert state_of(toy)["test_first"]["cases"] == {"passed": 2}
    assert "6 proofs: 2 passed, 3 failed (1 of them at a time limit), 1 not run" in told
    assert state_of(toy)["test_sixth"]["note"] == "pytest ended with status 9"


def test_a_mended_proof_is_run_again_when_it_is_named_and_the_summary_says_so(toy: Path) -> None:
    (toy / "go").touch()
    assert run(toy, "test_third", "test_first")[0] == 1
    (toy / "mended").touch()
    assert run(toy, "test_third", "test_first")[0] == 1, "a failure stays one until the proof is run again"
    assert "the \\| third one" in (toy / "docs" / "prove.md").read_text()
    status, told = run(toy, "--again", "test_third")
    assert status == 0 and "1 proofs: 1 passed, 0 failed, 0 not run" in told
    assert (toy / "first.ran").read_text() == "xx", "no other proof was run again"
    summary = (toy / "docs" / "prove.md").read_text()
    assert "6 proofs: 2 passed, 0 failed, 4 not run" in summary
    status, told = run(toy, "--list")
    assert status == 0 and told.count("not run ") >= 4


HANGING = """
import os, signal, subprocess, sys, time
from pathlib import Path
import pytest

pytestmark = pytest.mark.prove

def hang():
    started = [subprocess.Popen(["sleep", "600"], start_new_session=own) for own in (False, True)]
    Path("hanging.pids").write_text(" ".join(str(pid) for pid in (os.getpid(), *(one.pid for one in started))))
    while True:
        time.sleep(1)

def test_a_hanging_one():
    hang()

def test_a_stubborn_one():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hang()

def test_a_quick_one():
    pass
"""


@pytest.mark.parametrize("which", ["hanging", "stubborn"])
def test_a_proof_over_its_limit_is_ended_with_all_it_started_and_the_next_one_runs(toy: Path, which: str) -> None:
    (toy / "tests" / "test_proofs.py").write_text(HANGING)
    status, told = run(toy, which, "quick", "--limit-min", "0.05")
    assert status == 1
    found = state_of(toy)
    assert found["test_a_quick_one"]["outcome"] == "passed"
    late = found[f"test_a_{which}_one"]
    assert (late["outcome"], late["note"]) == ("timed out", "ended at the limit of 0.05 min")
    pids = [int(word) for word in (toy / "hanging.pids").read_text().split()]
    assert len(pids) == 3 and not any(map(is_running, pids))
    assert "1 failed (1 of them at a time limit)" in told
    assert "| timed out |" in (toy / "docs" / "prove.md").read_text()


def test_two_runs_of_one_checkout_do_not_mix(toy: Path) -> None:
    first = start(toy, "second")
    wait_for(toy / "second.pid")
    second = start(toy, "first")
    assert second.poll() is None and not (toy / "first.ran").exists()
    (toy / "go").touch()
    first.communicate()
    second.communicate()
    assert (first.returncode, second.returncode) == (0, 0)
    assert set(state_of(toy)) == {"test_first", "test_second"}


def test_tests_that_cannot_be_read_end_the_run(toy: Path) -> None:
    (toy / "tests" / "test_proofs.py").write_text("import nothing_of_this_name\n")
    status, told = run(toy)
    assert status == 1 and "nothing_of_this_name" in told
    assert run(toy, "test_third")[0] == 1


def test_the_summary_names_commit_day_and_what_did_not_run() -> None:
    results = {"a::x": Result("passed", 90.0, "abc", "2026-11-23", {"passed": 3, "skipped": 1}, "no GPU")}
    text = page(["a::x", "a::y"], results, commit="def+", day="2026-11-24")
    assert "| `a::x` | passed | 1.5 | abc | 2026-11-23 | 3 passed, 1 skipped; no GPU |" in text
    assert "| `a::y` | not run | | | | |" in text and "Last run on 2026-11-24 at def+." in text
    assert totals(["a::x", "a::y"], results) == "2 proofs: 1 passed, 0 failed, 1 not run; 2 min"


def test_a_summary_reads_back_as_the_results_it_was_made_of() -> None:
    note = "expected `a | b` < c"
    results = {
        "a::x": Result("passed", 90.0, "abc+", "2026-11-23", {"passed": 3, "skipped": 1}, ""),
        "a::y": Result("timed out", 6.0, "abc", "2026-11-23", {"failed": 1}, note),
        "a::z": Result("skipped", 0.0, "abc", "2026-11-23", {"skipped": 1}, "no GPU"),
    }
    text = page(["a::w", *results], results, commit="def", day="2026-11-24")
    found = read_page(text)
    assert found == {**results, "a::y": replace(results["a::y"], note=note.replace("`", "'"))}
    assert page(["a::w", *found], found, commit="def", day="2026-11-24") == text


def test_what_another_machine_ran_stays_on_the_page_and_is_run_again_unless_adopted(toy: Path) -> None:
    (toy / "go").touch()
    assert run(toy, "test_second")[0] == 0
    (toy / "build" / "prove" / "state.json").unlink()  # a new machine has the page alone
    assert run(toy, "test_first")[0] == 0
    assert "6 proofs: 2 passed, 0 failed, 4 not run" in (toy / "docs" / "prove.md").read_text()
    assert list(state_of(toy)) == ["test_first"]
    (toy / "second.ran").unlink()
    status, told = run(toy, "--adopt", "test_first", "test_second")
    assert status == 0 and "2 proofs, 2 have a result" in told and not (toy / "second.ran").exists()
