"""A row of an export as a trace.

Promise: pure; a row read from the log and the same row read from the Parquet view give one trace. Who emitted a call is
what the host recorded (`harness/EMISSION.md`), and a turn or result that model and host did not make is marked. Calls
that the agent's Python made are in no message, and so in no trace; `is_agentic` tells of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from arena.export.conversation import ExecutedCall
from foundation.errors import ArenaError
from harness.chat import ChatMessage, calls_of_chat
from harness.trace import Emitter
from training.corpus.convert.spoken import is_spoken, lift
from training.corpus.model import EXPORTED_FACTS, Message, Role, Trace, TraceFacts, TraceSource
from training.corpus.sources.assembly import assemble_trace

_ROLES: dict[str, Role] = {role: role for role in get_args(Role)} | {"developer": "system"}
_TEXT_CALL = "text-"  # ids the host gives to calls written as text


ROW_FACTS = (*EXPORTED_FACTS, "recommended", "validator", "seq", "content_sha256", "query")  # read of an export's row


def row_place(row: Mapping[str, Any]) -> str:
    """Where a row stands: log and number."""
    return f"{row['validator']}:{row['seq']}"


def trace_of_row(
    row: Mapping[str, Any],
    messages: Sequence[ChatMessage],
    calls: Sequence[ExecutedCall],
    tools: str,
    *,
    is_verified: bool,
) -> Trace:
    """The trace of a row, whose `ROW_FACTS` are given by name (FORMATS.md says what they mean).

    Raises ArenaError V2097 when its conversation holds what is no message.
    """
    talk = [_message(chat) for chat in messages]
    if any(message.role == "assistant" and is_spoken(message.content) for message in talk):
        talk = _lifted(talk, calls)
    facts = {fact: row[name] for name, fact in EXPORTED_FACTS.items()}
    for name in ("cluster_id", "suite"):
        facts[name] = facts[name] or None
    facts["recommended"] = row["recommended"].split(",") if row["recommended"] else ()
    facts["surfaced"] = tuple(dict.fromkeys(found.product_id for call in calls for found in call.surfaced))
    return assemble_trace(
        TraceSource(kind="arena", place=row_place(row), sha256=row["content_sha256"], is_verified=is_verified),
        talk,
        tools=tools,
        query=row["query"],
        facts=msgspec.convert(facts, TraceFacts),
    )


def _message(chat: ChatMessage) -> Message:
    if chat.role == "assistant":
        calls = (
            *calls_of_chat(chat.tool_calls, "llm"),
            *calls_of_chat(chat.echoed_tool_calls, "echoed"),
            *calls_of_chat(chat.agent_tool_calls, "code"),
        )
        return Message(
            role="assistant",
            content=chat.content,
            reasoning=chat.reasoning_content,
            calls=calls,
            is_model=chat.origin is None,
        )
    role = _ROLES.get(chat.role)
    if role is None:
        raise ArenaError("V2097", f"a message of role {chat.role!r}")
    return Message(role=role, content=chat.content, call_id=chat.tool_call_id, is_model=chat.origin is None)


def _lifted(talk: Sequence[Message], calls: Sequence[ExecutedCall]) -> list[Message]:
    """Calls that the model wrote as text as calls, each with the emitter the host recorded for the next text call of
    that name; one that the host never executed is the model's. What is no call stays text."""
    try:
        messages = lift(talk)
    except ArenaError:
        return list(talk)
    waiting = [call for call in calls if call.call_id.startswith(_TEXT_CALL) or call.emitter == "echoed"]
    results: dict[str, str | None] = {}
    attributed: list[Message] = []
    for message in messages:
        if message.calls and all(call.emitter is None for call in message.calls):
            own = []
            for call in message.calls:
                match = next((one for one in waiting if one.name == call.name), None)
                if match is not None:
                    waiting.remove(match)
                    results[call.id] = match.result
                emitter: Emitter = match.emitter if match is not None and message.is_model else "llm"
                own.append(msgspec.structs.replace(call, emitter=emitter if message.is_model else "code"))
            message = msgspec.structs.replace(message, calls=tuple(own))
        elif message.role == "tool" and message.call_id in results:
            is_model = "".join((results[message.call_id] or "").split()) == "".join(message.content.split())
            message = msgspec.structs.replace(message, is_model=is_model)
        attributed.append(message)
    return attributed
