"""README.md's first command runs as shown, and what errors tell people to do exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from typer.core import TyperGroup

from foundation.codes import CODES
from neurons.cli.app import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)]
LINES = [line.partition(" #")[0].strip() for block in BLOCKS for line in block]


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
