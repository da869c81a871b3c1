"""Traces written back as foreign rows: OpenAI chat rows and Hermes text, for round trips through the converter."""

from __future__ import annotations

from typing import Any

import msgspec

from harness.chat import chat_row
from training.corpus.model import EXPORTED_FACTS, Trace, TraceFacts


def write_row(trace: Trace) -> dict[str, Any]:
    """The trace as a chat row with wrapped tools: JSON values. Weight 0 marks what model and host did not make."""
    return {
        "messages": [chat_row(one) if one.is_model else chat_row(one) | {"weight": 0} for one in trace.messages],
        "tools": msgspec.json.decode(trace.tools),
        "metadata": _written_facts(trace.facts) | {"query": trace.query},
    }


def _written_facts(facts: TraceFacts) -> dict[str, Any]:
    """The facts that `read_facts` reads back, under an export's names; what is None is left out."""
    written = {name: getattr(facts, fact) for name, fact in EXPORTED_FACTS.items() if getattr(facts, fact) is not None}
    return written if facts.recommended is None else written | {"recommended": ",".join(facts.recommended)}
