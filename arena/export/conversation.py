"""The canonical conversation of a trajectory: what the model was sent and wrote, in OpenAI's chat form, and who called.

Pure and total; one body has one conversation. A turn is shown as the assistant's only when a completion of
this run wrote it, and a tool call as the assistant's only when the record says the model emitted it: calls written by
the agent's Python or read off the prompt are in `calls` with their emitter, and what is left of them in `messages` is
marked with `origin`. Which path is chosen when an agent rewrites its prompts: FORMATS.md, "The conversation".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec
import orjson

from harness.chat import ChatCall, ChatMessage, Function, Origin
from harness.emission.call_reader import CallReader
from harness.tools.registry import PROFILES, profile_schemas
from harness.trace import Completion, EmittedCall, Emitter, EvaluationBody, Surfaced, ToolCall

_AGENT: Origin = "agent"

_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
TEXT_CALL = "text-"  # ids that the host gives to calls written as text: they are in the content


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One completion. `request` and `reply` are indexes into `messages` followed by `other_messages`."""

    step: int
    model: str
    request: tuple[int, ...]
    request_sha256: str
    reply: int
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


class ExecutedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool call the host executed. Its result is in `messages[message]`, or else in `result`."""

    index: int
    step: int
    name: str
    arguments: str
    emitter: Emitter
    call_id: str = ""
    message: int | None = None
    result: str | None = None
    failure: str = ""
    surfaced: tuple[Surfaced, ...] = ()
    ignored_parameters: tuple[str, ...] = ()


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory as chat."""

    messages: tuple[ChatMessage, ...]
    other_messages: tuple[ChatMessage, ...]  # of requests and replies that are not on the path
    completions: tuple[Turn, ...]
    calls: tuple[ExecutedCall, ...]
    prompt_length: int  # messages before the first assistant turn
    is_linear: bool  # there are completions, and every request continues the one before it and its reply
    is_model_written: bool  # every call and every assistant turn of `messages` is the model's, every result the host's


class _Sent(msgspec.Struct, frozen=True):
    """A message as a request carries it."""

    role: str
    content: str
    tool_calls: tuple[ChatCall, ...] = ()
    tool_call_id: str = ""


_SENT = msgspec.json.Decoder(_Sent)
_Words = tuple[str, tuple[tuple[str, str], ...]]  # what identifies an assistant turn: its text and its calls


def converse(body: EvaluationBody) -> Conversation:
    """The conversation of a body."""
    return _ConversationReading(body).conversation()


class _ConversationReading:
    """One body while its conversation is put together. Messages are decoded once."""

    def __init__(self, body: EvaluationBody) -> None:
        self._body = body
        self._sent = [_decoded(text) for text in body.messages]
        self._turns = [event for event in body.events if isinstance(event, Completion)]
        self._calls = [event for event in body.events if isinstance(event, ToolCall)]
        self._calls_of: dict[int, list[ToolCall]] = {}
        for call in self._calls:
            self._calls_of.setdefault(call.step, []).append(call)
        self._echoed = {turn.step: self._echoed_ids(turn) for turn in self._turns}
        self._written: dict[_Words, list[int]] = {}  # turns by what they wrote, earliest first
        for number, turn in enumerate(self._turns):
            self._written.setdefault(_words(turn.content, _native(turn.calls)), []).append(number)
        self._words = [
            _words(sent.content, sent.tool_calls) if sent.role == "assistant" else None for sent in self._sent
        ]
        self._requests = [[index for index in turn.request if 0 <= index < len(self._sent)] for turn in self._turns]

    def conversation(self) -> Conversation:
        is_linear = self._is_linear()
        # the completion whose request carries most of the completions before it; of several, the last
        lengths = [] if is_linear else [len(self._recognised(number)) for number in range(len(self._turns))]
        longest = max(range(len(lengths)), key=lambda number: (lengths[number], number), default=0)
        path = len(self._turns) - 1 if is_linear else longest
        messages: list[ChatMessage] = []
        place: dict[int, int] = {}  # message index of the body -> place in messages + other_messages
        replies: dict[int, int] = {}  # turn -> place of its reply
        held: dict[int, int] = {}  # call index -> place of the message that holds its result
        if self._turns:
            messages += self._shown(path, place, replies, held)
            replies[path] = len(messages)
            messages.append(self._reply(path))
            messages += self._unsent_results(path, len(messages), held)
        others: list[ChatMessage] = []
        for number, request in enumerate(self._requests):
            for index in request:
                if index not in place:
                    place[index] = len(messages) + len(others)
                    others.append(self._other(index, number))
            if number not in replies:
                replies[number] = len(messages) + len(others)
                others.append(self._reply(number))
        first = next((index for index, message in enumerate(messages) if message.role == "assistant"), len(messages))
        return Conversation(
            messages=tuple(messages),
            other_messages=tuple(others),
            completions=tuple(
                Turn(
                    step=turn.step,
                    model=turn.model,
                    request=tuple(place[index] for index in request),
                    request_sha256=turn.request_sha256,
                    reply=replies[number],
                    finish_reason=turn.finish_reason,
                    prompt_tokens=turn.prompt_tokens,
                    completion_tokens=turn.completion_tokens,
                )
                for number, (turn, request) in enumerate(zip(self._turns, self._requests, strict=True))
            ),
            calls=tuple(
                ExecutedCall(
                    index=call.index,
                    step=call.step,
                    name=call.name,
                    arguments=call.arguments,
                    emitter=call.emitter,
                    call_id=call.emitted_call_id,
                    message=held.get(call.index),
                    result=call.result if call.index not in held else None,
                    failure=call.failure.code if call.failure is not None else "",
                    surfaced=call.surfaced,
                    ignored_parameters=call.ignored_parameters,
                )
                for call in self._calls
            ),
            prompt_length=first,
            is_linear=is_linear,
            is_model_written=bool(messages)
            and all(message.origin is None and not message.echoed_tool_calls for message in messages)
            and all(call.emitter == "llm" for call in self._calls),
        )

    # -- which path

    def _is_linear(self) -> bool:
        if not self._turns:
            return False
        for number, (before, after) in enumerate(zip(self._requests, self._requests[1:], strict=False)):
            length = len(before)
            if after[:length] != before or len(after) == length:
                return False
            if number not in self._written.get(self._words[after[length]] or ("", ()), ()):
                return False
        return True

    def _recognised(self, number: int) -> dict[int, int]:
        """Positions in a request of assistant turns that earlier completions wrote, in order -> which turn."""
        found: dict[int, int] = {}
        latest = -1
        for position, index in enumerate(self._requests[number]):
            words = self._words[index]
            if words is None:
                continue
            writer = next((turn for turn in self._written.get(words, ()) if latest < turn < number), None)
            if writer is not None:
                found[position] = latest = writer
        return found

    # -- what its messages are

    def _shown(
        self, path: int, place: dict[int, int], replies: dict[int, int], held: dict[int, int]
    ) -> Iterable[ChatMessage]:
        """The request of the path's last completion, with the replies in it as they were recorded."""
        writers = self._recognised(path)
        turn: Completion | None = None
        renamed: dict[str, str] = {}  # ids that the agent gave to the model's calls -> the model's own
        for position, index in enumerate(self._requests[path]):
            sent = self._sent[index]
            place.setdefault(index, position)
            if position in writers:
                turn = self._turns[writers[position]]
                replies[writers[position]] = position
                renamed = {
                    call.id: own.call_id
                    for call, own in zip(sent.tool_calls, (c for c in turn.calls if _is_native(c)), strict=False)
                }
                yield self._reply(writers[position])
            elif sent.role == "assistant":
                turn, renamed = None, {}
                yield _not_written(sent)
            elif sent.role == "tool":
                yield self._result(sent, turn, renamed, position, held)
            else:
                yield ChatMessage(role=sent.role, content=sent.content)

    def _reply(self, number: int) -> ChatMessage:
        turn = self._turns[number]
        echoed = self._echoed[turn.step]
        return ChatMessage(
            role="assistant",
            content=turn.content,
            reasoning_content=turn.reasoning,
            tool_calls=tuple(call for call in _native(turn.calls) if call.id not in echoed),
            echoed_tool_calls=tuple(call for call in _native(turn.calls) if call.id in echoed) if echoed else (),
        )

    def _result(
        self, sent: _Sent, turn: Completion | None, renamed: dict[str, str], position: int, held: dict[int, int]
    ) -> ChatMessage:
        """A tool message, with where its content comes from unless it is what the host answered to the model's call."""
        call_id = renamed.get(sent.tool_call_id, sent.tool_call_id)
        calls = self._calls_of.get(turn.step, ()) if turn is not None else ()
        own = next((call for call in calls if call.emitter == "llm" and call.emitted_call_id == call_id), None)
        if own is None or not _is_same_text(sent.content, own.result):
            matching = (call for call in calls if call.emitter != "llm" and _is_same_text(sent.content, call.result))
            own, origin = next(matching, None), _AGENT
            if own is not None and own.emitter != "llm":
                origin = own.emitter
        else:
            origin = None
        if own is not None and own.result == sent.content:
            held.setdefault(own.index, position)
        return ChatMessage(role="tool", content=sent.content, tool_call_id=call_id, origin=origin)

    def _unsent_results(self, path: int, length: int, held: dict[int, int]) -> list[ChatMessage]:
        """What the host answered to the last reply's native calls, which no later request of the path carries."""
        turn = self._turns[path]
        native = {call.call_id for call in turn.calls if _is_native(call)}
        results: list[ChatMessage] = []
        for call in self._calls_of.get(turn.step, ()):
            if call.emitter == "llm" and call.emitted_call_id in native:
                held.setdefault(call.index, length + len(results))
                results.append(ChatMessage(role="tool", content=call.result, tool_call_id=call.emitted_call_id))
        return results

    def _other(self, index: int, number: int) -> ChatMessage:
        """A message of a request that is not on the path, sent with completion `number` at first."""
        sent = self._sent[index]
        words = self._words[index]
        if words is None:
            return ChatMessage(role=sent.role, content=sent.content, tool_call_id=sent.tool_call_id)
        writer = next((turn for turn in self._written.get(words, ()) if turn < number), None)
        if writer is None:
            return _not_written(sent)
        turn = self._turns[writer]
        echoed = self._echoed[turn.step]
        pairs = list(zip(sent.tool_calls, _native(turn.calls), strict=False))
        return ChatMessage(
            role="assistant",
            content=sent.content,
            tool_calls=tuple(call for call, own in pairs if own.id not in echoed),
            echoed_tool_calls=tuple(call for call, own in pairs if own.id in echoed),
        )

    def _echoed_ids(self, turn: Completion) -> frozenset[str]:
        """Ids of a turn's native calls that were dispatched as `echoed`, matched in order as the emission rule does."""
        calls = self._calls_of.get(turn.step, ())
        if not any(call.emitter == "echoed" for call in calls):
            return frozenset()
        reader = CallReader(profile_schemas(self._body.tool_profile) if self._body.tool_profile in PROFILES else "[]")
        left = [(reader.accepted(call.name, call.arguments), call.call_id) for call in turn.calls if _is_native(call)]
        found = set()
        for call in calls:
            key = reader.key(call.name, call.arguments)
            match = next((one for one in left if key in one[0]), None)
            if match is not None:
                left.remove(match)
                if call.emitter == "echoed":
                    found.add(match[1])
        return frozenset(found)


def _decoded(text: str) -> _Sent:
    try:
        return _SENT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _Sent("unknown", text)


def _is_native(call: EmittedCall) -> bool:
    return not call.call_id.startswith(TEXT_CALL)


def _native(calls: Sequence[EmittedCall]) -> tuple[ChatCall, ...]:
    return tuple(
        ChatCall(id=call.call_id, function=Function(name=call.name, arguments=call.arguments))
        for call in calls
        if _is_native(call)
    )


def _not_written(sent: _Sent) -> ChatMessage:
    """An assistant turn that no completion of this run wrote."""
    return ChatMessage(
        role="assistant", content=sent.content, origin=_AGENT, weight=0, agent_tool_calls=sent.tool_calls
    )


def _words(content: str, calls: Sequence[ChatCall]) -> _Words:
    """What is compared when a turn is sent back: agents drop thinking, and write arguments out anew."""
    closed, end, after = content.rpartition("</think>")  # a search for an end that is not there is made from each start
    text = _THINKING.sub("", closed + end) + after
    return text.strip(), tuple((call.function.name, _plain(call.function.arguments)) for call in calls)


def _plain(arguments: str) -> str:
    """Arguments without layout."""
    try:
        return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return arguments


def _is_same_text(sent: str, recorded: str) -> bool:
    """Equal but for spaces: JSON is laid out anew, and the host breaks control tokens apart."""
    return sent == recorded or "".join(sent.split()) == "".join(recorded.split())
