"""What the scripted model writes when it is offered no tools: a short account of the prompt it was given."""

from __future__ import annotations

_WORDS = 40


def narrate(prompt: str) -> str:
    """Two sentences about `prompt`, quoting its beginning. Deterministic."""
    words = prompt.split()
    if not words:
        return "OK."
    gist = " ".join(words[:_WORDS])
    more = " and so on" if len(words) > _WORDS else ""
    return f"Here is what was done: {gist}{more}. The choice follows from what was asked and what was found."
