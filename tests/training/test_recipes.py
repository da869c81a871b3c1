"""The shipped recipes parse, say where each value comes from, and say what the paper says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.recipe import read_recipe

RECIPES = Path(__file__).parents[2] / "training" / "recipes"
PAPER = sorted((RECIPES / "paper").glob("*.toml"))


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
