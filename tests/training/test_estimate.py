"""What a run would take: the arithmetic holds what the engine really holds, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.training.short_rows import run_sft, sft_recipe
from tests.training.stock import TOKENIZER
from training.models.estimate import (
    DEVICES,
    EFFICIENCY,
    EPISODE_TOKENS,
    HEAD_TILE,
    KNOWN_SHAPES,
    Work,
    cache_bytes,
    count_adapter,
    count_parameters,
    estimate_run,
)
from training.models.tiny_model import TinyShape, build_tiny_model
from training.recipe import Recipe, read_recipe

PAPER = Path(__file__).parents[2] / "training" / "recipes" / "paper"
QWEN3_4B = KNOWN_SHAPES["Qwen3-4B"]


def recipe_of(name: str) -> Recipe:
    return read_recipe(PAPER / f"{name}.toml")


@pytest.mark.parametrize(("name", "memory_gb"), [("sft", 13.0), ("kto", 47.0), ("grpo_v19", 18.4)])
def test_the_memory_of_the_papers_stages_is_what_the_readme_says(name: str, memory_gb: float) -> None:
    estimate = estimate_run(recipe_of(name), Work(corpus_tokens=1, problems=1, taken=1))
    assert round(estimate.memory_gb, 1) == memory_gb


def test_attention_adds_a_fifth_at_the_assumed_length_and_hours_say_how_uncertain_they_are() -> None:
    """Qwen3-4B: 36 layers of 32 heads of 128 attend to 2,500 tokens on average: 1.5 of 9.5 billion operations."""
    found = estimate_run(recipe_of("sft"), Work(corpus_tokens=10_000_000))
    tokens_s = DEVICES["NVIDIA H100"].flops * EFFICIENCY / (4 * (2 * found.parameters + 4 * 36 * 4_096 * 2_500))
    assert found.hours["NVIDIA H100"] == pytest.approx(10_000_000 / tokens_s / 3_600)
    assert found.uncertainty > 1


def test_the_servers_share_of_the_card_holds_a_step_of_rollouts() -> None:
    """48 rollouts of 5,000 tokens beside the weights: what docker/vllm.Dockerfile names a share for."""
    recipe = recipe_of("grpo_v18")
    rollouts = recipe.grpo.problems_per_step * recipe.grpo.samples
    needed = rollouts * EPISODE_TOKENS * cache_bytes(QWEN3_4B) + 2 * count_parameters(QWEN3_4B)
    told = (PAPER.parents[2] / "docker" / "vllm.Dockerfile").read_text("utf-8")
    share = float(told.rpartition('"--gpu-memory-utilization", "')[2].partition('"')[0])
    assert needed < share * 80e9
    assert share * 80e9 + estimate_run(recipe, Work(problems=1)).memory_gb * 1e9 < 80e9  # GRPO trains beside it
    assert '"vllm", "serve"' in told


def test_logits_take_the_same_memory_however_many_rows_and_tokens_there_are() -> None:
    """What grows with the tokens is a hidden state a layer, one layer's own, and the gradient below the head."""
    recipe = recipe_of("sft")
    twice = msgspec.structs.replace(recipe, optim=msgspec.structs.replace(recipe.optim, batch_rows=2))
    one, two = (estimate_run(each, Work()).memory_gb * 1e9 for each in (recipe, twice))
    hidden, layers = QWEN3_4B["hidden_size"], QWEN3_4B["num_hidden_layers"]
    a_token = 2 * hidden * layers + 2 * (8 * hidden + 3 * QWEN3_4B["intermediate_size"]) + 4 * hidden
    assert two - one == pytest.approx(recipe.data.tokens_max * a_token)
    assert one == pytest.approx(
        2 * count_parameters(QWEN3_4B)
        + 14 * count_adapter(QWEN3_4B, recipe)
        + recipe.data.tokens_max * a_token
        + 2 * HEAD_TILE
    )


def test_neither_a_step_nor_the_evaluation_builds_the_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate counts on it: with logits of whole rows, a 4B's evaluation alone would take tens of gigabytes."""
    from training.stages import sft

    build_tiny_model(TOKENIZER, tmp_path / "m", TinyShape(hidden=32, layers=1), 0)
    passes: list[str] = []

    def open_counting(recipe: Recipe) -> tuple[Any, str]:
        model, sha256 = real(recipe)
        model.lm_head.register_forward_hook(lambda *given: passes.append("logits"))
        model.model.register_forward_hook(lambda module, *given: passes.append("train" if module.training else "eval"))
        return model, sha256

    real = sft.open_parent
    monkeypatch.setattr(sft, "open_parent", open_counting)
    run_sft(tmp_path / "m", tmp_path / "run", dev=3)
    a_step = sft_recipe(tmp_path / "m", "", 0, 6)[0].optim.batch_rows  # a row a pass
    assert passes == ["train"] * 6 * a_step + ["eval"] * 3
