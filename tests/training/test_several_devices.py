"""Two processes that train one run: the losses of one process, one writer, and one verdict.

The process group (gloo, on loopback) and the engine's data parallelism are real. The devices are CPUs, where the pinned
accelerate shares out rows but no weights, whatever its config asks for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file

from foundation.errors import ArenaError
from tests.training.stage_runs import Bandit, die_in, ending, lines_of, run_grpo, run_in_two, run_kto
from tests.training.stock import RECIPES, Stock, corpus_of, reopen_stock, shortest
from training.models.opening import open_run
from training.models.render import Qwen3Codec
from training.recipe import Recipe, read_recipe
from training.rollouts.rollout import EpisodeLine, Job
from training.run import ALONE, CHECKPOINT, Outcome, Processes, launched, newest_checkpoint, open_checkpoint
from training.stages.engine import Watch
from training.stages.pipeline import run_stage

TWO = Processes(count=2)
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


def agree(two: Path, one: Path, keys: Sequence[str], rel: float = 1e-3) -> None:
    """What was logged, and the adapters, but for the order of sums."""
    found = [{key: [line[key] for line in lines_of(run) if key in line] for key in keys} for run in (two, one)]
    for key in keys:
        assert found[1][key] and found[0][key] == pytest.approx(found[1][key], rel=rel, abs=1e-4), key
    weights = [load_file(run / CHECKPOINT / "adapter_model.safetensors") for run in (two, one)]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][name], rtol=1e-2, atol=2e-4)


def said_by(out: Path) -> list[str]:
    """What each process of a run in `out` ended with."""
    return [out.with_suffix(f".{index}").read_text("utf-8") for index in (0, 1)]


def say(out: Path, run: Callable[[], Outcome]) -> None:
    """Keep what one of two processes ends with: the guard, or the error."""
    try:
        ended = run().stopped_by
    except ArenaError as error:
        ended = error.failure.detail
    out.with_suffix(f".{launched(os.environ).index}").write_text(ended, "utf-8")


def sft_in_two(folder: Path, recipe: Path, out: Path) -> None:
    run_stage(read_recipe(recipe), out, reopen_stock(folder).bench, open_teacher=no_teacher)


def kto_in_two(model: Path, out: Path, rows: int, terminated: int = 0) -> None:
    if launched(os.environ).index == 1:
        Watch.on_step_end = ending("on_step_end", terminated)  # type: ignore[method-assign]
    say(out, lambda: run_kto(model, out, rows=rows, batch=4, steps=6, lr=2e-2, every=50))


def kto_watched_in_two(model: Path, out: Path) -> None:
    rates = iter((1.0, 0.5)) if launched(os.environ).is_first else iter(())
    say(out, lambda: run_kto(model, out, lambda policy: next(rates)))


class HalfWrong(Bandit):
    """The second half of a step's rollouts, those of the second process, have logprobs of another policy."""

    def __call__(self, jobs: Sequence[Job], sampler: Any) -> list[EpisodeLine]:
        lines = super().__call__(jobs, sampler)
        for place in range(len(lines) // 2, len(lines)):
            rollout: Any = lines[place].rollout
            worse = tuple(p - bit for p, bit in zip(rollout.logprobs, rollout.mask, strict=True))
            lines[place] = replace(lines[place], rollout=replace(rollout, logprobs=worse))
        return lines


GRPO: dict[str, Any] = {"problems": 3, "batch": 1, "steps": 5, "refresh": 2, "every": 1}  # a group is split


def grpo_in_two(folder: Path, out: Path, died: int = 0, is_wrong: bool = False) -> None:
    bandit = (HalfWrong if is_wrong else Bandit)(Qwen3Codec(folder / "model"))
    say(out, lambda: run_grpo(folder, out, bandit, progress=die_in(died), **GRPO))


def test_two_processes_come_to_the_losses_of_one(stock: Stock, tmp_path: Path) -> None:
    """The steps of an epoch don't come out even. Losses and weights agree but for the order of sums."""
    corpus_of(shortest(stock.traces(), 3), tmp_path / "corpus")
    corpus_of(shortest(stock.traces("dev"), 3), tmp_path / "dev-corpus", "dev")
    torch.set_num_threads(1)
    recipe, one, two = tmp_path / "two.toml", tmp_path / "one", tmp_path / "two"
    recipe.write_text(stock.recipe_text("sft", RECIPE.format(corpora=tmp_path)), "utf-8")
    done = run_stage(read_recipe(recipe), one, stock.bench, open_teacher=no_teacher, environment={})
    assert done.steps > 3 and done.metrics["rows"] % 2  # the last step of an epoch has one row
    assert run_in_two(sft_in_two, stock.folder, recipe, two) == [0, 0]
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


KTO_KEYS = ("loss", "kl", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/rejected")


def test_kto_pairs_and_measures_over_the_rows_of_both_processes(model: Path, tmp_path: Path) -> None:
    """The last batch has two rows: the second process has none of them."""
    torch.set_num_threads(1)
    run_kto(model, tmp_path / "one", rows=6, batch=4, steps=6, lr=2e-2)
    assert run_in_two(kto_in_two, model, tmp_path / "two", 6) == [0, 0]
    agree(tmp_path / "two", tmp_path / "one", KTO_KEYS)
    assert max(line.get("kl", 0) for line in lines_of(tmp_path / "one")) > 0.01  # z0 counts


def test_sigterm_to_one_process_ends_both_and_loses_no_step(model: Path, tmp_path: Path) -> None:
    """The last batch has three rows: the second process has one of them."""
    torch.set_num_threads(1)
    run_kto(model, tmp_path / "one", rows=7, batch=4, steps=6, lr=2e-2)
    run_in_two(kto_in_two, model, tmp_path / "two", 7, 3)
    assert said_by(tmp_path / "two") == [str(tmp_path / "two")] * 2
    assert [line["step"] for line in lines_of(tmp_path / "two")] == [1, 2, 3]
    assert newest_checkpoint(tmp_path / "two" / "trainer", TWO) == str(tmp_path / "two" / "trainer" / "checkpoint-3")
    assert run_in_two(kto_in_two, model, tmp_path / "two", 7) == [0, 0]
    agree(tmp_path / "two", tmp_path / "one", KTO_KEYS)


def test_a_guard_of_one_process_ends_both_with_one_sentence(model: Path, stock: Stock, tmp_path: Path) -> None:
    assert run_in_two(kto_watched_in_two, model, tmp_path / "kto") == [0, 0]
    assert run_in_two(grpo_in_two, stock.folder, tmp_path / "grpo", 0, True) == [0, 0]
    for name, begins in (("kto", "emission: 0.500 of dev"), ("grpo", "logprobs: sampler and trainer differ by 0.5")):
        first, second = said_by(tmp_path / name)
        assert first.startswith(begins) and second == first
    assert not (tmp_path / "grpo" / "log.jsonl").exists()  # before the first update


def test_grpo_with_a_group_in_both_processes_comes_to_one_s_and_goes_on_after_a_kill(
    stock: Stock, tmp_path: Path
) -> None:
    """It is killed between two renewals of the behaviour policy."""
    one, two = tmp_path / "one", tmp_path / "two"
    run_grpo(stock.folder, one, Bandit(stock.codec), **GRPO)
    assert run_in_two(grpo_in_two, stock.folder, two, 4)[0] == -9
    assert newest_checkpoint(two / "trainer", TWO) == str(two / "trainer" / "checkpoint-3")
    assert run_in_two(grpo_in_two, stock.folder, two) == [0, 0]
    agree(two, one, ("loss", "reward", "grad_norm", "importance_ratio", "rollouts"))


def test_what_processes_can_not_share_out_is_refused(stock: Stock, tmp_path: Path) -> None:
    two = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    grpo = (RECIPES / "grpo.toml").read_text("utf-8")
    for text, more, told in (
        (grpo, {"ACCELERATE_USE_FSDP": "true"}, "V2124.*grpo needs whole weights in one process"),
        (
            stock.recipe_text("sft", "[optim]\naccumulation = 3\n"),
            {},
            "V2120.*accumulation = 3 does not divide among 2",
        ),
        (stock.recipe_text("kto", "[optim]\nbatch_rows = 3\n"), {}, "V2120.*batch_rows = 3 does not divide among 2"),
    ):
        recipe = msgspec.toml.decode(text, type=Recipe)
        with pytest.raises(ArenaError, match=told):
            run_stage(recipe, tmp_path / "run", stock.bench, open_teacher=no_teacher, environment=two | more)
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
