"""Tool calls and results that are in text: `<think>`, `<tool_call>`, `<response>`, `<obs>`, `<tool_response>`.

Pure. Two dialects are read, which differ in what a `<tool_call>` holds: a list of `name` and `parameters`
(ReAct, SN15), or one object of `name` and `arguments` (Hermes, Qwen). Arguments keep the very text they were written
in. A call that is not JSON, or that has no end, raises ArenaError V2097: guessing what was meant would make a row up.
Shapes: docs/benchmark.md#traces-met-elsewhere.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from foundation.errors import ArenaError
from harness.chat import Call, Message

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<response>(.*?)</response>", re.DOTALL)
_RESULT = re.compile(r"\s*<(tool_response|obs)>(.*?)</\1>", re.DOTALL)
_NOTHING, _NONE = msgspec.Raw(b"{}"), msgspec.Raw(b"")


class Said(NamedTuple):
    """An assistant's text, taken apart."""

    reasoning: str
    content: str
    calls: tuple[Call, ...]  # ids are "" where the text has none


class Observed(NamedTuple):
    """What came back from one call. `call_id` is "" where the text does not say whose it is."""

    call_id: str
    content: str


class _SpokenItem(msgspec.Struct):
    """One result in a list of them, by the call it names."""

    tool_call_id: str
    results: msgspec.Raw = _NONE
    result: msgspec.Raw = _NONE


class _Written(msgspec.Struct):
    """A call as text. `parameters` is ReAct's word, `arguments` Hermes'."""

    name: str
    arguments: msgspec.Raw = _NOTHING
    parameters: msgspec.Raw = _NOTHING
    tool_call_id: str = ""


_ONE = msgspec.json.Decoder(_Written)
_MANY = msgspec.json.Decoder(list[_Written])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[_SpokenItem])
_TEXT = msgspec.json.Decoder(str)


def is_spoken(text: str) -> bool:
    """Whether an assistant's text holds thinking or calls as tags."""
    return "<tool_call>" in text or "<think>" in text or "</think>" in text


def read_turn(text: str) -> Said:
    """An assistant's text as reasoning, content and calls. Thinking that was cut off is all reasoning.

    Raises ArenaError V2097 for a call that can't be read.
    """
    reasoning, rest = split_thinking(text)
    calls: list[Call] = []
    for block in map(str.strip, _CALL.findall(rest)):
        try:
            written = _MANY.decode(block) if block[:1] == "[" else [_ONE.decode(block)]
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            raise ArenaError("V2097", f"a tool call is not one: {error}") from error
        for call in written:
            raw = call.arguments if bytes(call.arguments) != b"{}" else call.parameters
            calls.append(Call(id=call.tool_call_id, name=call.name, arguments=arguments_text(raw)))
    outside = _CALL.sub("\n", rest)
    if "<tool_call>" in outside:
        raise ArenaError("V2097", "a tool call has no end")
    answers = [answer.strip() for answer in _RESPONSE.findall(outside)]
    parts = [_RESPONSE.sub("", outside).strip(), *answers]
    return Said(reasoning, "\n".join(part for part in parts if part), tuple(calls))


def read_results(text: str) -> tuple[tuple[str, ...], str]:
    """The results at the start of a message, one a block, and what follows them."""
    results: list[str] = []
    end = 0
    while match := _RESULT.match(text, end):
        results.append(match.group(2).strip())
        end = match.end()
    return tuple(results), text[end:].strip() if results else text


def share_out(results: Sequence[str], calls: int) -> tuple[Observed, ...]:
    """The results of the `calls` calls before them. One block may hold a JSON list of one result a call, and an item
    may name its call (`tool_call_id`, and `result` or `results`); whatever is neither stays as it is."""
    if len(results) != 1 or not calls:
        return tuple(Observed("", result) for result in results)
    try:
        named = _ITEMS.decode(results[0])
    except msgspec.DecodeError:
        named = []
    told = [bytes(item.results) if item.results != _NONE else bytes(item.result) for item in named]
    if len(named) == calls and all(one != bytes(_NONE) for one in told):
        return tuple(Observed(item.tool_call_id, arguments_text(one)) for item, one in zip(named, told, strict=True))
    try:
        items = _LIST.decode(results[0]) if calls > 1 else []
    except msgspec.DecodeError:
        items = []
    if len(items) == calls:
        return tuple(Observed("", bytes(item).decode()) for item in items)
    return (Observed("", results[0]),)


def lift(messages: Sequence[Message]) -> list[Message]:
    """Calls and results that are in text as calls and tool messages; everything else as it is.

    Calls without an id get the one their results name, else `call_<n>`, counted over the conversation. Raises
    ArenaError V2097 as `read_turn`.
    """
    taken = {call.id for message in messages for call in message.calls}
    waiting: list[str] = []  # ids of lifted calls of the latest turn that nothing answered yet
    lifted: list[Message] = []
    for message, following in itertools.zip_longest(messages, messages[1:]):
        if message.role == "assistant":
            is_native = bool(message.calls)
            if is_spoken(message.content):
                message = _taken_apart(message, following, taken)
            waiting = [] if is_native else [call.id for call in message.calls]
            lifted.append(message)
            continue
        results, rest = read_results(message.content) if message.role == "user" else ((), message.content)
        if message.role == "tool" and not message.call_id and waiting:
            results, rest = read_results(message.content)
            results, rest = (results, rest) if results else ((message.content,), "")
        for observed in share_out(results, len(waiting)):
            call_id = waiting.pop(0) if waiting else ""
            lifted.append(Message(role="tool", content=observed.content, call_id=call_id, is_model=message.is_model))
        if rest or not results:
            lifted.append(msgspec.structs.replace(message, content=rest) if results else message)
    return lifted


def name_calls(calls: Sequence[Call], taken: set[str]) -> tuple[Call, ...]:
    """The calls with an id each that no other call of the conversation has; `taken` learns them."""
    named = []
    for call in calls:
        number = len(taken) + 1
        while not call.id and f"call_{number}" in taken:
            number += 1
        own = call if call.id else msgspec.structs.replace(call, id=f"call_{number}")
        taken.add(own.id)
        named.append(own)
    return tuple(named)


def arguments_text(value: msgspec.Raw | bytes) -> str:
    """Arguments as JSON text: the text of a JSON string, else the value's own text. Raises ArenaError V2097."""
    raw = bytes(value).strip()
    try:
        return _TEXT.decode(raw) if raw[:1] == b'"' else raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArenaError("V2097", f"arguments: {error}") from error


def _taken_apart(message: Message, following: Message | None, taken: set[str]) -> Message:
    """A turn without tags. Beside native calls only its thinking is one: what looks like a call there is text.

    Calls without ids go under those that the results after them name, where these are all different.
    """
    said = Said(*split_thinking(message.content), message.calls) if message.calls else read_turn(message.content)
    calls = said.calls
    if not message.calls:
        if following is not None and following.role in ("user", "tool") and not any(call.id for call in calls):
            ids = [observed.call_id for observed in share_out(read_results(following.content)[0], len(calls))]
            if len(ids) == len(calls) == len(set(ids)):
                calls = tuple(msgspec.structs.replace(call, id=one) for call, one in zip(calls, ids, strict=True))
        calls = name_calls(calls, taken)
    reasoning = "\n\n".join(part for part in (message.reasoning, said.reasoning) if part)
    return msgspec.structs.replace(message, content=said.content, reasoning=reasoning, calls=calls)


def split_thinking(text: str) -> tuple[str, str]:
    """Reasoning, and what is not. The opening tag may be in the prompt; a missing end means it was cut off."""
    lead, opening, rest = text.partition("<think>")
    if not opening:
        before, end, after = text.partition("</think>")
        return (before.strip(), after) if end and "<tool_call>" not in before else ("", text)
    thought, end, after = rest.partition("</think>")
    if "<tool_call>" in lead or (not end and lead.strip()):
        return "", text
    return thought.strip(), lead + after
