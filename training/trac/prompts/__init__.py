"""The oracle's prompts, as package data."""

from __future__ import annotations

import functools
from importlib.resources import files


@functools.cache
def prompt_text(name: str) -> str:
    """The prompt of a name, with its slots in braces."""
    return files("training.trac.prompts").joinpath(f"{name}.txt").read_text("utf-8")
