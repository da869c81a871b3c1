"""Hermes and Qwen text: ChatML with `<tool_call>` objects and `<tool_response>` blocks.

Pure. Text that a writer of this form made (Qwen3's chat template, thinking kept) gives the messages and tools
it was made of, but for the ids of calls, which the text does not carry, and outer white space. What can't be read is
refused with ArenaError V2097.
"""

from __future__ import annotations

import re

import msgspec

from foundation.errors import ArenaError
from harness.chat import Message, Role
from training.corpus.convert.spoken import lift
from training.corpus.sources.assembly import NO_TOOLS

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}
_TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


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


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _split_tools(content: str) -> tuple[str, str]:
    """A system text without the tools in it, and these as a JSON array."""
    before, _, after = content.partition(_TOOLS_HEAD)
    lines, end, rest = after.partition(_TOOLS_TAIL)
    tools = "[" + ",".join(line for line in lines.split("\n") if line.strip()) + "]"
    if not end or not _is_json(tools):
        raise ArenaError("V2097", "the tools of the system text can't be read")
    return "\n\n".join(part for part in (before.strip(), rest.strip()) if part), tools
