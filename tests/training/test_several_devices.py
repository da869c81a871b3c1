"""Two processes that train one run: the losses of one process, and one writer.

The process group (gloo, on loopback) and the engine's data parallelism are real. The devices are CPUs, where the pinned
accelerate shares out rows but no weights, whatever its config asks for.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import msgspec
import pytest
import torch

from foundation.errors import ArenaError
from tests.training.short_rows import engine_processes
from tests.training.stock import POLICY, RECIPES, Stock, corpus_of, reopen_stock, shortest
from training.models.opening import open_run
from training.recipe import parse_recipe, read_recipe
from training.run import (
    ALONE,
    Processes,
    RunLineage,
    lineage_chain,
    newest_checkpoint,
    open_checkpoint,
    require_shareable,
    weights_sha256,
)
from training.stages.pipeline import run_stage

ROOT = Path(__file__).parents[2]
TWO = Processes(index=0, count=2)
LIMIT_S = 300
RECIPE = """
name = "two"
stage = "sft"
model = "{stock}/model"
[data]
corpus = ["{corpora}/corpus"]
dev = ["{corpora}/dev-corpus"]
tokens_max = 4500
[lora]
r = {r}
[optim]
lr = 1e-2
epochs = 3.0
batch_rows = 1
accumulation = 2
warmup_share = 0.0
is_bf16 = false
is_checkpointing = false
save_every_steps = 2
"""


@pytest.fixture(scope="module")
def corpora(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small corpora; the steps of an epoch don't come out even."""
    folder = tmp_path_factory.mktemp("corpora")
    corpus_of(shortest(stock.traces(), 5), folder / "corpus")
    corpus_of(shortest(stock.traces("dev"), 3), folder / "dev-corpus", "dev")
    (folder / "policy.json").write_bytes(msgspec.json.encode(POLICY))
    torch.set_num_threads(1)
    return folder


def text_of(stock: Stock, corpora: Path, r: int) -> str:
    return RECIPE.format(stock=stock.folder, corpora=corpora, r=r)


def alone(stock: Stock, text: str, out: Path) -> RunLineage:
    """The run by one process, which is this one."""
    return run_stage(parse_recipe(text), out, stock.bench, open_teacher=no_teacher, environment={})


def no_teacher(plan: object) -> object:
    raise AssertionError("a teacher is asked")


def losses_of(run: Path) -> list[float]:
    log = max(run.glob("log*.jsonl"))  # of a sweep, the greatest rate's
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    steps = [line["step"] for line in lines if "loss" in line]
    assert steps == list(range(1, len(steps) + 1))  # each once: one process writes
    return [line["loss"] for line in lines if "loss" in line]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | more


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start_two(work: Callable[..., None], *given: object) -> list[ForkServerProcess]:
    """`work(*given)` in each of two processes that find each other as a launcher's do."""
    port, context = str(free_port()), engine_processes()
    started = [context.Process(target=one_of_two, args=(index, port, work, given)) for index in (0, 1)]
    for one in started:
        one.start()
    return started


def one_of_two(index: int, port: str, work: Callable[..., None], given: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    named = {"RANK": str(index), "LOCAL_RANK": str(index), "WORLD_SIZE": "2"}
    os.environ.update(environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **named))
    work(*given)


def require_both_trained(stock: Stock, recipe: Path, out: Path) -> None:
    """The run on two processes to its end."""
    started = start_two(run_in, stock.folder, recipe, out)
    for one in started:
        one.join(LIMIT_S)
    assert [one.exitcode for one in started] == [0, 0]


def run_in(folder: Path, recipe: Path, out: Path) -> None:
    """The run of one of the two."""
    run_stage(read_recipe(recipe), out, reopen_stock(folder).bench, open_teacher=no_teacher)


def require_equal_runs(two: Path, one: Path) -> None:
    """Losses, dev loss and weights agree but for the order of sums; the lineage of the two says that it was two."""
    assert losses_of(two) == pytest.approx(losses_of(one), rel=1e-5)
    assert losses_of(one)[-1] < losses_of(one)[0]
    lineage, wanted = open_checkpoint(two), open_checkpoint(one)
    assert lineage.metrics == pytest.approx(wanted.metrics, rel=1e-5)
    assert (lineage.steps, lineage.parent_sha256, lineage.corpus_sha256s) == (
        wanted.steps,
        wanted.parent_sha256,
        wanted.corpus_sha256s,
    )
    assert lineage.versions.device == "2 x cpu" and wanted.versions.device == "cpu"
    models = [open_run(run, torch.float32) for run in (two, one)]
    for found, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(found, other, rtol=1e-3, atol=1e-4)


def test_two_processes_come_to_the_losses_of_one(stock: Stock, corpora: Path, tmp_path: Path) -> None:
    text = text_of(stock, corpora, 0)
    recipe, one, two = tmp_path / "two.toml", tmp_path / "one", tmp_path / "two"
    recipe.write_text(text, "utf-8")
    done = alone(stock, text, one)
    assert done.steps > 5 and done.metrics["rows"] % 2  # the last step of an epoch has one row
    require_both_trained(stock, recipe, two)
    require_equal_runs(two, one)
    [(_, lineage)] = lineage_chain(two)
    assert lineage.parent_sha256 == weights_sha256(stock.model)
    assert (two / "checkpoint" / "tokenizer.json").exists() and not (two / "trainer").exists()


@pytest.mark.parametrize("stage", ["kto", "grpo"])
def test_a_stage_that_samples_from_what_it_trains_refuses_a_second_process(
    stock: Stock, tmp_path: Path, stage: str
) -> None:
    text = (RECIPES / f"{stage}.toml").read_text("utf-8")
    two = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    with pytest.raises(ArenaError, match=f"V2124.*{stage} samples from the policy it trains.*one process instead of 2"):
        run_stage(parse_recipe(text), tmp_path / "run", stock.bench, open_teacher=no_teacher, environment=two)
    assert not (tmp_path / "run").exists()


def test_steps_that_cannot_be_shared_out_are_refused(stock: Stock, tmp_path: Path) -> None:
    text = stock.recipe_text("sft", "[optim]\naccumulation = 3\n")
    two = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    with pytest.raises(ArenaError, match=r"V2120.*optim.accumulation = 3 does not divide among 2 processes"):
        run_stage(parse_recipe(text), tmp_path / "run", stock.bench, open_teacher=no_teacher, environment=two)
    assert not (tmp_path / "run").exists()
    require_shareable(parse_recipe(text), ALONE)


def test_a_checkpoint_lacking_a_process_is_not_gone_on_from_and_one_of_other_processes_is_refused(
    tmp_path: Path,
) -> None:
    def checkpoint(step: int, *states: str) -> None:
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for name in ("trainer_state.json", *states):
            (folder / name).touch()

    checkpoint(2, "rng_state_0.pth", "rng_state_1.pth")
    checkpoint(4, "rng_state_0.pth")
    found = newest_checkpoint(tmp_path, TWO)
    assert found == str(tmp_path / "checkpoint-2")
    with pytest.raises(ArenaError, match="is not of 1 processes: go on with as many as began"):
        newest_checkpoint(tmp_path, ALONE)
