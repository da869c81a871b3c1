"""The formats of conversations from elsewhere: chat rows, hosted rollouts, ReAct, Hermes and Qwen text, SN15 steps.

Pure; names, ids and arguments are kept as they were written, an arguments object becomes JSON text. Roles and fields
are read under the names that OpenAI, Anthropic, LangChain and ShareGPT have for them. Results without ids are those of
the calls right before them, as many and in their order; calls without ids take those of such results. Calls and results
that stand in text (`<think>`, `<tool_call>`, `<response>`, `<obs>`, `<tool_response>`) are lifted: `<tool_call>` holds
a list of `name` and `parameters` (ReAct, SN15), or one object of `name` and `arguments` (Hermes, Qwen). Nothing is
coerced that would lose something, and nothing guessed: what can't be read is refused with ArenaError V2097, naming the
place in the row. Shapes: docs/benchmark.md#traces-met-elsewhere.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from foundation.errors import ArenaError
from harness.chat import ROLES, Call, Message, Role
from harness.trace import Emitter
from training.corpus.model import NO_TOOLS, TraceFacts


def broken(place: str, wanted: str, value: object) -> ArenaError:
    """What is wrong with a value."""
    return ArenaError("V2097", f"{place} is {type(value).__name__}, not {wanted}")


def as_object(value: object, place: str) -> dict[str, Any]:
    """A JSON object. Raises ArenaError V2097."""
    if not isinstance(value, dict):
        raise broken(place, "an object", value)
    return value


def as_list(value: object, place: str) -> list[Any]:
    """A JSON array, empty for null. Raises ArenaError V2097."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise broken(place, "a list", value)
    return value


def as_text(value: object, place: str) -> str:
    """A string, "" for null. Raises ArenaError V2097."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise broken(place, "text", value)
    return value


def as_id(value: object, place: str) -> str:
    """A string or whole number as text, "" for null. Raises ArenaError V2097."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else as_text(value, place)


def decoded(value: str, place: str) -> Any:
    """What a JSON text says. Raises ArenaError V2097."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise ArenaError("V2097", f"{place}: {error}") from error


def json_text(value: object, place: str) -> str:
    """A string as it is, any other value as JSON text. Raises ArenaError V2097 for what JSON can't say."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArenaError("V2097", f"{place}: {error}") from error


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
_ID_KEYS = ("tool_call_id", "call_id", "tool_use_id", "id")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "kwargs")
_RESULT_KEYS = ("content", "result", "results", "output", "obs")
_AGENT_CALLS: tuple[tuple[str, Emitter], ...] = (("echoed_tool_calls", "echoed"), ("agent_tool_calls", "code"))


def _first(row: dict[str, Any], keys: Sequence[str]) -> Any:
    """The value under the first of these names that has one."""
    return next((row[key] for key in keys if row.get(key) is not None), None)


def read_messages(value: object) -> list[Message]:
    """The messages of a row. Raises ArenaError V2097 for what is no chat message."""
    messages: list[Message] = []
    for number, row in enumerate(as_list(value, "messages")):
        if row is not None:
            messages += _messages(as_object(row, f"message {number}"), f"message {number}")
    return lift(_paired(messages))


def is_message(row: object) -> bool:
    """Whether a value is a message under some name that its role has."""
    return isinstance(row, dict) and ("role" in row or _role_of(row) is not None)


def read_tools(value: object) -> str:
    """A `tools` array, flat or wrapped or as JSON text, as wrapped JSON text. Raises ArenaError V2097."""
    tools = [_wrapped(as_object(_of_text(tool), "a tool")) for tool in as_calls(value, "tools")]
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
    """The messages of one of the row's: results that stand beside text are messages of their own."""
    if isinstance(row.get("data"), dict) and "role" not in row:  # LangChain's form
        row = row["data"] | {"type": row.get("type")}
    role, is_model, told = _role_of(row), row.get("weight") != 0, _first(row, _CONTENT_KEYS)
    if role is None:
        raise ArenaError("V2097", f"{place}: role {_first(row, ROLE_KEYS)!r}")
    if role == "tool":
        inner = told if told is not None else _first(row, _RESULT_KEYS)
        yield Message(role="tool", content=_result(inner, place), call_id=_id_of(row), is_model=is_model)
        return
    parts = [told] if isinstance(told, dict) else told
    if isinstance(parts, list):
        results = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
        for part in results:
            content = _result(part.get("content"), place)
            yield Message(role="tool", content=content, call_id=_id_of(part), is_model=is_model)
        if results and len(results) == len(parts):
            return
        parts = [part for part in parts if part not in results]
    content, thought, calls = _parts(parts, place)
    if role != "assistant":
        if row.get("tool_calls"):
            raise ArenaError("V2097", f"{place}: calls of role {role!r}, which no turn of the model holds")
        yield Message(role=role, content=content, is_model=is_model)
        return
    if "function_call" in (row.get("from"), row.get("role")):  # ShareGPT's
        calls, content = as_calls(content, place), ""
    calls = [*as_calls(row.get("tool_calls"), place), *as_calls(row.get("function_call"), place), *calls]
    own = [_call(call, place) for call in calls]
    for key, emitter in _AGENT_CALLS:
        own += [msgspec.structs.replace(_call(one, place), emitter=emitter) for one in as_calls(row.get(key), place)]
    reasoning = as_text(next((row[name] for name in _REASONING if row.get(name)), ""), f"{place}, reasoning")
    thoughts = "\n\n".join(dict.fromkeys(one for one in (reasoning, thought) if one))
    yield Message(role="assistant", content=content, reasoning=thoughts, calls=tuple(own), is_model=is_model)


def _id_of(row: dict[str, Any]) -> str:
    return as_id(_first(row, _ID_KEYS), "id")


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
        fields = part if isinstance(part, dict) else {"text": part}
        kind = fields.get("type", "text")
        if kind in ("text", "input_text", "output_text") and isinstance(fields.get("text"), str):
            text.append(fields["text"])
        elif kind in ("thinking", "reasoning"):
            thoughts.append(as_text(next((fields[key] for key in (kind, "text") if fields.get(key)), ""), place))
        elif kind in ("tool_use", "tool_call"):
            calls.append(part)
        elif kind != "redacted_thinking":
            raise broken(f"{place}, content", f"text alone, and has a part {kind!r}", value)
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
        raise ArenaError("V2097", f"{place}: a tool call has no name")
    given = _first(function, _ARGUMENT_KEYS)
    return Call(id=_id_of(row), name=name, arguments=json_text({} if given is None else given, "arguments"))


def _paired(messages: list[Message]) -> list[Message]:
    """Calls and results under one id each, where as many results as calls leave no doubt which belong together."""
    taken: set[str] = set()
    paired = list(messages)
    for first, message in enumerate(messages, 1):
        if not message.calls:
            continue
        last = first
        while last < len(messages) and messages[last].role == "tool":
            last += 1
        calls, answers = message.calls, messages[first:last]
        is_whole = len(answers) == len(calls)
        if is_whole:
            pairs = zip(calls, answers, strict=True)
            calls = tuple(call if call.id else msgspec.structs.replace(call, id=one.call_id) for call, one in pairs)
        calls = name_calls(calls, taken)
        paired[first - 1] = msgspec.structs.replace(message, calls=calls)
        waiting = [call.id for call in calls if all(answer.call_id != call.id for answer in answers)]
        if is_whole and sum(not one.call_id for one in answers) == len(waiting):
            for place, answer in enumerate(answers, first):
                if not answer.call_id:
                    paired[place] = msgspec.structs.replace(answer, call_id=waiting.pop(0))
    return paired


def read_rollout(row: dict[str, Any], query: str) -> list[Message]:
    """The calls of a row, in order, behind its prompt or query. Raises ArenaError V2097."""
    prompt = list(as_list(row.get("messages"), "messages")) or ([{"role": "user", "content": query}] if query else [])
    calls = [as_object(call, "a call") for call in as_list(row["output_tools"], "output_tools")]
    return read_messages([*prompt, *({"role": "assistant", "tool_calls": [call]} for call in calls)])


def rollout_facts(row: dict[str, Any], facts: TraceFacts) -> TraceFacts:
    """The facts with what such a row says of its end. Raises ArenaError V2097."""
    ids = row.get("recommended_product_ids")
    if isinstance(ids, str):
        ids = [one.strip() for one in ids.split(",") if one.strip()]
    if ids is not None and not (isinstance(ids, list) and all(isinstance(one, str) for one in ids)):
        raise broken("recommended_product_ids", "text or a list of text", ids)
    recommended = facts.recommended if ids is None else tuple(ids)
    stop = "terminated" if row.get("terminated") is True else facts.stop
    return msgspec.structs.replace(facts, recommended=recommended, stop=stop)


_OBSERVED = re.compile(r"(<obs>.*?</obs>)", re.DOTALL)


def is_react(text: str) -> bool:
    """Whether a text has a tag that ReAct alone uses, or calls as a list."""
    return "<obs>" in text or re.search(r"<tool_call>\s*\[", text) is not None


def read_text(text: str, query: str) -> list[Message]:
    """The conversation of one text, its query in front where there is one. Raises ArenaError V2097 as `lift`."""
    messages = [Message(role="user", content=query)] if query else []
    for part in _OBSERVED.split(text):
        if part.strip():
            messages.append(Message(role="user" if part.startswith("<obs>") else "assistant", content=part))
    return lift(messages)


_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
_CHATML_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}
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
        if text[end : turn.start()].strip() or turn.group(1) not in _CHATML_ROLES:
            raise ArenaError("V2097", f"text outside of turns, or a turn of {turn.group(1)!r}")
        role, content, end = _CHATML_ROLES[turn.group(1)], turn.group(2), turn.end()
        if role == "system" and _TOOLS_HEAD in content:
            content, tools = _split_tools(content)
        if content or role != "system":
            messages.append(Message(role=role, content=content))
    if not messages or text[end:].strip():
        raise ArenaError("V2097", "not ChatML to its end")
    return lift(messages), tools


def _split_tools(content: str) -> tuple[str, str]:
    """A system text without the tools in it, and these as a JSON array."""
    before, _, after = content.partition(_TOOLS_HEAD)
    lines, end, rest = after.partition(_TOOLS_TAIL)
    tools = "[" + ",".join(line for line in lines.split("\n") if line.strip()) + "]"
    if not end:
        raise ArenaError("V2097", "the tools of the system text have no end")
    decoded(tools, "the tools of the system text")
    return "\n\n".join(part for part in (before.strip(), rest.strip()) if part), tools


def read_dialogue(value: object, query: str = "") -> list[Message]:
    """The conversation of a list of steps. `query`: from the envelope. Raises ArenaError V2097 for a broken step."""
    steps = [as_object(step, f"step {number}") for number, step in enumerate(as_list(value, "dialogue"), 1)]
    if not steps:
        raise ArenaError("V2097", "a dialogue without steps")
    for number, step in enumerate(steps, 1):
        told = as_object(step.get("extra_info") or {}, f"step {number}").get("query")
        query = query or as_text(told, "query")
    messages = [Message(role="user", content=query)] if query else []
    taken: set[str] = set()
    for number, step in enumerate(steps, 1):
        messages += _turn(step.get("completion"), f"step {number}", taken)
    return messages


def _turn(completion: object, place: str, taken: set[str]) -> Iterator[Message]:
    """The assistant's turn of a step, then the results of its calls: beside each (`result`), or in `obs` by its id."""
    fields = as_object(completion, f"{place}, completion")
    message = as_object(fields.get("message") or {}, f"{place}, message")
    reasoning = as_text(fields.get("reasoning_content"), f"{place}, reasoning_content")
    if any(message.get(key) for key in ("think", "tool_call", "response")):
        think, content = (as_text(message.get(key), f"{place}, {key}") for key in ("think", "response"))
        rows = [as_object(row, f"{place}, tool call") for row in as_calls(message.get("tool_call"), place)]
        calls = _told_apart([_call(row, place) for row in rows])
    else:
        said = read_turn(as_text(fields.get("content"), f"{place}, content"))
        think, content, calls, rows = said.reasoning, said.content, said.calls, [dict[str, Any]() for _ in said.calls]
    thinking = "\n\n".join(dict.fromkeys(part for part in (reasoning, think) if part))
    named = name_calls(calls, taken)
    yield Message(role="assistant", content=content, reasoning=thinking, calls=named)
    seen = [as_object(item, f"{place}, obs") for item in as_list(message.get("obs"), f"{place}, obs")]
    for row, call in zip(rows, named, strict=True):
        own = next((item for item in seen if _id_of(item) == call.id.partition("#")[0]), None)
        if own is not None:
            seen.remove(own)
        result = _first(row if own is None else own, ("result", "results"))
        if result is not None or own is not None:
            yield Message(role="tool", content=_result(result, f"{place}, result"), call_id=call.id)
    if seen:
        raise ArenaError("V2097", f"{place}: a result of {_id_of(seen[0])!r}, which is no call of the step")


def _told_apart(calls: Sequence[Call]) -> tuple[Call, ...]:
    """The calls of a step, whose ids are hashes of name and parameters: equal ones are numbered."""
    counts: Counter[str] = Counter()
    apart = []
    for call in calls:
        counts[call.id] += 1
        number = f"#{counts[call.id]}" if call.id and counts[call.id] > 1 else ""
        apart.append(msgspec.structs.replace(call, id=f"{call.id}{number}"))
    return tuple(apart)
