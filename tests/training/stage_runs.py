"""Small runs of the training stages, milliseconds a step, and processes in which they die in the middle.

The rows are short conversations; what GRPO plays is a bandit: one turn an episode, rewarded for its even tokens.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from harness.chat import Call, Message
from problems.formats import read_problems
from tests.training.rollouts import make_line
from tests.training.stock import TOKENIZER
from training.model import Decode, Rollout, TokenRow
from training.models.render import Qwen3Codec
from training.models.tiny_model import TinyShape, build_tiny_model
from training.recipe import Recipe
from training.rollouts.rollout import EpisodeLine, Job
from training.run import CHECKPOINT, Outcome, RunFolder, launched
from training.samplers.in_process import LocalSampler
from training.stages.engine import Watch
from training.stages.grpo import GrpoPorts, train_grpo
from training.stages.kto import train_kto
from training.stages.sft import train_sft

Progress = Callable[..., None]
LIMIT_S = 300
TURN = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=6)
RECIPE = """
name = "small"
stage = "{stage}"
model = "{model}"
[lora]
r = {r}
alpha = 8
dropout = {dropout}
[optim]
lr = {lr}
steps_max = {steps}
batch_rows = {batch}
accumulation = {accumulation}
warmup_share = 0.0
is_bf16 = false
is_checkpointing = false
save_every_steps = {every}
"""
KTO = "[data]\ntokens_max = 1000\n[kto]\nbeta = 0.5\nemission_every_steps = 2\n"
GRPO = """
schedule = "constant"
[decode]
temperature = 1.0
top_p = 1.0
[grpo]
problems_per_step = {problems}
samples = 2
beta = 0.1
completion_tokens_max = 64
refresh_every_steps = {refresh}
"""


def small_recipe(stage: str, model: Path, more: str = "", **changes: float) -> Recipe:
    """A recipe; `more` goes on in its table `optim`."""
    values = {"r": 4, "steps": 4, "lr": 5e-3, "every": 2, "batch": 2, "accumulation": 1, "dropout": 0.0} | changes
    return msgspec.toml.decode(RECIPE.format(stage=stage, model=model, **values) + more, type=Recipe)


def write_model(folder: Path) -> Path:
    """Make a random model of one layer."""
    torch.set_num_threads(1)
    build_tiny_model(TOKENIZER, folder, TinyShape(hidden=32, layers=1), 0)
    return folder


def short_rows(codec: Qwen3Codec, count: int = 12, said: str = "It is") -> list[TokenRow]:
    """Rows of two turns each: a call, and what is said to its result."""
    rows = []
    for number in range(count):
        call = Call(id="1", name="find_product", arguments=f'{{"q": "{number}"}}')
        messages = (
            Message(role="user", content=f"Find {number}."),
            Message(role="assistant", content="I search.", calls=(call,)),
            Message(role="tool", content=f"[{number}]" * (1 + number % 3), call_id="1"),
            Message(role="assistant", content=f"{said} {number}."),
        )
        rows.append(codec.row(f"{number:04d}", messages, "[]", 1_000))
    return rows


def labelled(codec: Qwen3Codec, count: int = 8) -> list[TokenRow]:
    """Rows of both classes in turn, which end differently."""
    rows = (short_rows(codec, count), short_rows(codec, count, said="Who knows about"))
    return [replace(rows[place % 2][place], is_wanted=place % 2 == 0) for place in range(count)]


def run_sft(
    model: Path, out: Path, *, more: str = "", dev: int = 0, progress: Progress | None = None, **changes: float
) -> Outcome:
    """Train all weights on short rows; with 0 `steps`, two epochs."""
    codec = Qwen3Codec(model)
    more = f"epochs = 2.0\n{more}" + ('[data]\ndev = ["dev"]\n' if dev else "")
    recipe = small_recipe("sft", model, more, **{"r": 0, "steps": 6, "lr": 1e-2} | changes)
    rows = short_rows(codec)
    return train_sft(recipe, RunFolder(out, recipe, progress), rows, rows[:dev], codec.tokenizer.pad_token_id)


def run_kto(
    model: Path, out: Path, rate: Any = None, progress: Progress | None = None, *, rows: int = 8, **changes: Any
) -> Outcome:
    """Train on labelled rows. `rate` is the policy's emission rate."""
    codec, recipe = Qwen3Codec(model), small_recipe("kto", model, KTO, **changes)
    folder = RunFolder(out, recipe, progress, launched(os.environ))
    return train_kto(recipe, folder, labelled(codec, rows), codec.tokenizer, rate)


class Bandit:
    """One turn an episode, whose reward is the share of its tokens that are even: something a policy can learn.

    `is_losing`: the first rollout of every step was not one sequence.
    """

    def __init__(self, codec: Qwen3Codec, *, is_losing: bool = False) -> None:
        self._prompt = tuple(codec.tokenizer.encode("Say even numbers."))
        self._is_losing = is_losing
        self.versions: list[str] = []
        self.modes: list[bool] = []

    def __call__(self, jobs: Sequence[Job], sampler: Any) -> list[EpisodeLine]:
        if isinstance(sampler, LocalSampler):
            self.modes.append(sampler._model.training)
        first, *rest = [self.play(job, sampler) for job in jobs]
        return [replace(first, rollout=None) if self._is_losing else first, *rest]

    def play(self, job: Job, sampler: Any) -> EpisodeLine:
        """One episode."""
        self.versions.append(sampler.version)
        sampled = sampler.sample(self._prompt, TURN, job.seed)
        ids, (turn,) = sampled.token_ids, make_line(reward=0.0).rollout.turns  # type: ignore[union-attr]
        rollout = Rollout(
            prompt_ids=self._prompt,
            completion_ids=(*ids, 7, 7),  # then two tokens of the environment
            mask=(1,) * len(ids) + (0, 0),
            logprobs=(*sampled.logprobs, 0.0, 0.0),
            turns=(replace(turn, last=len(ids)),),
        )
        reward = sum(token % 2 == 0 for token in ids) / len(ids)
        line = make_line(reward=reward, problem_id=job.problem.problem_id, sample=job.sample)
        return msgspec.structs.replace(line, rollout=rollout)


def run_grpo(
    folder: Path,
    out: Path,
    run_jobs: Any,
    server: Any = None,
    progress: Progress | None = None,
    *,
    refresh: int = 0,
    problems: int = 2,
    **changes: Any,
) -> Outcome:
    """Train the model of the shop in `folder` on four of its problems."""
    torch.set_num_threads(1)
    more = GRPO.format(refresh=refresh, problems=problems)
    recipe = small_recipe("grpo", folder / "model", more, lr=1e-2, **changes)
    asked = tuple(read_problems((folder / "train.jsonl").read_bytes().splitlines())[:4])
    ports = GrpoPorts(problems=asked, codec=Qwen3Codec(folder / "model"), run_jobs=run_jobs, server=server)
    return train_grpo(recipe, RunFolder(out, recipe, progress, launched(os.environ)), ports)


def lines_of(run: Path, name: str = "log.jsonl") -> list[dict[str, float]]:
    """A log of a run."""
    return [json.loads(line) for line in (run / name).read_text("utf-8").splitlines()]


def engine_processes() -> ForkServerContext:
    """Starts processes that have read the engine already and nothing else: each would take seconds to read it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.stage_runs"])
    return context


def run_in_two(work: Callable[..., object], *given: object) -> list[int]:
    """Run `work(*given)` in two processes that find each other as a launcher's do. Their exit codes."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    started = [engine_processes().Process(target=_be_one, args=(index, port, work, given)) for index in (0, 1)]
    for process in started:
        process.start()
    for process in started:
        process.join(LIMIT_S)
        if process.is_alive():
            process.kill()
    return [process.exitcode for process in started]


def _be_one(index: int, port: int, work: Callable[..., object], given: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    named = {"RANK": str(index), "LOCAL_RANK": str(index), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    os.environ.update(named, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), CUDA_VISIBLE_DEVICES="")
    work(*given)


def require_killed(work: Callable[..., None], out: Path, *given: object) -> None:
    """Run `work(out, *given)`, which trains in `out`, in another process until it dies there by -9."""
    killed = engine_processes().Process(target=work, args=(out, *given))
    killed.start()
    killed.join(LIMIT_S)
    assert killed.exitcode == -signal.SIGKILL
    assert not (out / CHECKPOINT).exists()


def ending(event: str, step: int) -> Callable[..., Any]:
    """A watch's `event` during which SIGTERM comes, once, when this many steps are over; never for 0."""
    real, left = getattr(Watch, event), [step]

    def on(watch: Watch, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        if state.global_step == left[0]:
            left[0] = 0
            signal.raise_signal(signal.SIGTERM)
        return real(watch, args, state, control, **rest)

    return on


def die_in(step: int) -> Progress:
    """A progress report that ends its process by kill -9 in this step."""
    torch.set_num_threads(1)  # as in the tests: sums are taken in the same order

    def die(phase: str, done: int, of: int) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def die_in_sft(out: Path, model: Path, step: int, steps: int) -> None:
    """A run of so many steps that dies in the step named."""
    run_sft(model, out, steps=steps, progress=die_in(step))


def die_in_kto(out: Path, model: Path, step: int, rates: tuple[float, ...]) -> None:
    """A run that dies in the step named, watched by these rates."""
    watched = iter(rates)
    run_kto(model, out, lambda policy: next(watched), progress=die_in(step))
