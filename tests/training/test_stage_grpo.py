"""Dr. GRPO: credit reaches sampled tokens alone, the ratio is against the policy that sampled, guards end a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from problems.errors import ArenaError
from tests.training.rollouts import make_rollout
from tests.training.short_rows import save
from tests.training.stock import Stock
from tests.training.vllm_double import VllmDouble, serve
from training.model import Decode, Rollout
from training.recipe import Recipe, parse_recipe
from training.rollout import Job
from training.sampling import LocalSampler
from training.stages import grpo
from training.stages.grpo import Behaviour, GrpoPorts, train_grpo
from training.stages.run import CHECKPOINT, RunFolder
from training.vllm_sampler import VllmSampler

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


def recipe_of(
    stock: Stock, *, steps: int = 2, lr: float = 1e-2, refresh: int = 0, every: int = 50, more: str = ""
) -> tuple[Recipe, str]:
    text = stock.recipe_text("grpo", GRPO.format(steps=steps, lr=lr, refresh=refresh, every=every) + more)
    return parse_recipe(text), text


class Bandit:
    """One turn an episode, whose reward is the share of its tokens that are even: something a policy can learn."""

    def __init__(self, stock: Stock) -> None:
        self._prompt = tuple(stock.codec.tokenizer.encode("Say even numbers."))
        self.rollouts: list[Rollout | None] = []
        self.versions: list[str] = []
        self.modes: list[bool] = []

    def __call__(self, jobs: Sequence[Job], sampler: Any) -> list[Rollout | None]:
        if isinstance(sampler, LocalSampler):
            self.modes.append(sampler._model.training)
        return [self.play(job, sampler) for job in jobs]

    def play(self, job: Job, sampler: Any) -> Rollout | None:
        self.versions.append(sampler.version)
        sampled = sampler.sample(self._prompt, TURN, job.seed)
        reward = sum(token % 2 == 0 for token in sampled.token_ids) / len(sampled.token_ids)
        blank = make_rollout([("say", "{}")], reward=reward, problem_id=job.problem.problem_id, sample=job.sample)
        ids = sampled.token_ids
        rollout = msgspec.structs.replace(
            blank,
            prompt_ids=self._prompt,
            completion_ids=(*ids, 7, 7),  # then two tokens of the environment
            mask=(1,) * len(ids) + (0, 0),
            logprobs=(*sampled.logprobs, 0.0, 0.0),
            turns=(msgspec.structs.replace(blank.turns[0], last=len(ids)),),
        )
        self.rollouts.append(rollout)
        return rollout


def train(stock: Stock, out: Path, run_jobs: Any, server: Any = None, **changes: Any) -> Any:
    recipe, text = recipe_of(stock, **changes)
    torch.set_num_threads(1)
    ports = GrpoPorts(problems=stock.bench.problems[:4], codec=stock.codec, run_jobs=run_jobs, server=server)
    return train_grpo(recipe, RunFolder(out, recipe, text), ports, save=save)


def lines(run: Path, key: str) -> list[float]:
    found = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    return [line[key] for line in found if key in line]


def test_the_sampler_and_the_trainer_are_one_policy_and_the_ratio_starts_at_one(stock: Stock, tmp_path: Path) -> None:
    bandit = Bandit(stock)
    done = train(stock, tmp_path / "run", bandit, steps=3)
    assert done.steps == 3 and not done.stopped_by and not done.dropped
    assert lines(tmp_path / "run", "logprob_gap")[0] < 1e-4
    ratios = lines(tmp_path / "run", "importance_ratio")
    assert ratios[0] == pytest.approx(1, abs=1e-4)
    assert any(abs(ratio - 1) > 1e-3 for ratio in ratios[1:])  # the behaviour policy stays the parent
    assert lines(tmp_path / "run", "kl")[0] == pytest.approx(0, abs=1e-6)
    assert any(lines(tmp_path / "run", "grad_norm"))
    assert not any(bandit.modes)
    assert len(set(bandit.versions)) == 1
    assert (tmp_path / "run" / CHECKPOINT / "adapter_model.safetensors").exists()


def test_a_renewed_behaviour_policy_is_on_policy_again_and_has_a_new_name(stock: Stock, tmp_path: Path) -> None:
    bandit = Bandit(stock)
    train(stock, tmp_path / "run", bandit, steps=3, refresh=1, every=1)
    assert lines(tmp_path / "run", "importance_ratio") == pytest.approx([1, 1, 1], abs=1e-3)
    assert len(set(bandit.versions)) == 3


def test_a_server_samples_with_the_adapter_of_each_renewal(stock: Stock, tmp_path: Path) -> None:
    """Its logprobs agree with the trainer's in every step, so it holds the weights that are trained."""
    from peft import PeftModel

    opened: dict[str, Any] = {"base": stock.sampler(stock.load(), "base")}
    double = VllmDouble(lambda name, *turn: served(name).sample(*turn), stock.codec.stop_id)

    def served(name: str) -> Any:
        if name not in opened:
            model = PeftModel.from_pretrained(stock.load(), double.models[name]).merge_and_unload()
            opened[name] = stock.sampler(model, name)
        return opened[name]

    bandit = Bandit(stock)
    with serve(double) as url:
        server = VllmSampler(url, "base", stock.codec)
        done = train(stock, tmp_path / "run", bandit, server=server, steps=3, refresh=1, every=1)
        server.close()
    assert done.steps == 3 and not done.stopped_by
    assert lines(tmp_path / "run", "importance_ratio") == pytest.approx([1, 1, 1], abs=1e-3)
    assert len(set(bandit.versions)) == 3 and bandit.versions[0] == "base"
    assert any(lines(tmp_path / "run", "grad_norm"))


def test_advantages_of_the_engine_are_zero_on_tokens_of_the_environment_and_on_padding(
    stock: Stock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def keep(self: Any, inputs: Any) -> dict[str, Any]:
        seen.append(real(self, inputs))
        return seen[-1]

    real = grpo._TurnTrainer._generate_and_score_completions
    monkeypatch.setattr(grpo._TurnTrainer, "_generate_and_score_completions", keep)
    train(stock, tmp_path / "run", Bandit(stock), steps=1)
    output = seen[0]
    outside = (output["completion_mask"] * output["tool_mask"]) == 0
    assert bool(outside.any()) and not bool(output["advantages"][outside].any())
    assert bool(output["advantages"].any())
    groups = output["advantages"][:, 0].reshape(-1, 2).sum(1)
    assert groups.tolist() == pytest.approx([0, 0], abs=1e-6)  # the group's mean is the baseline
    assert bool((output["old_per_token_logps"] == output["sampling_per_token_logps"]).all())


def test_a_rollout_of_ours_that_failed_is_unscorable_and_one_that_is_no_sequence_is_counted(
    stock: Stock, tmp_path: Path
) -> None:
    bandit = Bandit(stock)

    def run(jobs: Sequence[Job], sampler: Any) -> list[Rollout | None]:
        found = bandit(jobs, sampler)
        unscored = msgspec.structs.replace(found[0], result=msgspec.structs.replace(found[0].result, reward=None))
        long = msgspec.structs.replace(found[2], completion_ids=(5,) * 65, mask=(1,) * 65, logprobs=(-1.0,) * 65)
        return [unscored, None, long, *found[3:]]

    done = train(stock, tmp_path / "run", run, steps=1)
    assert done.dropped == {"not one sequence": 1, "too long": 1}
    assert lines(tmp_path / "run", "grad_norm") == [0.0]  # nothing is left to compare within a group


def test_a_sampler_that_is_another_policy_ends_the_run_before_the_first_update(stock: Stock, tmp_path: Path) -> None:
    bandit = Bandit(stock)

    def run(jobs: Sequence[Job], sampler: Any) -> list[Rollout | None]:
        return [
            msgspec.structs.replace(one, logprobs=tuple(p - 1.0 for p in one.logprobs)) for one in bandit(jobs, sampler)
        ]

    done = train(stock, tmp_path / "run", run)
    assert done.stopped_by.startswith("logprobs: ") and done.steps == 0


def test_template_tokens_in_a_sampled_turn_end_the_run(stock: Stock, tmp_path: Path) -> None:
    bandit, forged = Bandit(stock), stock.codec.template_only_ids[0]

    def run(jobs: Sequence[Job], sampler: Any) -> list[Rollout | None]:
        found = bandit(jobs, sampler)
        return [msgspec.structs.replace(found[0], completion_ids=(forged, *found[0].completion_ids[1:])), *found[1:]]

    done = train(stock, tmp_path / "run", run)
    assert done.stopped_by.startswith("mask drift: 1 of 4") and done.dropped == {"mask": 1}


def test_too_many_overflows_end_the_run(stock: Stock, tmp_path: Path) -> None:
    bandit = Bandit(stock)

    def run(jobs: Sequence[Job], sampler: Any) -> list[Rollout | None]:
        full = [msgspec.structs.replace(one.result, is_overflow=True) for one in bandit(jobs, sampler)]
        return [msgspec.structs.replace(one, result=r) for one, r in zip(bandit.rollouts[-4:], full, strict=True)]

    assert train(stock, tmp_path / "run", run).stopped_by.startswith("context: 4 of 4")


def test_a_kl_spike_ends_the_run_and_the_lineage_can_name_it(stock: Stock, tmp_path: Path) -> None:
    done = train(stock, tmp_path / "run", Bandit(stock), steps=6, more="[guards]\nkl_max = 1e-6\n")
    assert done.stopped_by.startswith("kl: ") and 1 < done.steps < 6  # the first step is taken at the reference


def test_settings_that_can_not_be_resumed_or_dealt_are_refused(stock: Stock, tmp_path: Path) -> None:
    with pytest.raises(ArenaError, match="multiple of refresh_every_steps"):
        train(stock, tmp_path / "a", Bandit(stock), refresh=3)
    recipe, text = recipe_of(stock)
    odd = msgspec.structs.replace(recipe, optim=msgspec.structs.replace(recipe.optim, batch_rows=3))
    ports = GrpoPorts(problems=stock.bench.problems[:4], codec=stock.codec, run_jobs=Bandit(stock))
    with pytest.raises(ArenaError, match="batch_rows"):
        train_grpo(odd, RunFolder(tmp_path / "b", odd, text), ports, save=save)
    with pytest.raises(ArenaError, match="no problem"):
        empty = GrpoPorts(problems=(), codec=stock.codec, run_jobs=Bandit(stock))
        train_grpo(recipe, RunFolder(tmp_path / "c", recipe, text), empty, save=save)


def test_the_behaviour_policy_is_put_in_place_and_taken_out_again() -> None:
    model = torch.nn.Linear(2, 2)
    behaviour = Behaviour(model)
    kept = model.weight.detach().clone()
    with torch.no_grad():
        model.weight += 1
    own = model.weight.detach().clone()
    with behaviour.in_place():
        assert torch.equal(model.weight, kept)
    assert torch.equal(model.weight, own)
    behaviour.renew()
    with behaviour.in_place():
        assert torch.equal(model.weight, own)
