"""Recipes: every key has a name, a misspelt one is told its nearest, and the hash says what a run was told to do."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from foundation.errors import ArenaError
from neurons.cli import evaluate, train
from tests.training.stock import Stock
from training.models.opening import find_device, open_model, require_candidate
from training.recipe import read_recipe, require_runnable

SHIPPED = sorted((Path(__file__).parents[2] / "training" / "recipes").glob("*/*.toml"))
BASE = 'name = "x"\nstage = "sft"\nmodel = "m"\n'


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shipped_recipe_reads(path: Path) -> None:
    assert read_recipe(path).stage in path.stem or path.stem.startswith(read_recipe(path).stage)


def overlay(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text, "utf-8")
    return folder / f"{next(iter(texts))}.toml"


def test_an_overlay_changes_what_it_names_and_keeps_the_rest(tmp_path: Path) -> None:
    path = overlay(
        tmp_path,
        top='extends = "mid.toml"\n[optim]\nlr = 5e-7\n',
        mid='extends = "low.toml"\nseed = 3\n[optim]\nlr = 1e-6\nsteps_max = 4\n[lora]\ntargets = ["q_proj"]\n',
        low=BASE + 'tokenizer = "a \\"b\\" \\\\ é"\n[optim]\nlr = 1e-5\nis_bf16 = false\n[data]\ndev = ["d"]\n',
    )
    recipe = read_recipe(path)
    assert (recipe.optim.lr, recipe.optim.steps_max, recipe.optim.is_bf16) == (5e-7, 4, False)
    assert (recipe.seed, recipe.tokenizer, recipe.data.dev) == (3, 'a "b" \\ é', ("d",))
    assert recipe.lora.targets == ("q_proj",)


@pytest.mark.parametrize(
    ("stage", "text", "told"),
    [
        # a key that nobody knows: the nearest is named, where one is near
        ("sft", "[optim]\nlearning_rate = 1.0", "r.toml"),
        ("sft", "[optim]\nstep_max = 1", "did you mean 'steps_max'"),
        # a value out of bounds: key, value and bound
        ("sft", "parallel = 0", "r.toml: parallel = 0: Expected `int` >= 1"),
        ("sft", "[optim]\nlr_sweep = [1e-3, 2.0]", "r.toml: optim.lr_sweep[1] = 2.0: Expected `float` <= 1.0"),
        ("sft", "[optim]\nepochs = inf", "r.toml: inf: a finite number is expected"),
        # keys that contradict each other
        ("kto", "", "optim.batch_rows = 1: KTO pairs the rows of a batch, at least 2"),
        ("grpo", "[optim]\nbatch_rows = 5", "optim.batch_rows = 5 has to divide 48, the rollouts of a step"),
        ("grpo", "[decode]\ntemperature = 0.0", "decode.temperature = 0.0"),
        ("grpo", "[grpo]\nis_blended_per_turn = true", "needs grpo.tool_weight above 0"),
        (
            "grpo",
            'sampler = "http://h/v1"\nsampler_model = "m"\n[grpo]\nrefresh_every_steps = 5\n[lora]\nr = 0',
            "grpo.refresh_every_steps needs lora.r above 0",
        ),
        ("grpo", "[decode]\ntop_p = 0.95", "decode.top_p = 0.95: the trainer scores the whole distribution"),
        ("sft", "[optim]\nlr_sweep = [1e-3, 1e-2]", "needs dev rows: data.dev names no corpus"),
        ("rejection", 'sampler = "http://h/v1"', "sampler_model has to name the model there"),
        ("rejection", 'sampler = "h:8000"', "sampler = 'h:8000' is no URL"),
        ("teacher", 'teacher = "claude"', "teacher = 'claude' is neither a URL nor `scripted`"),
    ],
)
def test_what_no_recipe_may_say_is_told_when_it_is_read(stage: str, text: str, told: str, tmp_path: Path) -> None:
    path = overlay(tmp_path, r=f'name = "x"\nstage = "{stage}"\nmodel = "m"\n{text}\n')
    with pytest.raises(ArenaError) as wrong:
        read_recipe(path)
    found = wrong.value.failure.detail
    assert wrong.value.failure.code == "V2120"
    assert told in found and found.startswith(str(path)) and ("did you mean" in found) == ("did you mean" in told)


def test_a_recipe_that_reads_and_can_not_run_is_told_before_it_starts(tmp_path: Path) -> None:
    def runnable(stage: str, text: str) -> None:
        path = overlay(tmp_path, r=f'name = "x"\nstage = "{stage}"\nmodel = "m"\n{text}\n')
        require_runnable(read_recipe(path), "r.toml")

    with pytest.raises(ArenaError, match=r"V2120.*rejection learns from problems .*data\.problems"):
        runnable("rejection", "")
    watched = "[optim]\nbatch_rows = 2\n[data]\nproblems = 'p'\n"
    with pytest.raises(ArenaError, match=r"V2120.*emission_min watches .*data\.dev_problems"):
        runnable("kto", watched)
    runnable("kto", watched + "[guards]\nemission_min = 0.0\n")
    if importlib.util.find_spec("bitsandbytes") is None:
        with pytest.raises(ArenaError, match=r"V2120.*engine asks for bitsandbytes, which is not installed"):
            runnable("sft", '[engine]\noptim = "paged_adamw_8bit"\n')
    runnable("sft", "")


# -- `arena train` and `arena eval` before anything is opened: what is missing is said at once, with what to do


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
    told = r"V2120.*nowhere is not a folder, and nothing is fetched: .*hf download"
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
