"""Code blocks of README.md, the rooms' pages and the guides, and what errors tell people to do, name what exists.

README.md's own run as typed in tests/prove/test_readme_paths.py, and on small data in tests/training.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.core import TyperGroup

from foundation.codes import CODES
from neurons.cli.app import COMMANDS, load_command
from neurons.settings.settings import resolve
from tests.readme_blocks import GUIDES, PAGES, Block, blocks_of, unknown_options

BLOCKS = [block for page in [*PAGES, *GUIDES] for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language == "sh"]
ARENA_LINES = sorted({line for block in SHELL for line in block.lines if line.startswith("arena ")})


@pytest.mark.parametrize("line", ARENA_LINES)
def test_a_line_names_a_command_and_options_that_exist(line: str) -> None:
    assert not unknown_options(line.partition(" > ")[0].replace("$R/", "").replace("$POOL", "train"))


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=lambda block: block.page)
def test_a_settings_file_can_be_read(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tomllib.loads(block.text)
    path = tmp_path / "arena.toml"
    path.write_text(block.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(resolve({}, path).settings.upstreams) == block.text.count("[[upstreams]]")


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
