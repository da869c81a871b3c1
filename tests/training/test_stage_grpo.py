"""Dr. GRPO: credit reaches sampled tokens alone, the ratio is against the policy that sampled, guards end a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.training.stage_runs import Bandit, lines_of, run_grpo
from tests.training.stock import Stock
from tests.training.vllm_double import VllmDouble, serve
from training.rollouts.rollout import EpisodeLine, Job
from training.run import CHECKPOINT
from training.samplers.vllm import VllmSampler


def lines(run: Path, key: str) -> list[float]:
    return [line[key] for line in lines_of(run) if key in line]


def test_the_sampler_and_the_trainer_are_one_policy_and_the_ratio_starts_at_one(stock: Stock, tmp_path: Path) -> None:
    bandit = Bandit(stock.codec)
    done = run_grpo(stock.folder, tmp_path / "run", bandit, steps=3)
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


def test_a_server_samples_with_the_adapter_of_each_renewal(stock: Stock, tmp_path: Path) -> None:
    """Its logprobs agree with the trainer's in every step, so it holds the weights that are trained."""
    from peft import PeftModel

    opened: dict[str, Any] = {"base": stock.sampler(stock.load(), "base")}
    double = VllmDouble(lambda name, *turn: served(name).sample(*turn))

    def served(name: str) -> Any:
        if name not in opened:
            model = PeftModel.from_pretrained(stock.load(), double.models[name]).merge_and_unload()
            opened[name] = stock.sampler(model, name)
        return opened[name]

    bandit = Bandit(stock.codec)
    with serve(double) as url:
        server = VllmSampler(url, "base", stock.codec)
        done = run_grpo(stock.folder, tmp_path / "run", bandit, server=server, steps=3, refresh=1, every=1)
        server.close()
    assert done.steps == 3 and not done.stopped_by
    assert lines(tmp_path / "run", "importance_ratio") == pytest.approx([1, 1, 1], abs=1e-3)
    assert len(set(bandit.versions)) == 3 and bandit.versions[0] == "base"
    assert any(lines(tmp_path / "run", "grad_norm"))


def test_a_rollout_of_ours_that_failed_is_unscorable_and_one_that_is_no_sequence_is_counted(
    stock: Stock, tmp_path: Path
) -> None:
    bandit = Bandit(stock.codec)

    def run(jobs: Sequence[Job], sampler: Any) -> list[EpisodeLine]:
        one, other, third, *rest = bandit(jobs, sampler)
        long = replace(third.rollout, completion_ids=(5,) * 65, mask=(1,) * 65, logprobs=(-1.0,) * 65)  # type: ignore[type-var]
        unscored = replace(one, result=replace(one.result, reward=None))
        return [unscored, replace(other, rollout=None), replace(third, rollout=long), *rest]

    done = run_grpo(stock.folder, tmp_path / "run", run, steps=1)
    assert done.dropped == {"not one sequence": 1, "too long": 1}
    assert lines(tmp_path / "run", "grad_norm") == [0.0]  # nothing is left to compare within a group
