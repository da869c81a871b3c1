"""A bandit to train with GRPO: one turn an episode, rewarded for its even tokens; and a run of it that is killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from problems.formats import read_problems
from problems.model import Problem
from tests.training.rollouts import make_line
from tests.training.short_rows import die_in
from training.model import Decode, Rollout
from training.models.render import Qwen3Codec
from training.recipe import Recipe, parse_recipe
from training.rollouts.rollout import EpisodeLine, Job
from training.run import Outcome, RunFolder
from training.samplers.in_process import LocalSampler
from training.stages.grpo import GrpoPorts, train_grpo

TURN = Decode(temperature=1.0, top_p=1.0, turn_tokens_max=6)
GRPO = """
[lora]
r = 4
alpha = 8
[optim]
lr = {lr}
steps_max = {steps}
batch_rows = 2
warmup_share = 0.0
schedule = "constant"
is_bf16 = false
is_checkpointing = false
save_every_steps = {every}
[decode]
temperature = 1.0
top_p = 1.0
[grpo]
problems_per_step = 2
samples = 2
beta = 0.1
completion_tokens_max = 64
refresh_every_steps = {refresh}
"""


def grpo_recipe(
    model: Path, *, steps: int = 2, lr: float = 1e-2, refresh: int = 0, every: int = 50, more: str = ""
) -> Recipe:
    """A recipe."""
    rules = GRPO.format(steps=steps, lr=lr, refresh=refresh, every=every)
    text = f'name = "bandit"\nstage = "grpo"\nmodel = "{model}"\n{rules}{more}'
    return parse_recipe(text)


class Bandit:
    """One turn an episode, whose reward is the share of its tokens that are even: something a policy can learn."""

    def __init__(self, codec: Qwen3Codec) -> None:
        self._prompt = tuple(codec.tokenizer.encode("Say even numbers."))
        self.versions: list[str] = []
        self.modes: list[bool] = []

    def __call__(self, jobs: Sequence[Job], sampler: Any) -> list[EpisodeLine]:
        if isinstance(sampler, LocalSampler):
            self.modes.append(sampler._model.training)
        return [self.play(job, sampler) for job in jobs]

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
            turns=(msgspec.structs.replace(turn, last=len(ids)),),
        )
        reward = sum(token % 2 == 0 for token in ids) / len(ids)
        line = make_line(reward=reward, problem_id=job.problem.problem_id, sample=job.sample)
        return msgspec.structs.replace(line, rollout=rollout)


def run_grpo(
    folder: Path,
    out: Path,
    run_jobs: Any = None,
    server: Any = None,
    progress: Callable[..., None] | None = None,
    **changes: Any,
) -> Outcome:
    """Train the model of the shop in `folder` on four of its problems; by a bandit where nothing else is named."""
    torch.set_num_threads(1)
    recipe = grpo_recipe(folder / "model", **changes)
    codec = Qwen3Codec(folder / "model")
    ports = GrpoPorts(problems=problems_of(folder), codec=codec, run_jobs=run_jobs or Bandit(codec), server=server)
    return train_grpo(recipe, RunFolder(out, recipe, progress), ports)


def problems_of(folder: Path) -> tuple[Problem, ...]:
    """Four problems of the shop."""
    return tuple(read_problems((folder / "train.jsonl").read_bytes().splitlines())[:4])


class Losing:
    """A bandit whose first rollout of every step was not one sequence."""

    def __init__(self, codec: Qwen3Codec) -> None:
        self._bandit = Bandit(codec)

    def __call__(self, jobs: Sequence[Job], sampler: Any) -> list[EpisodeLine]:
        first, *rest = self._bandit(jobs, sampler)
        return [msgspec.structs.replace(first, rollout=None), *rest]


def run_losing(folder: Path, out: Path, progress: Callable[..., None] | None = None) -> Outcome:
    """Five steps that lose a rollout each; the behaviour policy is renewed every other step."""
    losing = Losing(Qwen3Codec(folder / "model"))
    return run_grpo(folder, out, losing, progress=progress, steps=5, refresh=2, every=2)


def die_in_grpo(folder: Path, out: Path, step: int) -> None:
    """Such a run, which dies in the step named."""
    run_losing(folder, out, progress=die_in(step))
