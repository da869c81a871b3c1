"""A row of an export as a trace.

Promise: pure; a row read from the log and the same row read from the Parquet view give one trace. Who emitted a call is
what the host recorded (`harness/EMISSION.md`), and a turn or result that model and host did not make is marked. Calls
that the agent's Python made are in no message, and so in no trace; `is_agentic` tells of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from arena.export.conversation import ChatCall, ChatMessage, ExecutedCall
from foundation.errors import ArenaError
from harness.trace import Emitter
from problems.model import Bucket, Pool
from training.corpus.convert.spoken import is_spoken, lift
from training.corpus.model import Call, Message, Role, Trace, TraceFacts, TraceSource
from training.corpus.sources.assembly import assemble_trace

_ROLES: dict[str, Role] = {role: role for role in get_args(Role)} | {"developer": "system"}
_TEXT_CALL = "text-"  # ids the host gives to calls written as text


class RowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of an export that a trace is made from; their meaning is FORMATS.md's."""

    validator: str
    seq: int
    content_sha256: str
    recorded_day: str
    race_id: str
    suite: str
    problem_id: str
    pool: Pool
    cluster_id: str
    bucket: Bucket
    query: str
    agent_version_id: str
    miner_hotkey: str
    policy_sha256: str
    tool_profile: str
    stop: str
    recommended: str | None
    is_agentic: bool
    is_linear: bool
    is_model_written: bool
    is_success: bool | None
    reward_e4: int | None
    coefficient_e4: int | None


ROW_FACTS = tuple(field.name for field in msgspec.structs.fields(RowFacts))


def row_place(facts: RowFacts) -> str:
    """Where a row stands: log and number."""
    return f"{facts.validator}:{facts.seq}"


def trace_of_row(
    facts: RowFacts,
    messages: Sequence[ChatMessage],
    calls: Sequence[ExecutedCall],
    tools: str,
    *,
    is_verified: bool,
) -> Trace:
    """The trace of a row. Raises ArenaError V2097 when its conversation holds what is no message."""
    talk = [_message(chat) for chat in messages]
    if any(message.role == "assistant" and is_spoken(message.content) for message in talk):
        talk = _lifted(talk, calls)
    return assemble_trace(
        TraceSource(kind="arena", place=row_place(facts), sha256=facts.content_sha256, is_verified=is_verified),
        talk,
        tools=tools,
        query=facts.query,
        facts=_facts(facts, calls),
    )


def _facts(row: RowFacts, calls: Sequence[ExecutedCall]) -> TraceFacts:
    surfaced = dict.fromkeys(found.product_id for call in calls for found in call.surfaced)
    return TraceFacts(
        problem_id=row.problem_id,
        cluster_id=row.cluster_id or None,
        pool=row.pool,
        bucket=row.bucket,
        suite=row.suite or None,
        race_id=row.race_id or None,
        day=row.recorded_day,
        agent=row.agent_version_id,
        team=row.miner_hotkey,
        policy_sha256=row.policy_sha256,
        tool_profile=row.tool_profile,
        coefficient_e4=row.coefficient_e4,
        is_success=row.is_success,
        reward_e4=row.reward_e4,
        is_agentic=row.is_agentic,
        is_linear=row.is_linear,
        is_model_written=row.is_model_written,
        stop=row.stop,
        recommended=tuple(row.recommended.split(",")) if row.recommended else (),
        surfaced=tuple(surfaced),
    )


def _message(chat: ChatMessage) -> Message:
    if chat.role == "assistant":
        calls = (
            *_calls(chat.tool_calls, "llm"),
            *_calls(chat.echoed_tool_calls, "echoed"),
            *_calls(chat.agent_tool_calls, "code"),
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


def _calls(calls: Sequence[ChatCall], emitter: Emitter) -> list[Call]:
    return [
        Call(id=call.id, name=call.function.name, arguments=call.function.arguments, emitter=emitter) for call in calls
    ]


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
