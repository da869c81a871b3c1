"""Chat rows: `messages` with native tool calls, and `tools`, flat or wrapped.

Pure; names, ids and arguments are kept as they were written, an arguments object becomes JSON text. Roles and
fields are read under the names that OpenAI, Anthropic, LangChain and ShareGPT have for them. Results without ids are
those of the calls right before them, as many and in their order, as with the older `function_call`; calls without ids
take those of such results. Calls and results that an agent wrote as text into such messages are lifted (`spoken`).
Surfaced ids and emitters are facts that such rows can't carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from foundation.errors import ArenaError
from harness.chat import ROLES, Call, Message, Role
from harness.trace import Emitter
from training.corpus.convert.spoken import lift, name_calls
from training.corpus.convert.values import as_id, as_list, as_object, as_text, broken, decoded, json_text
from training.corpus.sources.assembly import NO_TOOLS

_ROLES: dict[str, Role] = (
    dict[str, Role]({role: role for role in ROLES})
    | dict.fromkeys(("developer",), "system")
    | dict.fromkeys(("human",), "user")
    | dict.fromkeys(("gpt", "ai", "model", "bot", "chatgpt", "function_call"), "assistant")
    | dict.fromkeys(("function", "observation", "function_response", "tool_response", "tool_result", "ipython"), "tool")
)
ROLE_KEYS = ("role", "from", "type")
_CONTENT_KEYS = ("content", "value", "text")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_ID_KEYS = ("tool_call_id", "call_id", "tool_use_id")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "kwargs")
_RESULT_KEYS = ("content", "result", "results", "output", "obs")
_AGENT_CALLS: tuple[tuple[str, Emitter], ...] = (("echoed_tool_calls", "echoed"), ("agent_tool_calls", "code"))


def read_messages(value: object) -> list[Message]:
    """The messages of a row. Raises ArenaError V2097 for what is no chat message."""
    messages: list[Message] = []
    names: list[str] = []  # of tools, beside the messages that say whose results they are
    for number, row in enumerate(as_list(value, "messages")):
        if row is not None:
            fields = as_object(row, f"message {number}")
            read = list(_messages(fields, f"message {number}"))
            messages += read
            name = fields.get("name")
            names += [name if isinstance(name, str) else ""] * len(read)
    return lift(_paired(messages, names))


def is_message(row: object) -> bool:
    """Whether a value is a message under some name that its role has."""
    return isinstance(row, dict) and ("role" in row or _role_of(row) is not None)


def read_tools(value: object) -> str:
    """A `tools` array, flat or wrapped or as JSON text, as wrapped JSON text. Raises ArenaError V2097."""
    value = decoded(value, "tools") if isinstance(value, str) and value.strip() else value or None
    value = [value] if isinstance(value, dict) else value
    tools = [
        _wrapped(as_object(_of_text(tool), f"tool {number}")) for number, tool in enumerate(as_list(value, "tools"))
    ]
    return json_text(tools, "tools") if tools else NO_TOOLS


def _of_text(value: object) -> object:
    """A call or tool that stands as JSON text."""
    return decoded(value, "tool call") if isinstance(value, str) else value


def _wrapped(tool: dict[str, Any]) -> dict[str, Any]:
    if isinstance(tool.get("function"), dict):
        return tool
    if not isinstance(tool.get("name"), str):
        raise ArenaError("V2097", "a tool has no name")
    plain = {key: value for key, value in tool.items() if key not in ("type", "input_schema")}
    if "input_schema" in tool:  # Anthropic's word
        plain["parameters"] = tool["input_schema"]
    return {"type": "function", "function": plain}


def _role_of(row: dict[str, Any]) -> Role | None:
    stated = next((row[key] for key in ROLE_KEYS if isinstance(row.get(key), str)), "")
    return _ROLES.get(stated.lower())


def _messages(row: dict[str, Any], place: str) -> Iterator[Message]:
    """The messages of one of the row's: results that stand together in one are several."""
    if isinstance(row.get("data"), dict) and "role" not in row:  # LangChain's form
        row = row["data"] | {"type": row.get("type")}
    role = _role_of(row)
    if role is None:
        stated = next((row[key] for key in ROLE_KEYS if row.get(key) is not None), None)
        raise ArenaError("V2097", f"{place}: role {stated!r}")
    is_model = row.get("weight") != 0
    told = next((row[key] for key in _CONTENT_KEYS if row.get(key) is not None), None)
    if isinstance(told, dict) and role != "tool":
        told = [told]
    if role == "tool":
        yield from _results(row, told, is_model, place)
        return
    if isinstance(told, list) and any(isinstance(part, dict) and part.get("type") == "tool_result" for part in told):
        for part in told:
            if isinstance(part, dict) and part.get("type") == "tool_result":
                yield from _results(part, part.get("content"), is_model, place)
        told = [part for part in told if not (isinstance(part, dict) and part.get("type") == "tool_result")]
        if not told:
            return
    content, thought, parts = _parts(told, place)
    if role != "assistant":
        if row.get("tool_calls"):
            raise ArenaError("V2097", f"{place}: calls of role {role!r}, which no turn of the model holds")
        yield Message(role=role, content=content, is_model=is_model)
        return
    if row.get("from") == "function_call" or row.get("role") == "function_call":
        parts, content = [*as_calls(content, place), *parts], ""
    calls = [*as_calls(row.get("tool_calls"), place), *as_calls(row.get("function_call"), place), *parts]
    own = [_call(call, place) for call in calls]
    for key, emitter in _AGENT_CALLS:
        own += [msgspec.structs.replace(_call(one, place), emitter=emitter) for one in as_calls(row.get(key), place)]
    reasoning = as_text(next((row[name] for name in _REASONING if row.get(name)), ""), f"{place}, reasoning")
    yield Message(
        role="assistant",
        content=content,
        reasoning="\n\n".join(dict.fromkeys(one for one in (reasoning, thought) if one)),
        calls=tuple(own),
        is_model=is_model,
    )


def _results(row: dict[str, Any], told: object, is_model: bool, place: str) -> Iterator[Message]:
    """The results that a tool message holds: one, or one for each item that names its call."""
    items = row.get("tool_messages") or told
    if isinstance(items, list) and items and all(isinstance(one, dict) and _id_of(one) for one in items):
        for item in items:
            inner = next((item[key] for key in _RESULT_KEYS if item.get(key) is not None), "")
            yield Message(role="tool", content=_result(inner, place), call_id=_id_of(item), is_model=is_model)
        return
    call_id = _id_of(row) or as_id(row.get("id"), f"{place}, id")
    if not call_id and len(own := as_list(row.get("tool_call_ids"), f"{place}, tool_call_ids")) == 1:
        call_id = as_id(own[0], f"{place}, tool_call_ids")
    inner = told if told is not None else next((row[key] for key in _RESULT_KEYS if row.get(key) is not None), "")
    yield Message(role="tool", content=_result(inner, place), call_id=call_id, is_model=is_model)


def _id_of(row: dict[str, Any]) -> str:
    return next((as_id(row[key], key) for key in _ID_KEYS if row.get(key) is not None), "")


def _result(value: object, place: str) -> str:
    """What a tool answered: text, text parts put together, or any other value as JSON."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and one.get("type") == "text" for one in value):
        return "".join(as_text(one.get("text"), place) for one in value)
    return "" if value is None else json_text(value, place)


def _parts(value: object, place: str) -> tuple[str, str, list[Any]]:
    """Text, thoughts and calls of a content that is text or a list of parts. A picture is refused: it would be lost."""
    if not isinstance(value, list):
        return as_text(value, f"{place}, content"), "", []
    text, thoughts, calls = list[str](), list[str](), list[Any]()
    for part in value:
        kind = part.get("type", "text") if isinstance(part, dict) else ""
        if isinstance(part, str):
            text.append(part)
        elif kind in ("text", "input_text", "output_text") and isinstance(part, dict) and "text" in part:
            text.append(as_text(part["text"], place))
        elif kind in ("thinking", "reasoning") and isinstance(part, dict):
            said = next((part[key] for key in ("thinking", "reasoning", "text") if part.get(key)), "")
            thoughts.append(as_text(said, place))
        elif kind == "redacted_thinking":
            continue
        elif kind in ("tool_use", "tool_call") and isinstance(part, dict):
            calls.append(part)
        else:
            raise broken(f"{place}, content", f"text alone, and has a part {kind or type(part).__name__!r}", value)
    return "".join(text), "\n\n".join(one for one in thoughts if one), calls


def as_calls(value: object, place: str) -> list[Any]:
    """Calls as a list: one, several, or either as JSON text; null is none. Raises ArenaError V2097."""
    value = _of_text(value) if value else None
    return [value] if isinstance(value, dict) else [one for one in as_list(value, f"{place}, calls") if one is not None]


def _call(value: object, place: str) -> Call:
    row = as_object(_of_text(value), f"{place}, tool call")
    function = as_object(row.get("function") if isinstance(row.get("function"), dict) else row, "function")
    name = as_text(function.get("name"), "name")
    if not name:
        raise ArenaError("V2097", "a tool call has no name")
    given: object = next((function[key] for key in _ARGUMENT_KEYS if function.get(key) is not None), {})
    own = next((row[key] for key in ("id", *_ID_KEYS) if row.get(key) is not None), None)
    return Call(id=as_id(own, "id"), name=name, arguments=json_text(given, "arguments"))


def _paired(messages: list[Message], names: list[str]) -> list[Message]:
    """Calls and results under one id each, where the row leaves no doubt which belong together."""
    taken: set[str] = set()
    paired = list(messages)
    for first, message in enumerate(messages, 1):
        if not message.calls:
            continue
        last = first
        while last < len(messages) and messages[last].role == "tool":
            last += 1
        calls, answers = list(message.calls), paired[first:last]
        if len(answers) == len(calls):
            for number, answer in enumerate(answers):
                if not calls[number].id and answer.call_id:
                    calls[number] = msgspec.structs.replace(calls[number], id=answer.call_id)
        calls = list(name_calls(calls, taken))
        open_calls = [call for call in calls if all(answer.call_id != call.id for answer in answers)]
        is_whole = len(answers) == len(calls) and sum(not one.call_id for one in answers) == len(open_calls)
        for number, answer in enumerate(answers):
            named = [call for call in open_calls if call.name == names[first + number]]
            found = named if len(named) == 1 else open_calls[:1] if is_whole else []
            if found and not answer.call_id:
                answers[number] = msgspec.structs.replace(answer, call_id=found[0].id)
                open_calls.remove(found[0])
        paired[first - 1] = msgspec.structs.replace(message, calls=tuple(calls))
        paired[first:last] = answers
    return paired
