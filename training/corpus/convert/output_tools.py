"""Rows of hosted-model rollouts: `output_tools`, a list of calls without what came back.

Pure. Each call is an assistant turn of its own, since the row does not say which were made together, and no
result is made up: such a trace misses `results`, and rule 1 of the paper's A.2 will reject it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from harness.chat import Message
from training.corpus.convert.openai import read_messages
from training.corpus.convert.values import as_list, as_object, broken
from training.corpus.model import TraceFacts


def read_rollout(row: dict[str, Any], query: str) -> list[Message]:
    """The calls of a row, in order, behind its prompt or query. Raises ArenaError V2097."""
    prompt = list(as_list(row.get("messages"), "messages")) or ([{"role": "user", "content": query}] if query else [])
    calls = [
        as_object(call, f"call {number}") for number, call in enumerate(as_list(row["output_tools"], "output_tools"))
    ]
    return read_messages([*prompt, *({"role": "assistant", "tool_calls": [call]} for call in calls)])


def rollout_facts(row: dict[str, Any], facts: TraceFacts) -> TraceFacts:
    """The facts with what such a row says of its end. Raises ArenaError V2097."""
    ids = row.get("recommended_product_ids")
    if isinstance(ids, str):
        ids = [one.strip() for one in ids.split(",") if one.strip()]
    if ids is not None and not (isinstance(ids, list) and all(isinstance(one, str) for one in ids)):
        raise broken("recommended_product_ids", "text or a list of text", ids)
    recommended = facts.recommended if ids is None else tuple(ids)
    stop = "terminated" if row.get("terminated") is True else facts.stop
    return msgspec.structs.replace(facts, recommended=recommended, stop=stop)
