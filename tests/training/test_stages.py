"""Supervised stage: it learns exactly the labels, goes on after a kill, and stops on numbers that are none."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from problems.model import BUCKETS
from tests.training.stage_runs import die_in_sft, lines_of, require_killed, run_sft
from tests.training.stock import Stock
from training.model import TokenRow
from training.models.render import masked_runs
from training.recipe import parse_recipe, read_recipe
from training.run import CHECKPOINT
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
    whole = run_sft(model, tmp_path / "whole", steps=0)
    require_killed(die_in_sft, tmp_path / "killed", model, 9, 0)
    again = run_sft(model, tmp_path / "killed", steps=0)
    assert again.losses == whole.losses
    assert [(line["step"], line.get("loss")) for line in lines_of(tmp_path / "killed")] == [
        (line["step"], line.get("loss")) for line in lines_of(tmp_path / "whole")
    ]
    weights = [(tmp_path / name / CHECKPOINT / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_a_sweep_keeps_the_rate_with_the_least_dev_loss(model: Path, tmp_path: Path) -> None:
    more = "lr_sweep = [1e-5, 1e-2]\n"
    trained = run_sft(model, tmp_path / "sweep", more=more, dev=3)
    alone = {
        rate: run_sft(model, tmp_path / str(rate), more=f"lr_sweep = [{rate}]\n", dev=3).metrics["dev_loss"]
        for rate in (1e-5, 1e-2)
    }
    assert trained.metrics["lr"] == min(alone, key=lambda rate: alone[rate]) == 1e-2
    assert trained.metrics["dev_loss"] == alone[1e-2]
    assert len(lines_of(tmp_path / "sweep", "log-lr-1e-05.jsonl")) == len(lines_of(tmp_path / "1e-05"))


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
    trained = run_sft(model, tmp_path / "run")
    assert trained.stopped_by.startswith("non-finite: gradient norm")
    assert trained.steps == 3
    assert all(bool(weight.isfinite().all()) for weight in opened[0].parameters())


def test_no_setting_of_the_engine_comes_or_changes_unseen() -> None:
    """A default that a newer engine adds or changes shows here by name; `python -m tests.training.test_stage_sft`
    writes the list anew."""
    assert settings_in_force() == json.loads(KEPT.read_text("utf-8"))


def test_steps_of_a_row_are_its_turns_each_with_everything_before_it(stock: Stock) -> None:
    recipe = parse_recipe(stock.recipe_text("sft", "[data]\ntokens_max = 100000\n"))
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


if __name__ == "__main__":
    KEPT.write_text(json.dumps(settings_in_force(), indent=1) + "\n", encoding="utf-8")
