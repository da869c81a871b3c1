"""Agent files that training runs and submits: read as text, never imported."""

from __future__ import annotations

from importlib.resources import files

_OPENING, _CLOSING = 'PROMPT = """', '"""'


def distilled_source(prompt: str | None = None) -> str:
    """The agent that carries a distilled model's calls: rollouts, evaluation and re-entry all run this file.

    `prompt` takes the place of its system prompt. Raises ValueError for one that a text between triple quotes can't
    hold as it is.
    """
    source = files("training.agents").joinpath("distilled.py").read_text("utf-8")
    if prompt is None:
        return source
    if _CLOSING in prompt or "\\" in prompt or prompt.endswith('"') or not prompt.strip():
        raise ValueError("a system prompt is text without backslashes, triple quotes or a quote at its end")
    before, _, rest = source.partition(_OPENING)
    return f"{before}{_OPENING}{prompt}{_CLOSING}{rest.partition(_CLOSING)[2]}"


def distilled_prompt() -> str:
    """The system prompt of that agent, under which a distilled model is asked."""
    return distilled_source().partition(_OPENING)[2].partition(_CLOSING)[0]
