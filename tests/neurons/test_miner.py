"""`arena submit`, `arena status` and `python neurons/miner.py`: one miner's way from a file to a receipt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.submissions.inbox import Inbox, Receipt
from foundation.errors import Failure
from neurons.cli.app import main
from neurons.miner import in_order

ROOT = Path(__file__).parents[2]
SOURCE = "def agent_main(problem):\n    return None\n"


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    path = tmp_path / "my-agent.py"
    path.write_text(SOURCE)
    return path


def _arena(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def _flags(tmp_path: Path, hotkey: str = "//Alice") -> tuple[str, ...]:
    return ("--wallet.hotkey", hotkey, "--state-dir", str(tmp_path / "state"), "--subtensor.network", "local")


def test_a_submission_is_waiting_until_it_has_a_receipt(
    tmp_path: Path, agent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = _arena(capsys, "submit", agent, "--register", "--json", *_flags(tmp_path))
    submitted = json.loads(out)
    assert code == 0
    assert submitted["name"] == "my-agent"

    code, out, _ = _arena(capsys, "status", "--json", *_flags(tmp_path))
    waiting = json.loads(out)
    assert code == 0
    assert waiting["uid"] == 1  # uid 0 burns: it is the owner's on a fresh chain too
    assert waiting["commitment"]["sha256"] == submitted["commitment_sha256"]
    assert [row["agent_version_id"] for row in waiting["waiting"]] == [submitted["agent_version_id"]]

    inbox = Inbox(tmp_path / "state" / "inbox")
    (entry,) = inbox.pending()
    receipt = Receipt(
        agent_version_id=submitted["agent_version_id"],
        name="my-agent",
        hotkey=submitted["hotkey"],
        state="refused",
        submitted_block=2,
        next_allowed_block=3_602,
        failure=Failure(code="A1006", detail="allowed from block 3602"),
    )
    inbox.answer(entry, receipt)
    code, out, _ = _arena(capsys, "status", *_flags(tmp_path))
    assert code == 0
    assert "refused" in out and "A1006" in out and "next from block 3602" in out


def test_an_unregistered_hotkey_is_told_so(tmp_path: Path, agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _arena(capsys, "submit", agent, *_flags(tmp_path))
    assert (code, "A1008" in err) == (1, True)
    assert list(Inbox(tmp_path / "state" / "inbox").pending()) == []


@pytest.mark.parametrize(
    ("source", "code", "line"),
    [
        (b"x = '\xff'", "A1001", ""),
        (b"def agent_main(problem:", "A1002", ":1: "),
        (b"x = 1\n", "A1003", ""),
        (b"\nimport os\nx = os.system\n\ndef agent_main(problem): pass\n", "A1005", ":3: "),
    ],
)
def test_a_file_the_gate_would_reject_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: bytes, code: str, line: str
) -> None:
    path = tmp_path / "agent.py"
    path.write_bytes(source)
    exit_code, _, err = _arena(capsys, "submit", path, "--register", *_flags(tmp_path))
    assert exit_code == 1
    assert code in err and line in err
    assert not (tmp_path / "state" / "chain").exists()


def test_a_missing_file_is_usage_and_a_missing_wallet_is_environment(
    tmp_path: Path, agent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _arena(capsys, "submit", tmp_path / "none.py", *_flags(tmp_path))[0] == 2
    code, _, err = _arena(capsys, "submit", agent, *_flags(tmp_path, hotkey="nobody"))
    assert (code, "V2031" in err) == (3, True)


def test_a_finding_for_review_does_not_stop_a_submission(
    tmp_path: Path, agent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.write_text(SOURCE + f"x = {list(range(100))}\n")
    code, out, _ = _arena(capsys, "submit", agent, "--register", *_flags(tmp_path))
    assert code == 0
    assert "integer-array" in out


def test_a_name_that_cannot_be_shown_is_refused(
    tmp_path: Path, agent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _arena(capsys, "submit", agent, "--name", "a b", "--register", *_flags(tmp_path))
    assert (code, "A1010" in err) == (1, True)


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["submit", "A.py"], ["submit", "A.py"]),
        (["--netuid", "15", "submit", "A.py", "--json"], ["submit", "--netuid", "15", "A.py", "--json"]),
        (["--json", "status"], ["status", "--json"]),
        (["--wallet.name=submit", "status"], ["status", "--wallet.name=submit"]),
        (["--wallet.name", "submit", "status"], ["status", "--wallet.name", "submit"]),
        (["--wallet.name", "submit"], ["status", "--wallet.name", "submit"]),
        (["--logging.debug", "submit", "A.py"], ["submit", "A.py"]),
        ([], ["status"]),
        (["--help"], ["--help"]),
    ],
)
def test_the_command_may_stand_after_the_flags(given: list[str], ordered: list[str]) -> None:
    assert in_order(given) == ordered


def test_the_script_runs_from_another_folder(tmp_path: Path, agent: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(ROOT / "neurons" / "miner.py"), *_flags(tmp_path), "--netuid", "15"]
    done = subprocess.run(
        [*command, "submit", str(agent), "--register", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["commitment_block"] >= 2
