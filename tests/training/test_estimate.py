"""What a run would take: the arithmetic holds what the engine really holds, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.short_rows import run_sft, sft_recipe
from tests.training.stock import TOKENIZER
from training.models.tiny_model import TinyShape, build_tiny_model
from training.recipe import Recipe

PAPER = Path(__file__).parents[2] / "training" / "recipes" / "paper"


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
    a_step = sft_recipe(tmp_path / "m", "", 0, 6).optim.batch_rows  # a row a pass
    assert passes == ["train"] * 6 * a_step + ["eval"] * 3
