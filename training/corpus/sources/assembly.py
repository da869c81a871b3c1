"""Putting a trace together: its identity, and the list of what its source does not say.

Pure. The identity is a hash of conversation and tools alone: who emitted a call, which source it came from and
every fact stay out of it, so one conversation read from two sources is one trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from harness.chat import Message
from training.corpus.model import Rebuilt, Trace, TraceFacts, TraceSource

NO_TOOLS = "[]"
EMITTERS, TOOLS, RESULTS, MESSAGES = "emitters", "tools", "results", "messages"  # in `missing` beside names of facts
JUDGE = "judge"  # likewise: the source has no judge at all, which is another thing than a verdict that did not come

_FACT_NAMES = tuple(field.name for field in msgspec.structs.fields(TraceFacts))
_ENCODER = msgspec.json.Encoder()


def assemble_trace(
    source: TraceSource,
    messages: Sequence[Message],
    *,
    tools: str = NO_TOOLS,
    query: str = "",
    facts: TraceFacts,
    missing: Iterable[str] = (),
    rebuilt: Rebuilt | msgspec.UnsetType = msgspec.UNSET,
) -> Trace:
    """The trace of these parts. `missing`: what else the source does not have, beside facts that are None.
    `rebuilt`: of a conversation that is not verbatim.

    Raises ValueError for text that is not Unicode (half of a surrogate pair).
    """
    absent = {name for name in _FACT_NAMES if getattr(facts, name) is None}
    absent.update(missing)
    if any(call.emitter is None for message in messages for call in message.calls):
        absent.add(EMITTERS)
    if tools == NO_TOOLS:
        absent.add(TOOLS)
    return Trace(
        trace_id=trace_id_of(messages, tools),
        source=source,
        messages=tuple(messages),
        tools=tools,
        query=query,
        facts=facts,
        missing=tuple(sorted(absent)),
        rebuilt=rebuilt,
    )


def trace_id_of(messages: Iterable[Message], tools: str) -> str:
    """sha256 (hex) of conversation and tools. Raises ValueError for text that is not Unicode."""
    talk = [
        (
            one.role,
            one.content,
            one.reasoning,
            [(call.id, call.name, call.arguments) for call in one.calls],
            one.call_id,
        )
        for one in messages
    ]
    return hashlib.sha256(_ENCODER.encode((talk, tools))).hexdigest()
