"""The shipped recipes parse, say where each value comes from, and say what the paper says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from training.recipe import ALL_LINEAR, ATTENTION, read_recipe

RECIPES = Path(__file__).parents[2] / "training" / "recipes"
PAPER = sorted((RECIPES / "paper").glob("*.toml"))

_SFT = {  # B.1
    "lora.targets": ALL_LINEAR,
    "optim.epochs": 1.0,
    "optim.lr_sweep": (1e-5, 3e-5, 1e-4),
    "optim.is_checkpointing": True,
    "data.tokens_max": 14_336,
}
_REJECTION = {  # B.3
    **_SFT,
    "stage": "rejection",
    "parent": "runs/paper/sft",
    "samples": 8,
    "decode.temperature": 0.9,
    "decode.top_p": 0.95,
    "decode.turns_max": 8,
}
_KTO = {  # B.5
    "stage": "kto",
    "parent": "runs/paper/teacher",
    "optim.lr": 5e-6,
    "lora.r": 16,
    "lora.targets": ATTENTION,
    "data.tokens_max": 16_384,
    "guards.emission_min": 0.9,
}
_GRPO = {  # B.6
    "stage": "grpo",
    "parent": "runs/paper/teacher",
    "grpo.samples": 6,
    "grpo.is_blended_per_turn": False,
    "decode.context_tokens_max": 32_768,
}
_V18 = {"grpo.problems_per_step": 8, "grpo.beta": 0.2}
_V19 = {**_V18, "grpo.tool_weight": 0.5, "decode.turns_max": 25}
OF_THE_PAPER: dict[str, dict[str, object]] = {
    "sft": {**_SFT, "stage": "sft", "parent": ""},
    "rejection": {**_REJECTION, "data.rollout_share": 0.5},
    "rejection_70_30": {**_REJECTION, "data.rollout_share": 0.3},
    "teacher": {**_SFT, "stage": "teacher", "parent": "runs/paper/rejection", "data.voucher_times": 3},
    "kto": {**_KTO, "kto.beta": 0.02, "optim.epochs": 1.0},
    "kto_tight": {**_KTO, "kto.beta": 0.01, "optim.epochs": 2.0},
    "grpo_v17": {
        **_GRPO,
        "grpo.preset": "v17",
        "grpo.problems_per_step": 3,
        "grpo.beta": 0.1,
        "grpo.tool_weight": 0.0,
        "grpo.refresh_every_steps": 0,
        "decode.turns_max": 15,
    },
    "grpo_v18": {
        **_GRPO,
        **_V18,
        "grpo.preset": "v18",
        "grpo.tool_weight": 0.0,
        "grpo.refresh_every_steps": 0,
        "decode.turns_max": 15,
    },
    "grpo_v19": {**_GRPO, **_V19, "grpo.preset": "v19", "grpo.refresh_every_steps": 0, "optim.steps_max": 30},
    "grpo_turn": {**_GRPO, **_V19, "grpo.preset": "turn", "grpo.is_blended_per_turn": True, "optim.steps_max": 30},
    "grpo_refresh": {**_GRPO, **_V19, "grpo.preset": "refresh", "optim.steps_max": 60},
}


def _at(recipe: object, path: str) -> Any:
    for name in path.split("."):
        recipe = getattr(recipe, name)
    return recipe


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_value_that_the_paper_gives_is_the_papers(path: Path) -> None:
    recipe = read_recipe(path)
    assert {name: _at(recipe, name) for name in OF_THE_PAPER[path.stem]} == OF_THE_PAPER[path.stem]


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_every_value_of_the_paper_recipes_names_its_source(path: Path) -> None:
    values = [line for line in path.read_text("utf-8").splitlines() if re.match(r"\w+ = ", line)]
    unnamed = [line for line in values if not re.search(r"#.*(\b[AB]\.\d|section \d|\bours\b)", line)]
    assert [line for line in unnamed if not line.startswith(("name = ", "stage = "))] == []


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_recipe_that_asks_a_server_asks_it_for_its_parent(path: Path) -> None:
    """The name that `arena reenter --name` and the server are given (README of the recipes)."""
    recipe = read_recipe(path)
    assert recipe.stage in ("sft", "teacher", "kto") or recipe.sampler
    assert recipe.sampler_model == (f"paper-{Path(recipe.parent).name}" if recipe.sampler else "")
