"""`arena train` and `arena eval` before anything is opened: what is missing is said at once, with what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from typer.testing import CliRunner, Result

from foundation.errors import ArenaError
from neurons.cli import evaluate as evaluate_model
from neurons.cli import train
from tests.training.stock import POLICY, Stock
from tests.training.vllm_double import VllmDouble, serve
from training.evaluation.report import EvalReport
from training.models.opening import open_model
from training.recipe import parse_recipe
from training.run import CHECKPOINT, Outcome, RunFolder, open_checkpoint

SHORT = ("--decode", "turn_tokens_max=8", "--decode", "turns_max=2", "--parallel", "2")


@pytest.fixture(scope="module")
def node(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Flags of a node over the stock's shop."""
    state = tmp_path_factory.mktemp("node")
    (state / "policy.json").write_bytes(msgspec.json.encode(POLICY))
    places = {"--policy": state / "policy.json", "--catalogue": stock.folder / "index", "--state-dir": state / "state"}
    return tuple(word for flag, place in places.items() for word in (flag, str(place)))


@pytest.fixture(scope="module")
def run(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that learnt from the train problems."""
    folder = tmp_path_factory.mktemp("runs") / "sft"
    text = stock.recipe_text("sft", f'[data]\nproblems = "{stock.folder / "train.jsonl"}"')
    opened = RunFolder(folder, parse_recipe(text))
    shutil.copytree(stock.model, folder / CHECKPOINT)
    opened.finish(
        Outcome(parent_sha256="base", steps=1), codec_sha256="", partition_sha256="", code_commit="", device="cpu"
    )
    return folder


@pytest.fixture(scope="module")
def double(stock: Stock) -> VllmDouble:
    torch.set_num_threads(1)
    local = stock.sampler(stock.load())
    found = VllmDouble(lambda model, prompt, decode, seed: local.sample(prompt, decode, seed))
    found.models = {"sft@0123": ""}
    return found


@pytest.fixture(scope="module")
def server(double: VllmDouble) -> Iterator[str]:
    with serve(double) as url:
        yield url


def evaluate(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(evaluate_model.app, [*words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def start(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(train.app, ["train", *words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def reported(result: Result) -> EvalReport:
    return msgspec.convert(json.loads(result.stdout)["report"], EvalReport)


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
        evaluate("nowhere", "--problems", "absent.jsonl")
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "x"\nstage = "sft"\nmodel = "nowhere"\n', "utf-8")
    with pytest.raises(ArenaError, match=told):
        start("sft", "--recipe", str(recipe), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ArenaError, match=told):
        open_model("nowhere", torch.float32)


def test_a_run_is_examined_at_a_server_as_in_this_process(
    stock: Stock, run: Path, node: tuple[str, ...], double: VllmDouble, server: str, tmp_path: Path
) -> None:
    words = (str(run), "--problems", str(stock.folder / "eval.jsonl"), *SHORT, *node)
    at, kept = ("--sampler", server, "--model", "sft@0123"), str(tmp_path / "report.json")
    served, own = (reported(evaluate(*words, *more, "--json")) for more in ((*at, "--out", kept), ()))
    assert served.weights == "sft@0123" and own.weights == own.lineage_sha256
    assert served.lineage_sha256 == own.lineage_sha256 == open_checkpoint(run).sha256
    assert served.conditions == own.conditions and served.problems == own.problems
    assert "contamination check" in served.contamination and "sampled by sft@0123" in served.contamination
    assert {(asked["model"], asked["temperature"]) for asked in double.requests} == {("sft@0123", 0.0)}
    with pytest.raises(ArenaError, match=r"V2124.*holds episodes of sft@0123, not of"):
        evaluate(*words, "--out", kept)


@pytest.mark.parametrize("stage", ["rejection", "kto"])
def test_a_plan_of_the_paper_is_shown_before_anything_of_it_is_there(node: tuple[str, ...], stage: str) -> None:
    """Qwen3-4B is known by name; what is assumed of corpora and problems is said."""
    recipe = Path(train.__file__).parents[2] / "training" / "recipes" / "paper" / f"{stage}.toml"
    words = ["train", stage.partition("_")[0], "--recipe", str(recipe), "--dry-run", "--json", *node]
    shown = json.loads(CliRunner().invoke(train.app, words, catch_exceptions=False).stdout)
    estimate = shown["estimate"]
    assert estimate["parameters"] == pytest.approx(4.022e9, rel=1e-3) and shown["assumed"]
    assert 10 < estimate["memory_gb"] < 80 and estimate["hours"]["NVIDIA H100"] > 0
    assert (estimate["sampling_hours"]["NVIDIA H100"] > 0) == (not stage.startswith(("sft", "teacher")))
