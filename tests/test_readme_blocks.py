"""Every code block of README.md and the rooms' pages names commands and options that exist, and a test runs it.

README.md's own run as typed in tests/prove/test_readme_paths.py, and on small data in tests/training.
What RUN_BY names is held by what that file says: it asks for the block by its page.
"""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import pytest

from arena.policies import DEMO
from arena.race.decider import Effect, SealBatch
from arena.race.machine import RaceObservation, RaceOpened, RaceState
from neurons.settings.settings import resolve
from tests.arena.race_stand import RACE, batch
from tests.readme_blocks import NEEDS, PAGES, ROOT, Block, block_under, blocks_of, unknown_options

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
COMMANDS = [block for block in BLOCKS if block.language == "sh"]
ARENA_LINES = sorted({line for block in COMMANDS for line in block.lines if line.startswith("arena ")})
HERE = "test_readme_blocks.py"
# by page and heading: the test that runs the block
RUN_BY = {
    ("README.md", "agent-arena"): "prove/test_readme_paths.py",
    ("README.md", "I am a validator"): "prove/test_readme_paths.py",
    ("README.md", "I am a miner"): "prove/test_readme_paths.py",
    ("README.md", "I am an operator"): "prove/test_readme_paths.py",
    ("README.md", "I am a researcher"): "training/test_readme_researcher.py",
    ("training/README.md", "training"): "training/test_readme_researcher.py",
    ("examples/README.md", "Examples"): "neurons/test_agents.py",
    ("arena/race/README.md", "The loop a driver runs"): HERE,
    ("harness/inference/README.md", "Endpoints"): HERE,
    ("harness/sandbox/guest/README.md", "The smallest agent"): "harness/test_sandbox_sdk.py",
    ("harness/sandbox/guest/README.md", "An agent whose calls are the model's"): "harness/test_sandbox_sdk.py",
    ("harness/sandbox/guest/README.md", "When something fails"): "harness/test_sandbox_sdk.py",
    ("training/corpus/README.md", "What comes in"): "training/test_corpus_reader.py",
}


def test_a_block_is_run_by_a_test_or_says_what_it_needs() -> None:
    assert not [block for block in BLOCKS if block.needs and block.needs not in NEEDS]
    left = [(block.page, block.heading) for block in BLOCKS if not block.needs]
    assert set(left) == set(RUN_BY)
    for (page, _), name in RUN_BY.items():
        folder, file = Path(page).parent.name, ROOT / "tests" / name
        assert "block_under" in file.read_text("utf-8") or folder in file.read_text("utf-8"), (page, name)


@pytest.mark.parametrize("line", ARENA_LINES)
def test_a_line_names_a_command_and_options_that_exist(line: str) -> None:
    assert not unknown_options(line.replace("$R/", "").replace("$POOL", "train"))


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=lambda block: block.page)
def test_a_settings_file_can_be_read(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tomllib.loads(block.text)
    path = tmp_path / "arena.toml"
    path.write_text(block.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(resolve({}, path).settings.upstreams) == block.text.count("[[upstreams]]")


def test_every_other_block_is_python() -> None:
    assert {block.language for block in BLOCKS} <= {"sh", "toml", "python"}


class Streams:
    """What the turn of a race asks of a store."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    async def events(self, stream: str) -> list[str]:
        return self.kept

    async def put_event(self, stream: str, index: int, event: str) -> None:
        assert index == len(self.kept)
        self.kept.append(event)


def test_the_races_block_opens_a_race_and_goes_on_from_what_it_stored() -> None:
    names: dict[str, Any] = {}
    block = block_under("The loop a driver runs", ROOT / "arena" / "race" / "README.md")
    exec(compile(block.text, block.page, "exec"), names)
    store, asked = Streams(), []

    async def gather_facts(state: RaceState) -> RaceObservation:
        return RaceObservation(now_ms=1_000, validator="hk", finalized_block=1)

    async def carry_out(effect: Effect, state: RaceState) -> RaceOpened | None:
        asked.append(effect)
        return RaceOpened(race_id=RACE, policy=DEMO, policy_sha256="p", batch=batch(), opened_ms=1_000, closes_ms=2_000)

    first = asyncio.run(names["turn"](store, RACE, gather_facts, carry_out))
    second = asyncio.run(names["turn"](store, RACE, gather_facts, carry_out))
    assert asked == [SealBatch()] and len(store.kept) == 1  # the second turn waits for the close
    assert first.opened == second.opened is not None
