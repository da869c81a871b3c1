"""Two processes that train one run: the losses of one process, and one writer.

The process group (gloo, on loopback) and the engine's data parallelism are real. The devices are CPUs, where the pinned
accelerate shares out rows but no weights, whatever its config asks for.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import torch

from foundation.errors import ArenaError
from tests.training.stage_runs import engine_processes, lines_of
from tests.training.stock import RECIPES, Stock, corpus_of, reopen_stock, shortest
from training.models.opening import open_run
from training.recipe import parse_recipe, read_recipe
from training.run import ALONE, Processes, newest_checkpoint, open_checkpoint
from training.stages.pipeline import run_stage

TWO = Processes(index=0, count=2)
LIMIT_S = 300
RECIPE = """
[data]
corpus = ["{corpora}/corpus"]
dev = ["{corpora}/dev-corpus"]
tokens_max = 4500
[lora]
r = 0
[optim]
lr = 1e-2
epochs = 2.0
batch_rows = 1
accumulation = 2
warmup_share = 0.0
is_bf16 = false
is_checkpointing = false
save_every_steps = 2
"""


def no_teacher(plan: object) -> object:
    raise AssertionError("a teacher is asked")


def losses_of(run: Path) -> list[float]:
    lines = lines_of(run)
    steps = [line["step"] for line in lines if "loss" in line]
    assert steps == list(range(1, len(steps) + 1))  # each once: one process writes
    return [line["loss"] for line in lines if "loss" in line]


def run_one_of_two(index: int, port: int, folder: Path, recipe: Path, out: Path) -> None:
    """The run of one of two processes that find each other as a launcher's do."""
    torch.set_num_threads(1)
    named = {"RANK": str(index), "LOCAL_RANK": str(index), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    os.environ.update(named, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), CUDA_VISIBLE_DEVICES="")
    run_stage(read_recipe(recipe), out, reopen_stock(folder).bench, open_teacher=no_teacher)


def test_two_processes_come_to_the_losses_of_one(stock: Stock, tmp_path: Path) -> None:
    """The steps of an epoch don't come out even. Losses and weights agree but for the order of sums."""
    corpus_of(shortest(stock.traces(), 3), tmp_path / "corpus")
    corpus_of(shortest(stock.traces("dev"), 3), tmp_path / "dev-corpus", "dev")
    torch.set_num_threads(1)
    recipe, one, two = tmp_path / "two.toml", tmp_path / "one", tmp_path / "two"
    recipe.write_text(stock.recipe_text("sft", RECIPE.format(corpora=tmp_path)), "utf-8")
    done = run_stage(read_recipe(recipe), one, stock.bench, open_teacher=no_teacher, environment={})
    assert done.steps > 3 and done.metrics["rows"] % 2  # the last step of an epoch has one row
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    given = (port, stock.folder, recipe, two)
    started = [engine_processes().Process(target=run_one_of_two, args=(index, *given)) for index in (0, 1)]
    for process in started:
        process.start()
    for process in started:
        process.join(LIMIT_S)
    assert [process.exitcode for process in started] == [0, 0]
    assert losses_of(two) == pytest.approx(losses_of(one), rel=1e-5)
    assert losses_of(one)[-1] < losses_of(one)[0]
    lineage = open_checkpoint(two)
    assert lineage.metrics == pytest.approx(done.metrics, rel=1e-5)
    assert (lineage.steps, lineage.parent_sha256) == (done.steps, done.parent_sha256)
    assert lineage.versions.device == "2 x cpu" and done.versions.device == "cpu"
    models = [open_run(run, torch.float32) for run in (two, one)]
    for weight, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(weight, other, rtol=1e-3, atol=1e-4)
    assert (two / "checkpoint" / "tokenizer.json").exists() and not (two / "trainer").exists()


def test_a_stage_that_samples_from_what_it_trains_or_uneven_steps_refuse_a_second_process(
    stock: Stock, tmp_path: Path
) -> None:
    two = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    for text, told in (
        ((RECIPES / "grpo.toml").read_text("utf-8"), "V2124.*grpo samples from the policy it trains"),
        (stock.recipe_text("sft", "[optim]\naccumulation = 3\n"), "V2120.*accumulation = 3 does not divide among 2"),
    ):
        with pytest.raises(ArenaError, match=told):
            run_stage(parse_recipe(text), tmp_path / "run", stock.bench, open_teacher=no_teacher, environment=two)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_lacking_a_process_is_not_gone_on_from_and_one_of_other_processes_is_refused(
    tmp_path: Path,
) -> None:
    for step, *states in ((2, "rng_state_0.pth", "rng_state_1.pth"), (4, "rng_state_0.pth")):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for name in ("trainer_state.json", *states):
            (folder / name).touch()
    assert newest_checkpoint(tmp_path, TWO) == str(tmp_path / "checkpoint-2")
    with pytest.raises(ArenaError, match="is not of 1 processes: go on with as many as began"):
        newest_checkpoint(tmp_path, ALONE)
