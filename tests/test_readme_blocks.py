"""Every code block of README.md and the rooms' pages names commands and options that exist, and a test runs it.

README.md's own run as typed in tests/prove/test_readme_paths.py, and on small data in tests/kept and tests/training.
"""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from neurons.node.settings import resolve
from tests.readme_blocks import NEEDS, PAGES, ROOT, Block, blocks_of, is_known, unknown_options

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
COMMANDS = [block for block in BLOCKS if block.language == "sh"]
ARENA_LINES = sorted({line for block in COMMANDS for line in block.lines if line.startswith("arena ")})
# by page and heading: the test that runs the block
RUN_BY = {
    ("README.md", "agent-arena"): "prove/test_readme_paths.py",
    ("README.md", "I am a validator"): "prove/test_readme_paths.py",
    ("README.md", "I am a miner"): "prove/test_readme_paths.py",
    ("README.md", "I am an operator"): "kept/test_readme_operator.py",
    ("README.md", "I am a researcher"): "training/test_readme_researcher.py",
    ("training/README.md", "training"): "training/test_readme_researcher.py",
    ("examples/README.md", "Examples"): "neurons/test_examples.py",
}


def test_a_block_is_run_by_a_test_or_says_what_it_needs() -> None:
    assert not [block for block in BLOCKS if block.needs and block.needs not in NEEDS]
    left = [(block.page, block.heading) for block in COMMANDS if not block.needs]
    assert set(left) == set(RUN_BY)
    assert not [name for name in RUN_BY.values() if not (ROOT / "tests" / name).is_file()]


@pytest.mark.parametrize("line", [line for line in ARENA_LINES if is_known(line)])
def test_a_line_names_a_command_and_options_that_exist(line: str) -> None:
    assert not unknown_options(line.replace("$R/", "").replace("$POOL", "train"))


def test_a_line_whose_command_is_not_there_is_a_miners_new_one() -> None:
    assert {shlex.split(line)[1] for line in ARENA_LINES if not is_known(line)} <= {"init", "view"}


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=lambda block: block.page)
def test_a_settings_file_can_be_read(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tomllib.loads(block.text)
    path = tmp_path / "arena.toml"
    path.write_text(block.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(resolve({}, path).settings.upstreams) == block.text.count("[[upstreams]]")


def test_every_other_block_is_a_picture_or_python() -> None:
    assert {block.language for block in BLOCKS} <= {"sh", "toml", "python", "mermaid", ""}


def test_the_races_block_defines_a_turn() -> None:
    (block,) = [block for block in BLOCKS if block.page == "arena/race/README.md" and block.language == "python"]
    names: dict[str, object] = {}
    exec(compile(block.text, block.page, "exec"), names)  # its imports and calls are the room's own
    assert callable(names["turn"])
