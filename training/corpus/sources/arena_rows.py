"""A row of an export as a trace.

Pure; a row read from the log and the same row read from the Parquet view give one trace. Who emitted a call is
what the host recorded (`harness/EMISSION.md`), and a turn or result that model and host did not make is marked. Calls
that the agent's Python made are in no message, and so in no trace; `is_agentic` tells of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arena.export.conversation import Conversation, ExecutedCall
from foundation.errors import ArenaError
from harness.chat import ChatMessage, Message, calls_of_chat
from harness.trace import Emitter
from training.corpus.convert.spoken import is_spoken, lift
from training.corpus.filter.gates import is_paired
from training.corpus.model import EXPORTED_FACTS, Rebuilt, Trace, TraceFacts, TraceSource
from training.corpus.sources.assembly import assemble_trace
from training.corpus.sources.rebuilding import ROLES, TEXT_CALL, rebuild

ROW_FACTS = (*EXPORTED_FACTS, "recommended", "validator", "seq", "content_sha256", "query")  # read of an export's row


def row_place(row: Mapping[str, Any]) -> str:
    """Where a row stands: log and number."""
    return f"{row['validator']}:{row['seq']}"


def trace_of_row(row: Mapping[str, Any], talk: Conversation, tools: str, *, is_verified: bool) -> Trace:
    """The trace of a row, whose `ROW_FACTS` are given by name (FORMATS.md says what they mean).

    Raises ArenaError V2097 when its conversation holds what is no message.
    """
    messages, made = _conversation(talk, row, tools)
    facts = {fact: row[name] for name, fact in EXPORTED_FACTS.items()}
    for name in ("cluster_id", "suite"):
        facts[name] = facts[name] or None
    facts["recommended"] = row["recommended"].split(",") if row["recommended"] else ()
    facts["surfaced"] = tuple(dict.fromkeys(found.product_id for call in talk.calls for found in call.surfaced))
    return assemble_trace(
        TraceSource(kind="arena", place=row_place(row), sha256=row["content_sha256"], is_verified=is_verified),
        messages,
        tools=tools,
        query=row["query"],
        facts=msgspec.convert(facts, TraceFacts),
        rebuilt=made,
    )


def _conversation(
    talk: Conversation, row: Mapping[str, Any], tools: str
) -> tuple[Sequence[Message], Rebuilt | msgspec.UnsetType]:
    """The messages of a row: what the model was sent and wrote, where that is the whole episode in order and its calls
    can be read there; else the episode rebuilt from its events, where that is one conversation."""
    sent = [_message(chat) for chat in talk.messages]
    is_text = any(message.role == "assistant" and is_spoken(message.content) for message in sent)
    lifted = _lifted(sent, talk.calls) if is_text else sent
    if row["is_linear"] and lifted is not None:
        if sum(len(message.calls) for message in lifted) == sum(len(message.calls) for message in sent):
            return lifted, msgspec.UNSET
        if is_paired(lifted):
            return lifted, Rebuilt(how=("text_calls",))
    return rebuild(talk, row["query"], tools) or (lifted or sent, msgspec.UNSET)


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
    role = ROLES.get(chat.role)
    if role is None:
        raise ArenaError("V2097", f"a message of role {chat.role!r}")
    return Message(role=role, content=chat.content, call_id=chat.tool_call_id, is_model=chat.origin is None)


def _lifted(talk: Sequence[Message], calls: Sequence[ExecutedCall]) -> list[Message] | None:
    """Calls that the model wrote as text as calls, each with the emitter the host recorded for the next text call of
    that name; one that the host never executed is the model's. What is no call stays text."""
    try:
        messages = lift(talk)
    except ArenaError:
        return None
    waiting = [call for call in calls if call.call_id.startswith(TEXT_CALL) or call.emitter == "echoed"]
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
