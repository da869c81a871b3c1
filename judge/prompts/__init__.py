"""Prompt texts of the rubrics, as package data. A rubric pins its prompt by sha256; nothing is read at import time."""

from __future__ import annotations

import functools
import importlib.resources

from foundation.canonical import text_hash

_FILES = {"reasoning/1": "reasoning_1.txt"}


@functools.cache
def prompt_text(rubric_id: str) -> str:
    """The system prompt of a rubric. Raises KeyError for a rubric this package does not ship."""
    return importlib.resources.files(__name__).joinpath(_FILES[rubric_id]).read_text(encoding="utf-8")


def prompt_sha256(rubric_id: str) -> str:
    """sha256 hex of the prompt's UTF-8 bytes. Raises KeyError for a rubric this package does not ship."""
    return text_hash(prompt_text(rubric_id))
