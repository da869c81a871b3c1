"""The `arena` command: every command is named truly, failures become text and exit codes, help answers at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.testing import CliRunner

from foundation.codes import CODES
from foundation.errors import ArenaError
from neurons.cli import app as cli
from neurons.cli.presenter import exit_code

ROOT = Path(__file__).parents[1]


def arena(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "neurons.cli.app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def commands_of(command: object) -> Iterator[Any]:
    """The command, and those inside it."""
    yield command
    for inner in command.commands.values() if isinstance(command, TyperGroup) else ():
        yield from commands_of(inner)


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: entry.name)
def test_each_command_has_the_help_that_the_list_promises_in_words_that_a_terminal_shows(
    entry: cli.CommandEntry, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = cli.load_command(entry.name)
    assert (loaded.help or "").startswith(entry.about.rstrip("."))
    for command in commands_of(loaded):
        assert len(command.help or "") >= 10
        command.main(["--help"], prog_name="arena", standalone_mode=False)
        assert "Usage: " in capsys.readouterr().out
        texts = [command.help, *(getattr(option, "help", None) for option in command.params)]
        assert not [text for text in texts if text and re.search(r"\[[a-z#/@]", text)]  # markup is left out
        examples = [line for line in (command.help or "").splitlines() if line.startswith("$ arena ")]
        assert examples or isinstance(command, TyperGroup)
        assert not [line for line in examples if " arena " in line.removeprefix("$ arena ")]


def test_top_level_help_names_every_command_and_loads_none() -> None:
    code = (
        "import sys\nfrom neurons.cli.app import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "rooms = ('neurons.', 'harness', 'judge', 'arena', 'pydantic')\n"
        "print(sorted(m for m in sys.modules if m.startswith(rooms)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert all(entry.name in done.stdout for entry in cli.COMMANDS)
    assert done.stdout.splitlines()[-1] == "['neurons.cli', 'neurons.cli.app', 'neurons.cli.presenter']"


def test_no_command_loads_numpy_the_settings_or_the_logs_before_its_work() -> None:
    heavy = {"asyncpg", "bittensor", "numba", "numpy", "openai", "pyarrow", "pydantic", "ray"}
    heavy |= {"torch", "trl", "vllm"}
    code = (
        "import sys\nfrom neurons.cli import app\n"
        "for entry in app.COMMANDS:\n"
        "    app.load_command(entry.name)\n"
        f"    assert not {heavy} & {{*sys.modules}}, entry.name\n"
        "try: app.main(['view', '--help'])\nexcept SystemExit: assert 'structlog' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("recods", "'records'"),
        ("explain id-tabel", "id-table"),
        ("check absent.py", f"error[A1009]: {CODES['A1009'].title}: absent.py"),
        ("check README.md --policy dmeo", "did you mean `demo`?"),
        ("check README.md --polcy demo", "--policy"),
        ("start", "No such command 'start'."),
        ("leaderboard --state-dir absent", "absent"),
    ],
)
def test_a_refusal_is_text_on_stderr_and_with_json_one_shape_on_stdout(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*line.split(), *more])
        out, err = capsys.readouterr()
        assert ended.value.code == 2 and said in err and "Traceback" not in err
        assert line != "start" or "mean" not in err
        assert (json.loads(out)["error"].keys() == {"code", "detail", "fix"}) if more else not out


def test_explain_knows_every_code_and_names_the_nearest() -> None:
    rows = json.loads(CliRunner().invoke(cli.app, ["explain", "--json"]).output)
    assert {row["name"] for row in rows} == set(CODES)
    one = CliRunner().invoke(cli.app, ["explain", "a1020"])
    assert all(text in one.output for text in ("A1020", CODES["A1020"].title, CODES["A1020"].remedy, "agent"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [("A1002", 1), ("A1009", 2), ("V2001", 3), ("V2030", 2), ("V2050", 4), ("U3001", 3), ("P4001", 2)],
)
def test_exit_codes_follow_the_owner_of_the_failure(code: str, expected: int) -> None:
    assert exit_code(ArenaError(code)) == expected
    assert {exit_code(ArenaError(code)) for code in CODES} == {1, 2, 3, 4}


def test_a_bug_of_ours_shows_its_traceback_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str) -> None:
        raise RuntimeError(f"loading {name}")

    monkeypatch.setattr(cli, "load_command", broken)
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor"])
    assert ended.value.code == 3
    shown = capsys.readouterr().err
    assert "RuntimeError: loading doctor" in shown and "bug in agent-arena" in shown


def test_every_setting_is_an_option_of_the_validator_under_a_heading() -> None:
    from neurons.cli.validator import GROUPS
    from neurons.settings.settings import NAMES

    shown = [name for names in GROUPS.values() for name in names.split()]
    assert sorted([*shown, "budget", "upstreams"]) == sorted(NAMES)  # tables, which only a file holds
    told = arena("validator", "--help").stdout
    assert all(text in told for text in (*GROUPS, "--metrics-port", "--wallet.hotkey"))
