"""Agent files that training runs and submits: read as text, never imported."""

from __future__ import annotations

from importlib.resources import files


def distilled_source() -> str:
    """The agent that carries a distilled model's calls: rollouts, evaluation and re-entry all run this file."""
    return files("training.agents").joinpath("distilled.py").read_text("utf-8")
