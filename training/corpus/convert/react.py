"""ReAct text: `<think>`, `<tool_call>` with a list, `<obs>`, `<response>`, in one text or message by message.

Pure. An observation goes to the call of the turn before it; one that lists as many results as there were
calls is shared out. A `<state>` stands for turns that were folded away: it stays where it is, and the trace is not
linear, for its model did not see the whole of it in order.
"""

from __future__ import annotations

import re

from harness.chat import Message
from training.corpus.convert.spoken import lift

_OBSERVED = re.compile(r"(<obs>.*?</obs>)", re.DOTALL)


def is_react(text: str) -> bool:
    """Whether a text has a tag that ReAct alone uses, or calls as a list."""
    return "<obs>" in text or "<state>" in text or re.search(r"<tool_call>\s*\[", text) is not None


def is_folded(messages: list[Message]) -> bool:
    """Whether some turns were folded into a state."""
    return any("<state>" in message.content for message in messages)


def read_text(text: str, query: str) -> list[Message]:
    """The conversation of one text, its query in front where there is one. Raises ArenaError V2097 as `lift`."""
    messages = [Message(role="user", content=query)] if query else []
    for part in _OBSERVED.split(text):
        if part.strip():
            messages.append(Message(role="user" if part.startswith("<obs>") else "assistant", content=part))
    return lift(messages)
