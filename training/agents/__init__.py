"""Agent files that training runs and submits, read as text, never imported; and a distilled model's way back to races.

Re-entry: a checkpoint races as an allow-listed model and an agent file that asks for it. The model's id carries the
hash of the served weights, all adapters merged; the agent file is the one rollouts and evaluation ran.
"""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec

from arena.policy import Policy

_BLANK = 'MODEL = ""'
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")  # of a model


def make_reentry(name: str, weights_sha256: str, policy: Policy) -> tuple[str, str, Policy]:
    """The model's id, the agent file of a checkpoint, and `policy` with the model allow-listed (another one, by hash).

    `weights_sha256` is of the served weights.
    """
    model_id = f"{name}@{weights_sha256[:16]}"
    source = distilled_source()
    inference = msgspec.structs.replace(policy.inference, models=(*policy.inference.models, model_id))
    listed = msgspec.structs.replace(policy, name=f"{policy.name}+{name}", inference=inference)
    return model_id, source.replace(_BLANK, f'MODEL = "{model_id}"'), listed


_OPENING, _CLOSING = 'PROMPT = """', '"""'


def distilled_source() -> str:
    """The agent that carries a distilled model's calls: rollouts, evaluation and re-entry all run this file."""
    return files("training.agents").joinpath("distilled.py").read_text("utf-8")


def distilled_prompt() -> str:
    """The system prompt of that agent, under which a distilled model is asked."""
    return distilled_source().partition(_OPENING)[2].partition(_CLOSING)[0]
