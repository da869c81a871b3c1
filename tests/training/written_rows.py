"""Traces written back as foreign rows: OpenAI chat rows and Hermes text, for round trips through the converter."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foundation.errors import ArenaError
from harness.chat import Message, chat_row
from training.corpus.model import EXPORTED_FACTS, NO_TOOLS, Trace, TraceFacts
from training.corpus.tokens import _TOOLS_AFTER, _TOOLS_BEFORE

_TAGS = re.compile(r"<\|im_(?:start|end)\|>|</?(?:think|tool_call|tool_response|response|obs|tools)>")
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def write_row(trace: Trace) -> dict[str, Any]:
    """The trace as a chat row with wrapped tools: JSON values. Weight 0 marks what model and host did not make."""
    return {
        "messages": [chat_row(one) if one.is_model else chat_row(one) | {"weight": 0} for one in trace.messages],
        "tools": msgspec.json.decode(trace.tools),
        "metadata": _written_facts(trace.facts) | {"query": trace.query},
    }


def write_chat(trace: Trace) -> str:
    """The trace as ChatML in Qwen3's form, thinking kept in every turn. Raises ArenaError V2097."""
    messages = list(trace.messages)
    system = messages.pop(0).content if messages and messages[0].role == "system" else ""
    parts = []
    if system or trace.tools != NO_TOOLS:
        found = [_plain(system)] if system else []
        if trace.tools != NO_TOOLS:
            tools = (_plain(bytes(tool).decode()) for tool in _RAWS.decode(trace.tools))
            listed = "".join(f"\n{tool}" for tool in tools)
            found.append(f"{_TOOLS_BEFORE}{listed}{_TOOLS_AFTER}".removesuffix("<|im_end|>\n"))
        parts.append(_turn("system", "\n\n".join(found)))
    results: list[str] = []
    for message in messages:
        if message.role == "tool":
            results.append(f"<tool_response>\n{_plain(message.content)}\n</tool_response>")
            continue
        if results:
            parts.append(_turn("user", "\n".join(results)))
            results = []
        parts.append(_turn(message.role, _spoken(message) if message.role == "assistant" else _plain(message.content)))
    if results:
        parts.append(_turn("user", "\n".join(results)))
    return "".join(parts)


def _turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def _spoken(message: Message) -> str:
    thinking = [f"<think>\n{_plain(message.reasoning)}\n</think>\n"] if message.reasoning else []
    blocks = [_plain(message.content)] if message.content else []
    for call in message.calls:
        is_object = call.arguments[:1] == "{" and call.arguments[-1:] == "}" and _is_json(call.arguments)
        arguments = call.arguments if is_object else msgspec.json.encode(call.arguments).decode()
        name = msgspec.json.encode(call.name).decode()
        blocks.append(f'<tool_call>\n{{"name": {name}, "arguments": {_plain(arguments)}}}\n</tool_call>')
    return "\n".join([*thinking, *blocks])


def _plain(text: str) -> str:
    """The text, when it holds none of the tags it is to stand between."""
    if tag := _TAGS.search(text):
        raise ArenaError("V2097", f"Hermes text can't hold {tag.group()!r} inside a message")
    return text


def _written_facts(facts: TraceFacts) -> dict[str, Any]:
    """The facts that `read_facts` reads back, under an export's names; what is None is left out."""
    written = {name: getattr(facts, fact) for name, fact in EXPORTED_FACTS.items() if getattr(facts, fact) is not None}
    return written if facts.recommended is None else written | {"recommended": ",".join(facts.recommended)}
