"""Hermes and Qwen text: ChatML with `<tool_call>` objects and `<tool_response>` blocks, there and back.

Promise: pure. `read_chat` of `write_chat` gives the same messages and tools, but for the ids of calls, which the text
does not carry, and outer white space, which Qwen's template does not keep either. What the text can't hold without
saying something else (its own tags inside a message) is refused with ArenaError V2097, never escaped.
"""

from __future__ import annotations

import re

import msgspec

from foundation.errors import ArenaError
from harness.chat import Message, Role
from training.corpus.convert.spoken import lift
from training.corpus.model import Trace
from training.corpus.sources.assembly import NO_TOOLS

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}
_TAGS = re.compile(r"<\|im_(?:start|end)\|>|</?(?:think|tool_call|tool_response|response|obs|tools)>")
_TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


def is_chat(text: str) -> bool:
    """Whether a text is ChatML."""
    return "<|im_start|>" in text


def read_chat(text: str) -> tuple[list[Message], str]:
    """The messages and tools (wrapped, JSON text) of ChatML. Raises ArenaError V2097."""
    tools, messages, end = NO_TOOLS, list[Message](), 0
    for turn in _TURN.finditer(text):
        if text[end : turn.start()].strip() or turn.group(1) not in _ROLES:
            raise ArenaError("V2097", f"text outside of turns, or a turn of {turn.group(1)!r}")
        role, content, end = _ROLES[turn.group(1)], turn.group(2), turn.end()
        if role == "system" and _TOOLS_HEAD in content:
            content, tools = _split_tools(content)
        if content or role != "system":
            messages.append(Message(role=role, content=content))
    if not messages or text[end:].strip():
        raise ArenaError("V2097", "not ChatML to its end")
    return lift(messages), tools


def write_chat(trace: Trace) -> str:
    """The trace as ChatML in Qwen3's form, thinking kept in every turn. Raises ArenaError V2097."""
    messages = list(trace.messages)
    system = messages.pop(0).content if messages and messages[0].role == "system" else ""
    parts = []
    if system or trace.tools != NO_TOOLS:
        found = [_plain(system)] if system else []
        if trace.tools != NO_TOOLS:
            tools = (_plain(bytes(tool).decode()) for tool in _RAWS.decode(trace.tools))
            found.append(_TOOLS_HEAD + "".join(f"\n{tool}" for tool in tools) + _TOOLS_TAIL)
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


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _plain(text: str) -> str:
    """The text, when it holds none of the tags it is to stand between."""
    if tag := _TAGS.search(text):
        raise ArenaError("V2097", f"Hermes text can't hold {tag.group()!r} inside a message")
    return text


def _split_tools(content: str) -> tuple[str, str]:
    """A system text without the tools in it, and these as a JSON array."""
    before, _, after = content.partition(_TOOLS_HEAD)
    lines, end, rest = after.partition(_TOOLS_TAIL)
    tools = "[" + ",".join(line for line in lines.split("\n") if line.strip()) + "]"
    if not end or not _is_json(tools):
        raise ArenaError("V2097", "the tools of the system text can't be read")
    return "\n\n".join(part for part in (before.strip(), rest.strip()) if part), tools
