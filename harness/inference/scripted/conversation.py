"""What the scripted model reads out of a request: the question, the tools on offer, the calls already answered.

Total on any JSON. A message that cannot be read is passed over, so a strange transcript gives a poor answer
and never a crash; only a request without model or messages is refused, as an endpoint would.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from foundation.canonical import foreign_text

TEXT_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESULT_BLOCK = re.compile(r"<(tool_response|obs|tool_result)>(.*?)</\1>", re.DOTALL)
_HISTORY_BLOCK = re.compile(r"<(user|tool_call|obs)>(.*?)</\1>", re.DOTALL)


class RequestError(Exception):
    """The request is refused with an HTTP `status`."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class WrittenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call in a message, native or as text."""

    name: str
    arguments: dict[str, Any]


class ScriptedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the scripted model sees it. `results` maps a call's key to the decoded result text."""

    system: str
    question: str  # the first user message
    latest: str  # the last user message
    offered: tuple[str, ...]  # tool names of native schemas
    is_text_mode: bool  # calls are written as `<tool_call>` text, because the system prompt describes tools that way
    is_one_array: bool  # all calls of a turn in one block, with `parameters`, because the prompt speaks of those
    results: dict[str, Any]
    turns: int  # assistant turns so far


def call_key(name: str, arguments: Mapping[str, Any]) -> str:
    """Identity of a call: its name and its arguments with sorted keys."""
    return f"{name} {foreign_text(dict(arguments))}"


def read_conversation(request: Mapping[str, Any]) -> ScriptedConversation:
    """The conversation in a chat completion request. Raises RequestError 400 when it has no messages."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(row, dict) for row in messages):
        raise RequestError(400, "messages must be a non-empty list of objects")
    texts = [(str(row.get("role", "")), _plain(row.get("content"))) for row in messages]
    tools = request.get("tools")
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    offered = tuple(name for name in names if isinstance(name, str))
    system = "\n".join(text for role, text in texts if role == "system")
    is_text_mode = not offered and "<tool_call>" in system
    if is_text_mode:
        texts = [turn for role, text in texts for turn in _unfolded(role, text)]
    users = [text for role, text in texts if role == "user"]
    return ScriptedConversation(
        system=system,
        question=users[0] if users else "",
        latest=users[-1] if users else "",
        offered=offered,
        is_text_mode=is_text_mode,
        is_one_array=is_text_mode and '"parameters"' in system and '"arguments"' not in system,
        results=_text_results(texts) if is_text_mode else _native_results(messages),
        turns=sum(role == "assistant" for role, _ in texts),
    )


def read_text_calls(text: str) -> list[WrittenCall]:
    """Calls written as `<tool_call>` blocks: one object or a list, with `arguments` or `parameters`."""
    calls: list[WrittenCall] = []
    for block in TEXT_CALL.findall(text):
        decoded = _decode(block)
        for row in decoded if isinstance(decoded, list) else [decoded]:
            call = _written(row)
            if call is not None:
                calls.append(call)
    return calls


def _written(row: object) -> WrittenCall | None:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    arguments = row.get("arguments", row.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _decode(arguments)
    return WrittenCall(name=row["name"], arguments=arguments) if isinstance(arguments, dict) else None


def _native_results(messages: list[dict[str, Any]]) -> dict[str, Any]:
    key_by_id: dict[str, str] = {}
    results: dict[str, Any] = {}
    for row in messages:
        calls = row.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            written = _written(call.get("function")) if isinstance(call, dict) else None
            if written is not None:
                key_by_id[str(call.get("id"))] = call_key(written.name, written.arguments)
        key = key_by_id.get(str(row.get("tool_call_id"))) if row.get("role") == "tool" else None
        if key is not None:
            result = _decode(_plain(row.get("content")))
            if isinstance(result, dict) and result.keys() == {"observation", "done", "error"}:
                result = result["observation"]  # a turn of SN15's environment, whose lists stand under one key
                result = result["results"] if isinstance(result, dict) and result.keys() == {"results"} else result
            results.setdefault(key, result)
    return results


def _unfolded(role: str, text: str) -> list[tuple[str, str]]:
    """The turns in a user message that holds a whole dialogue between tags, as SN15's agents write it."""
    if role != "user" or "<user>" not in text:
        return [(role, text)]
    blocks = [(found[1], found[0]) for found in _HISTORY_BLOCK.finditer(text)]
    return [
        ("user", _HISTORY_BLOCK.sub(r"\2", block))
        if tag == "user"
        else ("assistant" if tag == "tool_call" else "user", block)
        for tag, block in blocks
    ]


def _text_results(texts: list[tuple[str, str]]) -> dict[str, Any]:
    """Results of text calls, in the order of the calls: blocks of the next user or tool message, or all of it."""
    results: dict[str, Any] = {}
    waiting: list[str] = []
    for role, text in texts:
        if role == "assistant":
            waiting = [call_key(call.name, call.arguments) for call in read_text_calls(text)]
        elif waiting:
            blocks = [block for _, block in _RESULT_BLOCK.findall(text)] or [text]
            decoded = [_decode(block) for block in blocks]
            rows = decoded[0] if len(decoded) == 1 and isinstance(decoded[0], list) else []
            # SN15's observations: a list of results beside the ids of their calls
            if rows and all(isinstance(row, dict) and row.keys() == {"tool_call_id", "results"} for row in rows):
                decoded = [row["results"] for row in rows]
            elif len(waiting) > 1 and len(decoded) == 1 and isinstance(decoded[0], list):
                decoded = rows
            results.update({key: value for key, value in zip(waiting, decoded, strict=False) if key not in results})
            waiting = []
    return results


def _plain(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def _decode(text: str) -> Any:
    """The JSON value of `text`, or the text itself when it is not JSON."""
    try:
        return orjson.loads(text.strip())
    except orjson.JSONDecodeError:
        return text
