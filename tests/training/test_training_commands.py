"""`arena train` and `arena eval` before anything is opened: what is missing is said at once, with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from foundation.errors import ArenaError
from neurons.cli import evaluate, train
from tests.training.stock import Stock
from training.models.opening import find_device, open_model, require_candidate


def start(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(train.app, ["train", *words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_a_dry_run_needs_no_out_and_says_the_device(stock: Stock, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(stock.recipe_text("sft"), "utf-8")
    words = ("sft", "--recipe", str(recipe))
    shown = json.loads(start(*words, "--dry-run", "--json").stdout)
    assert shown["device"]["torch"] == torch.__version__ and shown["device"]["name"]
    assert "device here" in start(*words, "--dry-run").stdout
    assert "--out" in start(*words, code=2).output


def test_a_model_that_is_no_folder_is_told_what_to_do_wherever_it_is_named(tmp_path: Path) -> None:
    told = r"V2124.*nowhere is no folder, and nothing is fetched: .*hf download"
    with pytest.raises(ArenaError, match=told):
        CliRunner().invoke(evaluate.app, ["nowhere", "--problems", "absent.jsonl"], catch_exceptions=False)
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "x"\nstage = "sft"\nmodel = "nowhere"\n', "utf-8")
    with pytest.raises(ArenaError, match=told):
        start("sft", "--recipe", str(recipe), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ArenaError, match=told):
        open_model("nowhere", torch.float32)


def test_a_run_that_is_not_finished_a_bare_folder_and_an_idle_card_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, told in (("notes.txt", "holds no config.json"), ("recipe.json", "is a run that is not finished")):
        (tmp_path / name).write_text("", "utf-8")
        with pytest.raises(ArenaError, match=told):
            require_candidate(str(tmp_path))
    monkeypatch.setattr("training.models.opening.shutil.which", lambda name: "/usr/bin/nvidia-smi")
    assert torch.cuda.is_available() or "lies idle" in find_device().warning


@pytest.mark.parametrize("plan", ["rejection", "kto", "teacher", "grpo_v19"])
def test_a_plan_of_the_paper_is_shown_before_anything_of_it_is_there(tmp_path: Path, plan: str) -> None:
    """Qwen3-4B is known by name; what is assumed of corpora and problems is said."""
    recipe = Path(train.__file__).parents[2] / "training" / "recipes" / "paper" / f"{plan}.toml"
    words = ("--recipe", str(recipe), "--dry-run", "--json", "--state-dir", str(tmp_path))
    shown = json.loads(start(plan.partition("_")[0], *words).stdout)
    estimate = shown["estimate"]
    assert estimate["parameters"] == pytest.approx(4.022e9, rel=1e-3) and shown["assumed"]
    assert 10 < estimate["memory_gb"] < 80 and estimate["hours"]["NVIDIA H100"] > 0
    assert (estimate["sampling_hours"]["NVIDIA H100"] > 0) == (plan != "teacher")
