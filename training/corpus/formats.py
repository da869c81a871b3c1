"""The formats of foreign conversations: chat rows, hosted rollouts, ReAct text, Hermes and Qwen text, SN15 steps.

Pure; names, ids and arguments are kept as they were written, an arguments object becomes JSON text. Roles and fields
are read under the names that OpenAI, Anthropic, LangChain and ShareGPT have for them. Results without ids are those of
the calls right before them, as many and in their order; calls without ids take those of such results. Calls and results
that stand in text are lifted (`spoken`). What can't be read is refused with ArenaError V2097. Shapes:
docs/benchmark.md#traces-met-elsewhere.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from foundation.errors import ArenaError
from harness.chat import ROLES, Call, Message, Role
from harness.trace import Emitter
from training.corpus.model import NO_TOOLS, TraceFacts
from training.corpus.spoken import lift, name_calls, read_turn
from training.corpus.values import as_id, as_list, as_object, as_text, broken, decoded, json_text

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


def read_rollout(row: dict[str, Any], query: str) -> list[Message]:
    """The calls of a row, in order, behind its prompt or query. Raises ArenaError V2097."""
    prompt = list(as_list(row.get("messages"), "messages")) or ([{"role": "user", "content": query}] if query else [])
    calls = [
        as_object(call, f"call {number}") for number, call in enumerate(as_list(row["output_tools"], "output_tools"))
    ]
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


_SAID = ("think", "tool_call", "tool_calls", "response")
_SEEN = ("obs", "observation", "observations", "tool_results")
_RESULTS = ("result", "results", "obs", "observation", "output")
_IDS = ("tool_call_id", "id", "call_id")
_ARGUMENTS = ("parameters", "arguments", "args")
_NOTHING: object = object()


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
        messages += _turn(step.get("completion"), step, f"step {number}", taken)
    return messages


def _turn(completion: object, step: dict[str, Any], place: str, taken: set[str]) -> Iterator[Message]:
    """The assistant's turn of a step, then the results of its calls."""
    fields = {"content": completion} if isinstance(completion, str) else as_object(completion, f"{place}, completion")
    message = fields.get("message") or {}
    if isinstance(message, str):
        fields, message = {"content": message} | fields, {}
    message = as_object(message, f"{place}, message")
    reasoning = as_text(fields.get("reasoning_content"), f"{place}, reasoning_content")
    seen = next((one[key] for one in (message, fields, step) for key in _SEEN if one.get(key) is not None), None)
    if not any(message.get(key) for key in _SAID):
        said = read_turn(as_text(fields.get("content"), f"{place}, content"))
        thinking = "\n\n".join(part for part in (reasoning, said.reasoning) if part)
        rows, calls = [dict[str, Any]() for _ in said.calls], list(said.calls)
        content = said.content
    else:
        think = as_text(message.get("think"), f"{place}, think")
        thinking = "\n\n".join(dict.fromkeys(part for part in (reasoning, think) if part))
        given = next((message[key] for key in ("tool_call", "tool_calls") if message.get(key)), None)
        rows = [as_object(row, f"{place}, tool call") for row in as_calls(given, place)]
        calls = _calls(rows, place)
        content = as_text(message.get("response"), f"{place}, response")
    named = name_calls(calls, taken)
    yield Message(role="assistant", content=content, reasoning=thinking, calls=named)
    answers = _answers(seen, calls, place)
    for row, call, answer in zip(rows, named, answers, strict=True):
        own = next((row[key] for key in _RESULTS if key in row), answer)
        if own is not _NOTHING:
            yield Message(role="tool", content=json_text(own, f"{place}, result"), call_id=call.id)


def _calls(rows: list[dict[str, Any]], place: str) -> list[Call]:
    """The calls of a step; equal ids are told apart."""
    written: list[Call] = []
    for row in rows:
        inner = row["function"] if isinstance(row.get("function"), dict) else row
        name = as_text(inner.get("name"), f"{place}, name")
        if not name:
            raise ArenaError("V2097", f"{place}: a tool call has no name")
        given: object = next((inner[key] for key in _ARGUMENTS if inner.get(key) is not None), {})
        own_id = as_id(next((row[key] for key in _IDS if row.get(key) is not None), None), f"{place}, tool_call_id")
        same = sum(call.id.partition("#")[0] == own_id for call in written)
        own_id = f"{own_id}#{same + 1}" if own_id and same else own_id
        written.append(Call(id=own_id, name=name, arguments=json_text(given, f"{place}, parameters")))
    return written


def _answers(seen: object, calls: list[Call], place: str) -> list[object]:
    """What stands beside a step's calls as their results (`obs`), one a call: by the ids that the results name, which a
    call that was never run does not have; else in their order, where they are as many. Raises ArenaError V2097 where
    they can't be told apart."""
    answers: list[object] = [_NOTHING] * len(calls)
    if seen is None or seen in ([], {}, ""):
        return answers
    if isinstance(seen, str) and seen.strip()[:1] in ("[", "{"):
        with contextlib.suppress(ArenaError):  # text that begins with a bracket
            seen = decoded(seen, place)
    items: list[Any] = seen if isinstance(seen, list) else [seen]
    if all(isinstance(item, dict) and any(item.get(key) is not None for key in _IDS) for item in items):
        for item in items:
            own_id = as_id(next(item[key] for key in _IDS if item.get(key) is not None), place)
            own = [n for n, call in enumerate(calls) if call.id.partition("#")[0] == own_id and answers[n] is _NOTHING]
            if not own:
                raise ArenaError("V2097", f"{place}: a result of {own_id!r}, which is no call of the step")
            inner = [item[key] for key in _RESULTS if key in item]
            answers[own[0]] = inner[0] if inner else {key: one for key, one in item.items() if key not in _IDS}
        return answers
    if len(calls) == 1:
        return [items[0] if len(items) == 1 and isinstance(items[0], list | str) else seen]
    if len(items) != len(calls):
        raise ArenaError("V2097", f"{place}: {len(items)} results without ids, of {len(calls)} calls")
    return list(items)
