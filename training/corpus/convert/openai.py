"""OpenAI chat rows: `messages` with native tool calls, and `tools`, flat or wrapped.

Promise: pure; names, ids and arguments are kept as they were written, an arguments object becomes JSON text.
`developer` is read as `system`. Results without ids are those of the calls right before them, as many and in their
order, as with the older `function_call`. Calls and results that an agent wrote as text into such messages are lifted
(`spoken`). Surfaced ids and emitters are facts that such rows can't carry.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from foundation.errors import ArenaError
from harness.chat import Call, Message, Role
from training.corpus.convert.spoken import lift, name_calls
from training.corpus.convert.values import as_list, as_object, as_text, broken, json_text
from training.corpus.sources.assembly import NO_TOOLS

_ROLES: dict[str, Role] = {role: role for role in get_args(Role)} | {"developer": "system", "function": "tool"}
_REASONING = ("reasoning_content", "reasoning", "thinking")


def read_messages(value: object) -> list[Message]:
    """The messages of a row. Raises ArenaError V2097 for what is no chat message."""
    taken: set[str] = set()
    rows = [as_object(row, f"message {number}") for number, row in enumerate(as_list(value, "messages"))]
    messages = [_message(row, f"message {number}", taken) for number, row in enumerate(rows)]
    for first, message in enumerate(messages, 1):
        answers = messages[first : first + len(message.calls)]
        if len(answers) == len(message.calls) and all(one.role == "tool" and not one.call_id for one in answers):
            messages[first : first + len(answers)] = [
                msgspec.structs.replace(one, call_id=call.id) for one, call in zip(answers, message.calls, strict=True)
            ]
    return lift(messages)


def read_tools(value: object) -> str:
    """A `tools` array, flat or wrapped or as JSON text, as wrapped JSON text. Raises ArenaError V2097."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ArenaError("V2097", f"tools: {error}") from error
    tools = [_wrapped(as_object(tool, f"tool {number}")) for number, tool in enumerate(as_list(value, "tools"))]
    return json_text(tools, "tools") if tools else NO_TOOLS


def _wrapped(tool: dict[str, Any]) -> dict[str, Any]:
    if isinstance(tool.get("function"), dict):
        return tool
    if not isinstance(tool.get("name"), str):
        raise ArenaError("V2097", "a tool has no name")
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _message(row: dict[str, Any], place: str, taken: set[str]) -> Message:
    role = _ROLES.get(as_text(row.get("role"), f"{place}, role"))
    if role is None:
        raise ArenaError("V2097", f"{place}: role {row.get('role')!r}")
    content = _content(row.get("content"), role, f"{place}, content")
    is_model = row.get("weight") != 0
    if role != "assistant":
        call_id = as_text(row.get("tool_call_id"), f"{place}, tool_call_id")
        if not call_id and len(own := as_list(row.get("tool_call_ids"), f"{place}, tool_call_ids")) == 1:
            call_id = as_text(own[0], f"{place}, tool_call_ids")
        return Message(role=role, content=content, call_id=call_id, is_model=is_model)
    calls = [_call(as_object(call, f"{place}, tool call")) for call in as_list(row.get("tool_calls"), place)]
    if row.get("function_call") is not None:
        calls.append(_call(as_object(row["function_call"], f"{place}, function_call")))
    reasoning = next((row[name] for name in _REASONING if row.get(name)), "")
    return Message(
        role="assistant",
        content=content,
        reasoning=as_text(reasoning, f"{place}, reasoning"),
        calls=name_calls(calls, taken),
        is_model=is_model,
    )


def _content(value: object, role: Role, place: str) -> str:
    """Text, or text parts put together; a result may be any value."""
    if isinstance(value, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in value):
        return "".join(as_text(part.get("text"), place) for part in value)
    if role == "tool" and value is not None:
        return json_text(value, place)
    if isinstance(value, list):
        raise broken(place, "text alone", value)
    return as_text(value, place)


def _call(row: dict[str, Any]) -> Call:
    function = as_object(row.get("function", row), "function")
    name = as_text(function.get("name"), "name")
    if not name:
        raise ArenaError("V2097", "a tool call has no name")
    given: object = next((function[key] for key in ("arguments", "parameters") if function.get(key) is not None), {})
    return Call(id=as_text(row.get("id"), "id"), name=name, arguments=json_text(given, "arguments"))
