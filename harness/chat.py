"""Messages and tool calls: the one family of values between the record and a row that is trained on.

Values only. `Message` and `Call` are what is filtered, rendered and trained on. `ChatMessage`, `ChatCall` and
`Function` are the same in OpenAI's chat form, whose JSON stands in views and corpora: `chat_of` and `message_of` lead
there and back, and `chat_row` to the plain objects that templates, endpoints and other people's rows take.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

import msgspec

from foundation.errors import ArenaError
from harness.trace import Emitter

Role = Literal["system", "user", "assistant", "tool"]
Origin = Literal["agent", "code", "echoed"]
ROLES: tuple[Role, ...] = get_args(Role)
ROLE_OF: dict[str, Role] = {**{role: role for role in ROLES}, "developer": "system"}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of an assistant turn. `arguments` is JSON text as it was written; `emitter` None: not recorded."""

    id: str
    name: str
    arguments: str
    emitter: Emitter | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. `is_model` False marks an assistant turn or a result the model and the host did not make."""

    role: Role
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""  # of a tool message: the call it answers
    is_model: bool = True


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """Name and arguments of a call. `arguments` is the text as it was written, JSON or not."""

    name: str
    arguments: str


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of an assistant turn. `emitter` stands in a corpus alone, where one was recorded."""

    id: str
    type: Literal["function"] = "function"
    function: Function
    emitter: Emitter | msgspec.UnsetType | None = msgspec.UNSET


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. The fields after `tool_call_id` are ours and stand only where something departs from plain chat."""

    role: str  # system, user, assistant or tool; "unknown" where the record holds no message
    content: str
    reasoning_content: str = ""
    tool_calls: tuple[ChatCall, ...] = ()
    tool_call_id: str = ""
    origin: Origin | None = None
    weight: int | None = None  # 0: not to be trained on, as in OpenAI's fine-tuning format
    echoed_tool_calls: tuple[ChatCall, ...] = ()
    agent_tool_calls: tuple[ChatCall, ...] = ()


def chat_of(message: Message) -> ChatMessage:
    """A message in chat form, emitters included. Weight 0 is what model and host did not make."""
    return ChatMessage(
        role=message.role,
        content=message.content,
        reasoning_content=message.reasoning,
        tool_calls=tuple(
            ChatCall(
                id=call.id,
                function=Function(name=call.name, arguments=call.arguments),
                emitter=msgspec.UNSET if call.emitter is None else call.emitter,
            )
            for call in message.calls
        ),
        tool_call_id=message.call_id,
        weight=None if message.is_model else 0,
    )


def message_of(chat: ChatMessage, emitter: Emitter | None = None) -> Message:
    """The message of `chat_of`, or of a view. `emitter`: of plain calls that name none, which a view knows by where
    they stand. Raises ArenaError V2097 for a role that no message has."""
    role = ROLE_OF.get(chat.role)
    if role is None:
        raise ArenaError("V2097", f"a message of role {chat.role!r}")
    placed: tuple[tuple[Emitter | None, tuple[ChatCall, ...]], ...] = (
        (emitter, chat.tool_calls),
        ("echoed", chat.echoed_tool_calls),
        ("code", chat.agent_tool_calls),
    )
    return Message(
        role=role,
        content=chat.content,
        reasoning=chat.reasoning_content,
        calls=tuple(
            Call(
                id=call.id,
                name=call.function.name,
                arguments=call.function.arguments,
                emitter=by if call.emitter is msgspec.UNSET else call.emitter,
            )
            for by, calls in placed
            for call in calls
        ),
        call_id=chat.tool_call_id,
        is_model=chat.weight is None and chat.origin is None,
    )


_ENVELOPE = ("type", "function", "name", "description", "parameters")


def served_tools(tools: str) -> str:
    """A `tools` array, JSON text, its keys in the order in which a served model reads them: that of views and corpora.

    The harness sends sorted keys upstream; vLLM's chat endpoint puts the fields of its own types in their order again
    (`ChatCompletionToolsParam`, `FunctionDefinition`), and the parameters stay sorted. A row rendered in another order
    would have another prompt than every episode. Raises ValueError when `tools` is no JSON array.
    """
    decoded = msgspec.json.decode(tools)
    if not isinstance(decoded, list):
        raise ValueError("tools are not a JSON array")
    return msgspec.json.encode([_in_order(tool, _ENVELOPE) for tool in decoded]).decode()


def _in_order(value: Any, first: Sequence[str]) -> Any:
    """`value` with the keys of `first` before the others, which are sorted, and all keys below `parameters` sorted."""
    if isinstance(value, list):
        return [_in_order(item, first) for item in value]
    if not isinstance(value, dict):
        return value
    keys = [key for key in first if key in value] + sorted(key for key in value if key not in first)
    return {key: _in_order(value[key], () if key == "parameters" else first) for key in keys}


def served_message(message: Message) -> Message:
    """A message whose calls are spaced as a served model reads them in earlier turns: vLLM decodes their arguments
    (`_postprocess_messages`), and the template's `tojson` writes them anew. Text that is no JSON stays."""
    calls: list[Call] = []
    for call in message.calls:
        with suppress(ValueError, RecursionError):
            written = json.dumps(json.loads(call.arguments), ensure_ascii=False)
            written.encode()  # half a character, escaped, has no text
            call = msgspec.structs.replace(call, arguments=written)
        calls.append(call)
    return msgspec.structs.replace(message, calls=tuple(calls)) if calls else message


def chat_row(message: Message) -> dict[str, Any]:
    """A message as a plain object: no emitters, and a tool's message always says which call it answers."""
    row: dict[str, Any] = msgspec.to_builtins(chat_of(message))
    row.pop("weight", None)
    for call in row.get("tool_calls", ()):
        call.pop("emitter", None)
    if message.role == "tool":
        row.setdefault("tool_call_id", "")
    return row
