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
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")


class ReEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator allow-lists and a miner submits. `weights_sha256` is of the served weights."""

    model_id: str
    weights_sha256: str
    lineage_sha256: str
    source: str
    policy: Policy


def require_name(name: str) -> None:
    """Raises ValueError for what can't be a model's name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no model name: letters, digits, dot, dash, underscore, at most 41")


def make_reentry(name: str, weights_sha256: str, lineage_sha256: str, policy: Policy) -> ReEntry:
    """The agent file of a checkpoint, and `policy` with its model allow-listed (another policy, by hash).

    `name` is letters, digits, dot, dash and underscore. Raises ValueError for another.
    """
    require_name(name)
    model_id = f"{name}@{weights_sha256[:16]}"
    source = distilled_source()
    if source.count(_BLANK) != 1:
        raise ValueError("the agent file has no place for its model")
    models = (*policy.inference.models, model_id)
    return ReEntry(
        model_id=model_id,
        weights_sha256=weights_sha256,
        lineage_sha256=lineage_sha256,
        source=source.replace(_BLANK, f'MODEL = "{model_id}"'),
        policy=msgspec.structs.replace(
            policy,
            name=f"{policy.name}+{name}",
            inference=msgspec.structs.replace(policy.inference, models=models),
        ),
    )


_OPENING, _CLOSING = 'PROMPT = """', '"""'


def distilled_source() -> str:
    """The agent that carries a distilled model's calls: rollouts, evaluation and re-entry all run this file."""
    return files("training.agents").joinpath("distilled.py").read_text("utf-8")


def distilled_prompt() -> str:
    """The system prompt of that agent, under which a distilled model is asked."""
    return distilled_source().partition(_OPENING)[2].partition(_CLOSING)[0]
