"""What a run would take: the arithmetic holds what the engine really holds, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.short_rows import run_sft, sft_recipe
from tests.training.stock import TOKENIZER
from training.models.estimate import (
    Work,
    estimate_run,
)
from training.models.tiny_model import TinyShape, build_tiny_model
from training.recipe import Recipe, parse_recipe, read_whole_text

PAPER = Path(__file__).parents[2] / "training" / "recipes" / "paper"


def recipe_of(name: str) -> Recipe:
    return parse_recipe(read_whole_text(PAPER / f"{name}.toml"))


@pytest.mark.parametrize(("name", "memory_gb"), [("sft", 13.0), ("kto", 47.0), ("grpo_v19", 18.4)])
def test_the_memory_of_the_papers_stages_is_what_the_readme_says(name: str, memory_gb: float) -> None:
    estimate = estimate_run(recipe_of(name), Work(corpus_tokens=1, problems=1, taken=1))
    assert round(estimate.memory_gb, 1) == memory_gb


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
