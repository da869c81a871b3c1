"""README.md can't lie: every command it shows exists with the options shown, and the plain ones are run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup

from foundation.codes import CODES
from neurons.cli.app import COMMANDS, load_command
from tests.readme_blocks import resolve, unknown_options

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)]
LINES = [line.partition(" #")[0].strip() for block in BLOCKS for line in block]
INLINE = re.findall(r"`((?:arena|make) [^`]+)`", README)


def lines_of(program: str) -> list[str]:
    return [line for line in [*LINES, *INLINE] if line.split()[0] in (program, f".venv/bin/{program}")]


@pytest.mark.parametrize("line", lines_of("arena"))
def test_each_arena_line_names_a_command_and_options_that_exist(line: str) -> None:
    words = shlex.split(line)[1:]
    if words[0].startswith("--") or not words[0].islower():
        return
    assert not unknown_options(line)
    if line in LINES:  # a mention in the text may leave the arguments out
        command, rest = resolve(words)
        required = [p for p in command.params if p.required and not p.opts[0].startswith("--")]
        assert len([word for word in rest if not word.startswith("--")]) >= len(required)


@pytest.mark.parametrize("line", lines_of("make"))
def test_each_make_line_names_a_target_that_exists(line: str) -> None:
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert targets
    assert line.split()[1] in targets[1].split()


def test_the_dry_run_line_runs_as_shown(tmp_path: Path) -> None:
    (line,) = [line for line in LINES if line.endswith("--dry-run")]
    done = subprocess.run(
        [sys.executable, "-m", "neurons.cli.app", *shlex.split(line)[1:]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"wallet_hotkey +flag +//Alice", done.stdout)
    assert not (tmp_path / "node").exists()


def test_each_of_the_four_people_finds_five_commands_first() -> None:
    for user in ("validator", "miner", "operator", "researcher"):
        section = README.partition(f"## I am a{'n' if user == 'operator' else ''} {user}\n")[2].partition("\n## ")[0]
        block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
        assert block
        assert len(block[1].strip().splitlines()) == 5


def test_every_file_the_readme_points_at_exists() -> None:
    for name in re.findall(r"`((?:harness|judge|arena|neurons|problems|training)/[\w/.]+)`", README):
        assert (ROOT / name).exists(), name


def test_every_command_that_a_remedy_names_exists() -> None:
    """Error texts are documentation too."""
    named = {(row.code, call) for row in CODES.values() for call in re.findall(r"`arena ([^`]+)`", row.remedy)}
    assert named
    known = {entry.name for entry in COMMANDS}
    assert not {(code, call) for code, call in named if call.split()[0] not in known}
    groups = {entry.name: load_command(entry.name) for entry in COMMANDS}
    for code, call in named:
        words = call.split()
        group = groups[words[0]]
        if isinstance(group, TyperGroup) and words[0] != "validator":  # `arena validator` alone runs one
            assert words[1] in group.commands, (code, call)
