"""SN15 dialogue steps: a bare list, or the envelope of one problem around it.

Pure. A step is an assistant turn and the results of its calls; `message` is read, and the tagged `content`
only where there is no message. Results stand in the calls (SN15) or beside them under `obs` (upstream's rollouts). Ids
are the step's own; calls of one step that share one (SN15 hashes name and parameters) are told apart by `#<n>`. Shapes:
docs/benchmark.md#traces-met-elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from foundation.errors import ArenaError
from harness.chat import Call, Message
from training.corpus.convert.openai import as_calls
from training.corpus.convert.spoken import name_calls, read_turn
from training.corpus.convert.values import as_id, as_list, as_object, as_text, decoded, json_text

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
