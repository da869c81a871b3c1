"""README.md's lines for a researcher, in the order printed, and those of training's page, on a small export.

In the place of a demo's export stands the tests' day, and in that of suite s1 two problems of a small catalogue. As
typed and with a demo, the lines run in `make prove` (tests/prove/test_readme_paths.py).
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from neurons.cli.app import main
from tests.readme_blocks import ROOT, block_under
from tests.training.stock import Stock

PROBLEMS = 2


@pytest.fixture(scope="module")
def place(day: Path, stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder like a clone's after the operator's lines."""
    place = tmp_path_factory.mktemp("clone")
    shutil.copytree(day, place / "day1")
    shutil.copytree(ROOT / "training" / "recipes", place / "training" / "recipes")
    recipe = place / "training" / "recipes" / "first" / "sft.toml"  # one step, on traces of any length
    text = recipe.read_text("utf-8").replace("tokens_max = 7000", "tokens_max = 30000")
    recipe.write_text(text.replace("steps_max = 4", "steps_max = 1"), "utf-8")
    few = (stock.folder / "eval.jsonl").read_text("utf-8").splitlines()[:PROBLEMS]
    (place / "few.jsonl").write_text("\n".join(few) + "\n", "utf-8")
    before = Path.cwd()
    os.chdir(place)
    torch.set_num_threads(1)
    try:
        yield place
    finally:
        os.chdir(before)


def run(line: str, stock: Stock, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """One line, with the small market in the place of the demo's; what it printed."""
    monkeypatch.setenv("ARENA_STATE_DIR", "home")
    monkeypatch.setenv("ARENA_CATALOGUE_DIR", str(stock.folder / "index"))
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line.replace(" s1 ", " few.jsonl "))[1:])
    told = capfd.readouterr()
    assert not ended.value.code, f"{line}\n{told.out}{told.err}"
    return told.out + told.err


def test_the_researchers_lines_end_as_the_page_says(
    place: Path, stock: Stock, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told = [run(line, stock, monkeypatch, capfd) for line in block_under("I am a researcher").lines]
    assert "traces" in told[0] and (place / "corpora/train/report.html").exists()
    assert "made a model of" in told[1] and "loss_last" in told[1]
    assert f"few: {PROBLEMS} problems" in told[2] and "no overlap with" in told[2]
    assert "scripted-expert" in told[3]
    assert "report.html: 2 rows, 1 runs" in told[4]
    for line in block_under("training", ROOT / "training" / "README.md").lines:  # the run is there, so it is returned
        run(line, stock, monkeypatch, capfd)
    assert (place / "entry" / "agent.py").exists()
