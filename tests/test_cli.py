"""The `arena` command: every command is named truly, failures become text and exit codes, help answers at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.testing import CliRunner

from foundation.codes import CODES
from foundation.errors import ArenaError
from neurons.cli import app as cli
from neurons.cli.exit_codes import exit_code

ROOT = Path(__file__).parents[1]


def arena(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "neurons.cli.app", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd or ROOT,
        check=False,
    )


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: entry.name)
def test_each_command_exists_and_its_own_help_opens_with_the_sentence_of_the_list(entry: cli.CommandEntry) -> None:
    command = cli.load_command(entry.name)
    assert (command.help or "").startswith(entry.about.rstrip("."))


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: entry.name)
def test_each_command_and_subcommand_has_a_sentence_of_help(entry: cli.CommandEntry) -> None:
    command = cli.load_command(entry.name)
    inner = list(command.commands.values()) if isinstance(command, TyperGroup) else []
    assert not [c.name for c in [command, *inner] if len(c.help or "") < 10]


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: entry.name)
def test_no_help_holds_what_a_terminal_takes_for_markup_and_leaves_out(entry: cli.CommandEntry) -> None:
    command = cli.load_command(entry.name)
    inner = list(command.commands.values()) if isinstance(command, TyperGroup) else []
    told = [
        text
        for one in [command, *inner]
        for text in (one.help, *(getattr(option, "help", None) for option in one.params))
        if text
    ]
    assert not [text for text in told if re.search(r"\[[a-z#/@]", text)]


def test_top_level_help_names_every_command_and_loads_none() -> None:
    code = (
        "import sys\nfrom neurons.cli.app import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "rooms = ('neurons.', 'harness', 'judge', 'arena', 'pydantic_settings')\n"
        "print(sorted(m for m in sys.modules if m.startswith(rooms)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert all(entry.name in done.stdout for entry in cli.COMMANDS)
    assert done.stdout.splitlines()[-1] == "['neurons.cli', 'neurons.cli.app', 'neurons.cli.exit_codes']"


def test_an_unknown_command_is_usage_and_names_the_nearest() -> None:
    result = CliRunner().invoke(cli.app, ["recods"])
    assert result.exit_code == 2
    assert "records" in result.output


def test_explain_knows_every_code_and_says_whose_fault_it_is() -> None:
    result = CliRunner().invoke(cli.app, ["explain", "--json"])
    rows = json.loads(result.output)
    assert {row["code"] for row in rows} == set(CODES)
    assert all(row["owner"] in ("agent", "validator", "upstream", "problem") for row in rows)
    one = CliRunner().invoke(cli.app, ["explain", "a1020"])
    assert all(text in one.output for text in ("A1020", CODES["A1020"].title, CODES["A1020"].remedy, "agent"))


def test_explain_of_an_unknown_code_is_usage_and_names_the_nearest() -> None:
    result = CliRunner().invoke(cli.app, ["explain", "A102"])
    assert result.exit_code == 2
    assert "A10" in result.output


@pytest.mark.parametrize(
    ("code", "expected"),
    [("A1003", 1), ("A1009", 2), ("V2001", 3), ("V2030", 2), ("V2050", 4), ("U3001", 3), ("P4001", 2)],
)
def test_exit_codes_follow_the_owner_of_the_failure(code: str, expected: int) -> None:
    assert exit_code(ArenaError(code)) == expected


def test_every_code_has_an_exit_code_that_is_a_failure() -> None:
    assert {exit_code(ArenaError(code)) for code in CODES} == {1, 2, 3, 4}


def test_a_coded_failure_is_shown_as_text_on_stderr_without_a_traceback(tmp_path: Path) -> None:
    done = arena("check", str(tmp_path / "absent.py"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error[A1009]: ")
    assert CODES["A1009"].remedy in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


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
    assert "RuntimeError: loading doctor" in shown
    assert "bug in agent-arena" in shown


def test_version_is_printed() -> None:
    assert "agent-arena" in CliRunner().invoke(cli.app, ["--version"]).output


def test_the_validators_help_shows_every_setting_once_under_a_heading() -> None:
    from neurons.cli.validator import GROUPS
    from neurons.settings.settings import Settings

    shown = [name for names in GROUPS.values() for name in names.split()]
    assert sorted([*shown, "upstreams"]) == sorted(Settings.model_fields)  # tables, which only a file holds
    told = arena("validator", "--help").stdout
    assert all(group in told for group in GROUPS)
    assert "--metrics-port" in told and "--wallet.hotkey" in told


def test_help_begins_with_examples() -> None:
    for name in ("validator", "records", "store", "operator", "corpus", "train"):
        command = cli.load_command(name)
        shown = command.commands["run"] if name == "validator" and isinstance(command, TyperGroup) else command
        assert (shown.help or "").splitlines()[2].startswith("$ arena "), name


def test_each_example_of_a_help_stands_on_its_line() -> None:
    def helps(command: object) -> Iterator[str]:
        yield getattr(command, "help", "") or ""
        for inner in command.commands.values() if isinstance(command, TyperGroup) else ():
            yield from helps(inner)

    examples = [
        line
        for entry in cli.COMMANDS
        for text in helps(cli.load_command(entry.name))
        for line in text.splitlines()
        if line.startswith("$ arena ")
    ]
    assert len(examples) >= 40
    assert [line for line in examples if " arena " in line.removeprefix("$ arena ")] == []
    assert "$ arena run my_agent/agent.py" in examples


def test_the_shell_completes_policies_suites_stages_and_formats() -> None:
    from neurons.cli.options import complete_format, complete_policy, complete_stage, complete_suite

    assert complete_policy("de") == ["demo"]
    assert complete_suite("s") == ["s1", "s2", "s3"]
    assert complete_stage("t") == ["teacher"]
    assert complete_format("m") == ["messages"]


def test_an_unknown_policy_is_refused_by_the_dry_run_and_names_the_nearest() -> None:
    done = arena("validator", "--policy", "dmeo", "--dry-run")
    assert done.returncode == 2
    assert done.stderr.startswith("error[V2030]: ") and "did you mean `demo`?" in done.stderr
