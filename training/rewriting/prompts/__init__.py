"""The writer's instructions, as package data."""

from __future__ import annotations

import functools
from importlib.resources import files


@functools.cache
def prompt_text(name: str) -> str:
    """The prompt of a name."""
    return files("training.rewriting.prompts").joinpath(f"{name}.txt").read_text("utf-8")


@functools.cache
def listed_words(name: str) -> frozenset[str]:
    """The words of a list of a name."""
    return frozenset(prompt_text(name).split())
