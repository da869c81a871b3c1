"""SN15 dialogue steps: a bare list, or the envelope of one problem around it.

Promise: pure. A step is an assistant turn and the results of its calls; `message` is read, and the tagged `content`
only where there is no message. Ids are the step's own; calls of one step that share one (SN15 hashes name and
parameters) are told apart by `#<n>`. Shapes: docs/benchmark.md#traces-met-elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from foundation.errors import ArenaError
from harness.chat import Call, Message
from training.corpus.convert.spoken import name_calls, read_turn
from training.corpus.convert.values import as_list, as_object, as_text, json_text


def read_dialogue(value: object, query: str = "") -> list[Message]:
    """The conversation of a list of steps. `query`: from the envelope. Raises ArenaError V2097 for a broken step."""
    steps = [as_object(step, f"step {number}") for number, step in enumerate(as_list(value, "dialogue"), 1)]
    if not steps:
        raise ArenaError("V2097", "a dialogue without steps")
    for number, step in enumerate(steps, 1):
        query = query or as_text(as_object(step.get("extra_info") or {}, f"step {number}").get("query"), "query")
    messages = [Message(role="user", content=query)] if query else []
    taken: set[str] = set()
    for number, step in enumerate(steps, 1):
        messages += _turn(as_object(step.get("completion"), f"step {number}, completion"), f"step {number}", taken)
    return messages


def _turn(completion: dict[str, Any], place: str, taken: set[str]) -> Iterator[Message]:
    """The assistant's turn of a step, then the results of its calls."""
    message = as_object(completion.get("message") or {}, f"{place}, message")
    reasoning = as_text(completion.get("reasoning_content"), f"{place}, reasoning_content")
    if not message:
        said = read_turn(as_text(completion.get("content"), f"{place}, content"))
        thinking = "\n\n".join(part for part in (reasoning, said.reasoning) if part)
        yield Message(role="assistant", content=said.content, reasoning=thinking, calls=name_calls(said.calls, taken))
        return
    think = as_text(message.get("think"), f"{place}, think")
    rows = [as_object(row, f"{place}, tool call") for row in as_list(message.get("tool_call"), f"{place}, tool_call")]
    written: list[Call] = []
    for row in rows:
        name = as_text(row.get("name"), f"{place}, name")
        if not name:
            raise ArenaError("V2097", f"{place}: a tool call has no name")
        given: object = next((row[key] for key in ("parameters", "arguments") if row.get(key) is not None), {})
        own_id = as_text(row.get("tool_call_id"), f"{place}, tool_call_id")
        same = sum(call.id.partition("#")[0] == own_id for call in written)
        own_id = f"{own_id}#{same + 1}" if own_id and same else own_id
        written.append(Call(id=own_id, name=name, arguments=json_text(given, f"{place}, parameters")))
    calls = name_calls(written, taken)
    yield Message(
        role="assistant",
        content=as_text(message.get("response"), f"{place}, response"),
        reasoning="\n\n".join(dict.fromkeys(part for part in (reasoning, think) if part)),
        calls=calls,
    )
    for row, call in zip(rows, calls, strict=True):
        if "result" in row:
            yield Message(role="tool", content=json_text(row["result"], f"{place}, result"), call_id=call.id)
