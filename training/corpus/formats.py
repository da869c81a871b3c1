"""Conversations from elsewhere as messages: chat rows, and calls and results that stand in text.

Pure; names, ids and arguments are kept as they were written, an arguments object becomes JSON text. Roles and fields
are read under the names that OpenAI, Anthropic, LangChain and ShareGPT have for them. Results without ids are those of
the calls right before them, as many and in their order; calls without ids take those of such results. Calls and results
that stand in text (`<think>`, `<tool_call>`, `<response>`, `<obs>`, `<tool_response>`) are lifted: `<tool_call>` holds
a list of `name` and `parameters` (ReAct, SN15), or one object of `name` and `arguments` (Hermes, Qwen). Nothing is
coerced that would lose something, and nothing guessed: what can't be read is refused with ArenaError V2097, naming the
place in the row. Shapes: docs/benchmark.md#traces-met-elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from foundation.errors import ArenaError
from harness.chat import ROLES, Call, Message, Role, served_tools
from harness.inference.reply import broken_apart
from harness.trace import Emitter
from training.corpus.model import NO_TOOLS

T = TypeVar("T")


def as_kind(value: object, kind: type[T], place: str) -> T:
    """A JSON value of this type; its empty value for null. Raises ArenaError V2097."""
    try:
        return kind() if value is None else msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ArenaError("V2097", f"{place}: {error}") from error


def json_text(value: object, place: str) -> str:
    """A string as it is, any other value as JSON text. Raises ArenaError V2097 for what JSON can't say."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArenaError("V2097", f"{place}: {error}") from error


def _of_text(value: object) -> object:
    """A value that may stand as JSON text. Raises ArenaError V2097."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise ArenaError("V2097", f"tool call: {error}") from error


_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<response>(.*?)</response>", re.DOTALL)
_RESULT = re.compile(r"\s*<(tool_response|obs)>(.*?)</\1>", re.DOTALL)
_MARKUPS = {"Qwen-Coder": re.compile("<function="), "GLM": re.compile(r"[\w.-]+\s*(<arg_key>|\Z)")}
_NOTHING, _NONE = msgspec.Raw(b"{}"), msgspec.Raw(b"")


class ModelTurn(NamedTuple):
    """An assistant's text, taken apart."""

    reasoning: str
    content: str
    calls: tuple[Call, ...]  # ids are "" where the text has none


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


def read_turn(text: str) -> ModelTurn:
    """An assistant's text as reasoning, content and calls. Thinking that was cut off is all reasoning.

    Raises ArenaError V2097 for a call that can't be read.
    """
    reasoning, rest = split_thinking(text)
    calls: list[Call] = []
    for block in map(str.strip, _CALL.findall(rest)):
        try:
            written = _MANY.decode(block) if block[:1] == "[" else [_ONE.decode(block)]
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            named = next((name for name, form in _MARKUPS.items() if form.match(block)), "")
            why = f"is in {named}'s markup; only JSON is read" if named else f"is not one: {error}"
            raise ArenaError("V2097", f"a tool call {why}") from error
        for call in written:
            raw = call.arguments if bytes(call.arguments) != b"{}" else call.parameters
            calls.append(Call(id=call.tool_call_id, name=call.name, arguments=_arguments(raw)))
    outside = _CALL.sub("\n", rest)
    if "<tool_call>" in outside:
        raise ArenaError("V2097", "a tool call has no end")
    answers = [answer.strip() for answer in _RESPONSE.findall(outside)]
    parts = [_RESPONSE.sub("", outside).strip(), *answers]
    return ModelTurn(reasoning, "\n".join(part for part in parts if part), tuple(calls))


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


def lift(messages: Sequence[Message]) -> list[Message]:
    """Calls and results that are in text as calls and tool messages, under one id each; everything else as it is.

    Raises ArenaError V2097 as `read_turn`.
    """
    lifted: list[Message] = []
    waiting = 0  # calls of the latest turn, from its text, that nothing answered yet
    for message in messages:
        if message.role == "assistant":
            is_native = bool(message.calls)
            if is_spoken(message.content):
                # beside native calls only its thinking is taken out: what looks like a call there is text
                thought, rest = split_thinking(message.content)
                said = ModelTurn(thought, rest, message.calls) if is_native else read_turn(message.content)
                reasoning = "\n\n".join(part for part in (message.reasoning, said.reasoning) if part)
                message = msgspec.structs.replace(
                    message, content=said.content, reasoning=reasoning, calls=tuple(said.calls)
                )
            waiting = 0 if is_native else len(message.calls)
            lifted.append(message)
            continue
        is_unnamed = message.role == "tool" and not message.call_id and waiting > 0
        results, rest = _results(message.content) if message.role == "user" or is_unnamed else ((), message.content)
        if is_unnamed and not results:
            results, rest = (message.content,), ""
        for call_id, content in _shared_out(results, waiting):
            waiting -= 1
            lifted.append(Message(role="tool", content=content, call_id=call_id, is_model=message.is_model))
        if not results or (rest and not is_unnamed):
            lifted.append(msgspec.structs.replace(message, content=rest) if results else message)
    return _paired(lifted)


def _results(text: str) -> tuple[tuple[str, ...], str]:
    """The results at the start of a message, one a block, and what follows them."""
    results: list[str] = []
    end = 0
    while match := _RESULT.match(text, end):
        results.append(match.group(2).strip())
        end = match.end()
    return tuple(results), text[end:].strip() if results else text


def _shared_out(results: Sequence[str], calls: int) -> list[tuple[str, str]]:
    """The results of the `calls` calls before them, each with the id it names or "". One block may hold a JSON list of
    one result a call, and an item may name its call (`tool_call_id`, and `result` or `results`); whatever is neither
    stays as it is."""
    if len(results) == 1 and calls > 0:
        try:
            named = [(one.tool_call_id, bytes(one.results) or bytes(one.result)) for one in _ITEMS.decode(results[0])]
        except msgspec.DecodeError:
            named = []
        if len(named) == calls and all(raw for _, raw in named):
            is_told_apart = len({call_id for call_id, _ in named}) == calls
            return [(call_id if is_told_apart else "", _arguments(raw)) for call_id, raw in named]
        try:
            items = _LIST.decode(results[0]) if calls > 1 else []
        except msgspec.DecodeError:
            items = []
        if len(items) == calls:
            return [("", bytes(item).decode()) for item in items]
    return [("", result) for result in results]


def _paired(messages: list[Message]) -> list[Message]:
    """Calls and results under one id each, where as many results as calls leave no doubt which belong together. A call
    that still has none gets `call_<n>`, counted over the conversation."""
    ids = [call.id for message in messages for call in message.calls]
    if all(ids) and all(message.call_id for message in messages if message.role == "tool"):
        return messages
    taken = {*ids} - {""}
    paired = list(messages)
    for first, message in enumerate(messages, 1):
        if not message.calls:
            continue
        last = first
        while last < len(messages) and messages[last].role == "tool":
            last += 1
        calls, answers = message.calls, messages[first:last]
        told = [answer.call_id for answer in answers]
        is_whole = len(answers) == len(calls)
        if is_whole and len({*told} - {""}) == sum(map(bool, told)):
            pairs = zip(calls, told, strict=True)
            calls = tuple(call if call.id else msgspec.structs.replace(call, id=one) for call, one in pairs)
        calls = name_calls(calls, taken)
        paired[first - 1] = msgspec.structs.replace(message, calls=calls)
        waiting = [call.id for call in calls if call.id not in told]
        if is_whole and told.count("") == len(waiting):
            for place, answer in enumerate(answers, first):
                if not answer.call_id:
                    paired[place] = msgspec.structs.replace(answer, call_id=waiting.pop(0))
    return paired


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


def _arguments(value: msgspec.Raw | bytes) -> str:
    """A JSON value as text: the text of a JSON string, else the value's own. Raises ArenaError V2097."""
    raw = bytes(value).strip()
    try:
        return _TEXT.decode(raw) if raw[:1] == b'"' else raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArenaError("V2097", f"arguments: {error}") from error


_ROLES: dict[str, Role] = (
    dict[str, Role]({role: role for role in ROLES})
    | dict.fromkeys(("developer",), "system")
    | dict.fromkeys(("human",), "user")
    | dict.fromkeys(("gpt", "ai", "model", "bot", "chatgpt", "function_call"), "assistant")
    | dict.fromkeys(("function", "observation", "function_response", "tool_response", "tool_result", "ipython"), "tool")
)
_ROLE_KEYS = ("role", "from", "type")
_CONTENT_KEYS = ("content", "value", "text")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_ID_KEYS = ("tool_call_id", "call_id", "tool_use_id", "id")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "kwargs")
_RESULT_KEYS = (*_CONTENT_KEYS, "result", "results", "output", "obs")
_CALL_KEYS: tuple[tuple[str, Emitter | None], ...] = (
    ("tool_calls", None),
    ("function_call", None),
    ("echoed_tool_calls", "echoed"),
    ("agent_tool_calls", "code"),
)


def first_of(row: dict[str, Any], keys: Sequence[str]) -> Any:
    """The value under the first of these names that has one."""
    return next((row[key] for key in keys if row.get(key) is not None), None)


def id_of(row: dict[str, Any]) -> str:
    """The id of a call or result, a text or whole number, as text; "" without. Raises ArenaError V2097."""
    value = first_of(row, _ID_KEYS)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else as_kind(value, str, "id")


def read_messages(value: object) -> list[Message]:
    """The messages of a row, control tokens broken apart. Raises ArenaError V2097 for what is no chat message."""
    messages: list[Message] = []
    for number, row in enumerate(as_kind(value, list, "messages")):
        if row is not None:
            messages += _messages(as_kind(row, dict, f"message {number}"), f"message {number}")
    broken, replace = broken_apart, msgspec.structs.replace
    return [
        replace(
            one,
            content=broken(one.content),
            reasoning=broken(one.reasoning),
            calls=tuple(replace(call, arguments=broken(call.arguments)) for call in one.calls),
        )
        for one in lift(messages)
    ]


def is_message(row: object) -> bool:
    """Whether a value is a message under some name that its role has."""
    return isinstance(row, dict) and ("role" in row or _role_of(row) is not None)


def read_tools(value: object) -> str:
    """A `tools` array, flat or wrapped or as JSON text, wrapped and as `served_tools`. Raises ArenaError V2097."""
    tools = []
    for tool in (as_kind(_of_text(one), dict, "a tool") for one in as_calls(value, "tools")):
        if isinstance(tool.get("function"), dict):
            tools.append(tool)
            continue
        plain = {key: one for key, one in tool.items() if key not in ("type", "input_schema")}
        if "input_schema" in tool:  # Anthropic's word
            plain["parameters"] = tool["input_schema"]
        if not isinstance(tool.get("name"), str):
            raise ArenaError("V2097", "a tool has no name")
        tools.append({"type": "function", "function": plain})
    return served_tools(broken_apart(json_text(_without_nulls(tools), "tools"))) if tools else NO_TOOLS


def _without_nulls(value: Any) -> Any:
    """A decoded value less the members that Arrow fills in where rows of one column have different ones."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def as_calls(value: object, place: str) -> list[Any]:
    """Calls as a list: one, several, or either as JSON text; null is none. Raises ArenaError V2097."""
    value = _of_text(value) if value else None
    return [value] if isinstance(value, dict) else [one for one in as_kind(value, list, place) if one is not None]


def _role_of(row: dict[str, Any]) -> Role | None:
    stated = next((row[key] for key in _ROLE_KEYS if isinstance(row.get(key), str)), "")
    return _ROLES.get(stated.lower())


def _messages(row: dict[str, Any], place: str) -> Iterator[Message]:
    """The messages of one of the row's: results that stand beside text are messages of their own."""
    if isinstance(row.get("data"), dict) and "role" not in row:  # LangChain's form
        row = row["data"] | {"type": row.get("type")}
    role, is_model, told = _role_of(row), row.get("weight") != 0, first_of(row, _CONTENT_KEYS)
    if role is None:
        raise ArenaError("V2097", f"{place}: role {first_of(row, _ROLE_KEYS)!r}")
    if role == "tool" and isinstance(row.get("tool_messages"), list):  # tau2's: several results in one
        for one in row["tool_messages"]:
            yield from _messages(as_kind(one, dict, place) | {"role": "tool"}, place)
        return
    if role == "tool":
        content = _result(first_of(row, _RESULT_KEYS), place)
        yield Message(role="tool", content=content, call_id=id_of(row), is_model=is_model)
        return
    parts = [told] if isinstance(told, dict) else told
    if isinstance(parts, list):
        results = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
        for part in results:
            content = _result(part.get("content"), place)
            yield Message(role="tool", content=content, call_id=id_of(part), is_model=is_model)
        if results and len(results) == len(parts):
            return
        parts = [part for part in parts if part not in results]
    content, thought, inner = _parts(parts, place)
    if role != "assistant":
        if row.get("tool_calls"):
            raise ArenaError("V2097", f"{place}: calls of role {role!r}, which no turn of the model holds")
        yield Message(role=role, content=content, is_model=is_model)
        return
    if "function_call" in (row.get("from"), row.get("role")):  # ShareGPT's
        inner, content = as_calls(content, place), ""
    calls = [call_of(one, place, emitter) for key, emitter in _CALL_KEYS for one in as_calls(row.get(key), place)]
    calls += [call_of(one, place) for one in inner]
    reasoning = as_kind(next((row[name] for name in _REASONING if row.get(name)), ""), str, f"{place}, reasoning")
    thoughts = "\n\n".join(dict.fromkeys(one for one in (reasoning, thought) if one))
    yield Message(role="assistant", content=content, reasoning=thoughts, calls=tuple(calls), is_model=is_model)


def _result(value: object, place: str) -> str:
    """What a tool answered: text, text parts put together, or any other value as JSON."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and one.get("type") == "text" for one in value):
        return "".join(as_kind(one.get("text"), str, place) for one in value)
    return "" if value is None else json_text(value, place)


def _parts(value: object, place: str) -> tuple[str, str, list[Any]]:
    """Text, thoughts and calls of a content that is text or a list of parts. A picture is refused: it would be lost."""
    if not isinstance(value, list):
        return as_kind(value, str, f"{place}, content"), "", []
    text, thoughts, calls = list[str](), list[str](), list[Any]()
    for part in value:
        fields = part if isinstance(part, dict) else {"text": part}
        kind = fields.get("type", "text")
        if kind in ("text", "input_text", "output_text") and isinstance(fields.get("text"), str):
            text.append(fields["text"])
        elif kind in ("thinking", "reasoning"):
            thoughts.append(as_kind(next((fields[key] for key in (kind, "text") if fields.get(key)), ""), str, place))
        elif kind in ("tool_use", "tool_call"):
            calls.append(part)
        elif kind != "redacted_thinking":
            raise ArenaError("V2097", f"{place}, content has a part {kind!r}, which is not text")
    return "".join(text), "\n\n".join(one for one in thoughts if one), calls


def call_of(value: object, place: str, emitter: Emitter | None = None) -> Call:
    """A call under any of the names that its fields have. Raises ArenaError V2097."""
    row = as_kind(_of_text(value), dict, f"{place}, tool call")
    function = row["function"] if isinstance(row.get("function"), dict) else row
    name, given = as_kind(function.get("name"), str, f"{place}, name"), first_of(function, _ARGUMENT_KEYS)
    if not name:
        raise ArenaError("V2097", f"{place}: a tool call has no name")
    arguments = json_text({} if given is None else _without_nulls(given), f"{place}, arguments")
    return Call(id=id_of(row), name=name, arguments=arguments, emitter=emitter)
