"""The stages: each learns exactly what it is to learn, goes on after a kill, and its guards end it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from problems.model import BUCKETS
from tests.training import stage_runs
from tests.training.stock import Stock
from tests.training.vllm_double import VllmDouble, serve
from training.model import TokenRow
from training.models.render import Qwen3Codec, masked_runs
from training.recipe import read_recipe
from training.rollouts.rollout import EpisodeLine, Job
from training.run import CHECKPOINT
from training.samplers.vllm import VllmSampler
from training.stages.engine import engine_arguments
from training.stages.pipeline import TokenRows, blend, by_step, rows_of_traces
from training.stages.sft import sft_config

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("engine_settings.json")
# where a run is logged and published, and what the machine decides
FREE = ("output_dir", "run_name", "project", "report_to", "disable_tqdm", "local_rank", "debug", "skip_memory_metrics")
FREE += ("bf16", "use_cpu", "dataloader_pin_memory", "deepspeed_plugin", "distributed_state")
FREE_PREFIXES = ("hub_", "push_", "trackio_", "log_", "logging_", "do_")


def settings_in_force() -> dict[str, dict[str, Any]]:
    """By stage; `kto` and `grpo` without what `sft` has too. What these two set besides stands at its default."""
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.kto_config import KTOConfig

    recipe, engine = read_recipe(ROOT / "training" / "recipes" / "paper" / "sft.toml"), Path("engine")
    shared = engine_arguments(recipe, engine, lr=recipe.optim.lr)
    configs = {
        "sft": sft_config(recipe, engine, recipe.optim.lr),
        "kto": KTOConfig(**shared),
        "grpo": GRPOConfig(**shared, num_generations=2),
    }
    found: dict[str, dict[str, Any]] = {}
    for stage, config in configs.items():
        found[stage] = {
            name: value
            for name, value in sorted(json.loads(config.to_json_string()).items())
            if name not in (*FREE, *found.get("sft", ())) and not name.startswith(FREE_PREFIXES)
        }
    return found


def test_a_run_killed_with_9_in_its_second_epoch_goes_on_to_the_same_losses_and_the_same_weights(
    model: Path, tmp_path: Path
) -> None:
    whole = stage_runs.run_sft(model, tmp_path / "whole", steps=0)
    stage_runs.require_killed(stage_runs.die_in_sft, tmp_path / "killed", model, 9, 0)
    assert stage_runs.run_sft(model, tmp_path / "killed", steps=0).losses == whole.losses
    logs, weights = [], []
    for run in (tmp_path / "whole", tmp_path / "killed"):
        logs.append([(line["step"], line.get("loss")) for line in stage_runs.lines_of(run)])
        weights.append((run / CHECKPOINT / "model.safetensors").read_bytes())
    assert logs[0] == logs[1] and weights[0] == weights[1]


def test_a_sweep_keeps_the_rate_with_the_least_dev_loss(model: Path, tmp_path: Path) -> None:
    more = "lr_sweep = [1e-5, 1e-2]\n"
    trained = stage_runs.run_sft(model, tmp_path / "sweep", more=more, dev=3)
    alone = {
        rate: stage_runs.run_sft(model, tmp_path / str(rate), more=f"lr_sweep = [{rate}]\n", dev=3).metrics["dev_loss"]
        for rate in (1e-5, 1e-2)
    }
    assert trained.metrics["lr"] == min(alone, key=lambda rate: alone[rate]) == 1e-2
    assert trained.metrics["dev_loss"] == alone[1e-2]
    assert len(stage_runs.lines_of(tmp_path / "sweep", "log-lr-1e-05.jsonl")) == len(
        stage_runs.lines_of(tmp_path / "1e-05")
    )


def test_a_gradient_that_is_no_number_ends_the_run_before_it_reaches_the_weights(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.stages import sft

    opened: list[Any] = []

    def open_with_a_fault(recipe: Any) -> tuple[Any, str]:
        """A model whose third step has a gradient of NaN."""
        found, sha256 = real(recipe)
        steps = iter(range(100))

        def poison(gradient: torch.Tensor) -> torch.Tensor:
            return gradient * (math.nan if next(steps) == 2 else 1.0)

        found.model.norm.weight.register_hook(poison)
        opened.append(found)
        return found, sha256

    real = sft.open_parent
    monkeypatch.setattr(sft, "open_parent", open_with_a_fault)
    trained = stage_runs.run_sft(model, tmp_path / "run", batch=1)
    assert trained.stopped_by.startswith("non-finite: gradient norm")
    assert trained.steps == 3
    assert all(bool(weight.isfinite().all()) for weight in opened[0].parameters())


def test_no_setting_of_the_engine_comes_or_changes_unseen() -> None:
    """A default that a newer engine adds or changes shows here by name; `python -m tests.training.test_stages` writes
    the list anew."""
    assert settings_in_force() == json.loads(KEPT.read_text("utf-8"))


def test_steps_of_a_row_are_its_turns_each_with_everything_before_it(stock: Stock) -> None:
    recipe = stock.recipe("sft", "[data]\ntokens_max = 100000\n")
    whole = rows_of_traces(stock.traces()[:2], stock.codec, recipe)
    steps = by_step(whole)
    runs = [run for row in whole.rows for run in masked_runs(row.token_ids, row.mask)]
    assert [masked_runs(step.token_ids, step.mask) for step in steps.rows] == [[run] for run in runs]
    for step in steps.rows:
        source = next(row for row in whole.rows if step.trace_id.startswith(row.trace_id))
        assert source.token_ids[: len(step.token_ids)] == step.token_ids
        assert step.mask.index(1) == step.prompt_length and step.mask[-1] == 1


@given(
    st.integers(1, 60), st.integers(1, 60), st.sampled_from([5_000, 7_000, 3_333]), st.integers(1, 3), st.integers(0, 5)
)
def test_the_shares_hold_to_within_a_row_and_no_row_stands_more_often_than_it_may(
    first: int, second: int, share_e4: int, times: int, seed: int
) -> None:
    corpus, rollouts = (
        tuple(
            TokenRow(trace_id=f"{name}{n}", token_ids=(), mask=(), prompt_length=0, bucket=BUCKETS[n % 3])
            for n in range(count)
        )
        for name, count in (("corpus", first), ("rollouts", second))
    )
    parts = (TokenRows(rows=rows, dropped={}) for rows in (corpus, rollouts))
    drawn = blend(*parts, corpus_share_e4=share_e4, voucher_times=times, seed=seed).rows
    assert abs(sum(row in corpus for row in drawn) * 10_000 - share_e4 * len(drawn)) <= 10_000
    for row, copies in Counter(drawn).items():
        assert copies <= (times if row.bucket == "voucher" else 1)


# -- KTO


def emissions(run: Path) -> list[tuple[float, float]]:
    return [(line["step"], line["emission_rate"]) for line in stage_runs.lines_of(run) if "emission_rate" in line]


def test_masks_of_policy_and_kl_rows_mark_the_turns_of_their_own_ids(model: Path) -> None:
    """The engine's own mask marks tool results too; ours travels with the ids it was made for."""
    from training.stages import kto

    codec = Qwen3Codec(model)
    rows = kto._dataset(stage_runs.labelled(codec, 4), 2)
    collate = kto._MaskedCollator(pad_token_id=codec.tokenizer.pad_token_id, max_length=1_000)
    first = collate.torch_call([rows[0], rows[1]])
    for prefix, wanted in (("", [0, 1]), ("KL_", [1, 0])):
        for place, source in enumerate(wanted):
            mask = first[f"{prefix}completion_mask"][place].bool()
            learnt = first[f"{prefix}input_ids" if f"{prefix}input_ids" in first else f"{prefix}completion_input_ids"]
            text = codec.decode(learnt[place][mask].tolist())
            assert text == codec.decode([*compress(rows[source]["completion_ids"], rows[source][kto.MASK])])
            assert "tool_response" not in text and text.count("<|im_end|>") == 2


def test_a_resumed_run_is_held_against_the_rate_it_began_with(model: Path, tmp_path: Path) -> None:
    """When it is killed its own rate has fallen: 0.88 is above the floor of that, and below that of the parent's."""
    stage_runs.require_killed(stage_runs.die_in_kto, tmp_path / "run", model, 3, (1.0, 0.95))
    assert emissions(tmp_path / "run") == [(0, 1.0), (2, 0.95)]
    done = stage_runs.run_kto(model, tmp_path / "run", lambda policy: 0.88)
    assert done.stopped_by.startswith("emission: 0.880") and done.steps == 4
    assert emissions(tmp_path / "run") == [(0, 1.0), (2, 0.95), (4, 0.88)]


# -- Dr. GRPO: credit reaches sampled tokens alone, the ratio is against the policy that sampled


def lines(run: Path, key: str) -> list[float]:
    return [line[key] for line in stage_runs.lines_of(run) if key in line]


def test_the_sampler_and_the_trainer_are_one_policy_and_the_ratio_starts_at_one(stock: Stock, tmp_path: Path) -> None:
    bandit = stage_runs.Bandit(stock.codec)
    done = stage_runs.run_grpo(stock.folder, tmp_path / "run", bandit, steps=3)
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

    bandit = stage_runs.Bandit(stock.codec)
    with serve(double) as url:
        server = VllmSampler(url, "base", stock.codec)
        done = stage_runs.run_grpo(stock.folder, tmp_path / "run", bandit, server=server, steps=3, refresh=1, every=1)
        server.close()
    assert done.steps == 3 and not done.stopped_by
    assert lines(tmp_path / "run", "importance_ratio") == pytest.approx([1, 1, 1], abs=1e-3)
    assert len(set(bandit.versions)) == 3 and bandit.versions[0] == "base"
    assert any(lines(tmp_path / "run", "grad_norm"))


def test_a_rollout_of_ours_that_failed_is_unscorable_and_one_that_is_no_sequence_is_counted(
    stock: Stock, tmp_path: Path
) -> None:
    bandit = stage_runs.Bandit(stock.codec)

    def run(jobs: Sequence[Job], sampler: Any) -> list[EpisodeLine]:
        one, other, third, *rest = bandit(jobs, sampler)
        long = replace(third.rollout, completion_ids=(5,) * 65, mask=(1,) * 65, logprobs=(-1.0,) * 65)  # type: ignore[type-var]
        unscored = replace(one, result=replace(one.result, reward=None))
        return [unscored, replace(other, rollout=None), replace(third, rollout=long), *rest]

    done = stage_runs.run_grpo(stock.folder, tmp_path / "run", run, steps=1)
    assert done.dropped == {"not one sequence": 1, "too long": 1}
    assert lines(tmp_path / "run", "grad_norm") == [0.0]  # nothing is left to compare within a group


if __name__ == "__main__":
    KEPT.write_text(json.dumps(settings_in_force(), indent=1) + "\n", encoding="utf-8")
