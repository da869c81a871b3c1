"""The host side of one episode's RPC: executes what the agent asks for and keeps the only record of it.

Every tool call and every completion passes through here and becomes an event in the order it happened, with
its emitter and what it surfaced; limits are counted here before anything is executed. Holding the pipe lets an agent
make recorded calls and nothing else. Nothing that a guest sends raises out of it: what can't be read ends the episode
as the agent's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

import msgspec
import orjson

from foundation.canonical import foreign_text
from foundation.codes import BAD_CALL
from foundation.errors import ArenaError, Failure
from harness.emission.attribution import Emission
from harness.emission.call_reader import CallReader
from harness.errors import UnreadableError, our_fault, reading_guest_bytes
from harness.inference.port import EndingRefusalError, GatewayAnswer, ModelGateway
from harness.limits import (
    CALL,
    CALL_BYTE,
    REQUEST,
    REQUEST_BYTE,
    RESULT_BYTE,
    EpisodeLimits,
    WorkExceededError,
    WorkMeter,
    completion_cost,
)
from harness.sandbox.port import EpisodeOver, GuestCallError
from harness.surfacing import Surfacing
from harness.tools.port import Toolbox
from harness.trace import Completion, EmittedCall, Event, FailedCompletion, StopReason, ToolCall, Totals

_DETAIL_CHARS = 500  # of a refusal, which may quote what the agent sent


class Recorder:
    """A `Host` for one episode."""

    def __init__(
        self,
        toolbox: Toolbox,
        gateway: ModelGateway,
        limits: EpisodeLimits,
        reader: CallReader,
        shown_bytes: Callable[[Event], int],
        query: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shown_bytes` tells how many bytes of an event a judge is shown at most; `query` is the shopper's; `clock`
        gives seconds, monotonic."""
        self._toolbox, self._gateway, self._limits, self._reader = toolbox, gateway, limits, reader
        self._shown_bytes_of, self._clock = shown_bytes, clock
        self._emission = Emission(reader, query)
        self._surfacing = Surfacing()
        self.work = WorkMeter(limits.host_work)
        self._events: list[Event] = []
        self._messages: dict[str, int] = {}
        self._steps = self._refused = self._asked_tools = self._tool_calls = self._rounds = 0
        self._has_acted = True  # since the latest completion, or no completion yet
        self._prompt_tokens = self._completion_tokens = self._cost_micro_usd = 0
        self._result_bytes = self._shown_bytes = self._body_bytes = 0
        self.model_ms, self.tool_s = 0, 0.0  # for the host's metrics and no record
        self.is_terminated = False
        self.breach: tuple[StopReason, Failure] | None = None
        self.recommended: tuple[str, ...] | None = None
        self.recommending: int | None = None  # index of the call that recommended them
        self.unsurfaced: tuple[str, ...] = ()

    def call(self, method: str, params: dict[str, object]) -> object:
        """Answer `tool.call` or `llm.chat` (`harness.sandbox.port.Host.call`)."""
        if self.is_terminated:
            raise EpisodeOver("a call after terminate")
        try:
            return self._call_tool(params) if method == "tool.call" else self._complete(params)
        except UnreadableError:
            self._stop("unreadable", "A1027", "")
        except WorkExceededError as exceeded:
            self._stop("host_work", "A1021", str(exceeded))

    def events(self) -> tuple[Event, ...]:
        """What happened, in order."""
        return tuple(self._events)

    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls among the events."""
        return tuple(event for event in self._events if isinstance(event, ToolCall))

    def messages(self) -> tuple[str, ...]:
        """The interned messages that completions point into."""
        return tuple(self._messages)

    def totals(self) -> Totals:
        """Sums over the episode so far."""
        emitters = [call.emitter for call in self.tool_calls()]
        return Totals(
            steps=self._steps,
            tool_calls=len(emitters),
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            cost_micro_usd=self._cost_micro_usd,
            llm_calls=emitters.count("llm"),
            echoed_calls=emitters.count("echoed"),
            code_calls=emitters.count("code"),
        )

    # -- tools

    def _call_tool(self, params: dict[str, object]) -> object:
        if self._asked_tools >= self._limits.tool_calls:
            self._stop("tool_calls", "A1021", f"{self._limits.tool_calls} tool calls")
        self._asked_tools += 1
        self._has_acted = True
        self.work.spend(CALL + CALL_BYTE * min(_size(params), self._limits.argument_bytes))
        with reading_guest_bytes():
            name, arguments = _read_tool_call(params, self._limits.argument_bytes)
            attribution = self._emission.attribute(name, arguments)
        started_s = self._clock()
        try:
            outcome = self._toolbox.dispatch(name, arguments, self.work)
        except (ArenaError, UnreadableError, WorkExceededError):
            raise
        except Exception as error:
            raise our_fault(error) from error
        finally:
            self.tool_s += self._clock() - started_s
        with reading_guest_bytes():
            surfaced = self._surfacing.observe(name, arguments, outcome.found_ids)
            self._emission.returned(name, arguments, outcome.result, attribution.emitter)
        self._record(
            ToolCall(
                index=self._tool_calls,
                step=self._steps,
                name=name,
                arguments=arguments,
                emitter=attribution.emitter,
                emitted_call_id=attribution.call_id,
                result=outcome.result,
                failure=outcome.failure,
                ignored_parameters=outcome.ignored_parameters,
                surfaced=surfaced,
            ),
            name,
            arguments,
            outcome.result,
        )
        index, self._tool_calls = self._tool_calls, self._tool_calls + 1
        # A result that passes a limit is in the record, whole, and the agent never sees it.
        size, limit = len(outcome.result.encode()), self._limits.result_bytes
        self._result_bytes += size
        if limit and self._result_bytes > limit:
            self._stop("results", "A1021", f"{limit} bytes of tool results")
        self.work.spend(RESULT_BYTE * size)
        if outcome.recommended_ids is not None:
            self.recommended, self.recommending = outcome.recommended_ids, index
            self.unsurfaced = self._surfacing.missing(outcome.recommended_ids)
        self.is_terminated = outcome.is_final
        failure = outcome.failure
        shown = None if failure is None else {"code": failure.code, "message": failure.detail}
        return {"result": outcome.result, "failure": shown}

    # -- completions

    def _complete(self, params: dict[str, object]) -> object:
        limits = self._limits
        # Refused requests cost no model time, but an agent that sends nothing else must end as well.
        if self._steps >= limits.completions_max or self._refused >= limits.completions_max:
            kind = "steps" if limits.completions_max == limits.steps else "completions"
            self._stop("steps", "A1021", f"{limits.completions_max} {kind}")
        if self._has_acted and self._rounds >= limits.steps:
            self._stop("steps", "A1021", f"{limits.steps} steps")
        if self._prompt_tokens >= limits.prompt_tokens:
            self._stop("tokens", "A1021", f"{limits.prompt_tokens} prompt tokens")
        if self._completion_tokens >= limits.completion_tokens:
            self._stop("tokens", "A1021", f"{limits.completion_tokens} completion tokens")
        if limits.cost_micro_usd and self._cost_micro_usd >= limits.cost_micro_usd:
            self._stop("cost", "A1021", f"{limits.cost_micro_usd} micro-USD")
        self.work.spend(REQUEST + REQUEST_BYTE * _size(params))
        left = limits.completion_tokens - self._completion_tokens
        try:
            answer = self._gateway.chat(params, completion_tokens_left=left)
        except GuestCallError as error:
            self._refused += 1
            failure = Failure(code=error.code, detail=error.message[:_DETAIL_CHARS])
            self._record(FailedCompletion(step=self._steps + 1, failure=failure), failure.detail)
            if isinstance(error, EndingRefusalError):
                self._stop(error.stop, failure.code, failure.detail)
            raise
        except (ArenaError, UnreadableError):
            raise
        except Exception as error:
            raise our_fault(error) from error
        return self._record_completion(answer)

    def _record_completion(self, answer: GatewayAnswer) -> object:
        reply = answer.reply
        calls: tuple[EmittedCall, ...] = ()
        unreadable: UnreadableError | None = None
        try:
            with reading_guest_bytes():  # a model can be told what to write
                calls = self._reader.emitted(reply.content, reply.calls)
                self._emission.complete(answer.messages, calls, reply.content, reply.reasoning)
        except UnreadableError as error:  # it was paid for and is recorded all the same
            calls, unreadable = (), error
        self._steps += 1
        self._rounds += self._has_acted
        self._has_acted = False
        self._prompt_tokens += reply.prompt_tokens
        self._completion_tokens += reply.completion_tokens
        model = answer.model or reply.model
        self._cost_micro_usd += completion_cost(self._limits, model, reply.prompt_tokens, reply.completion_tokens)
        self.model_ms += answer.model_ms
        new_messages = tuple(text for text in dict.fromkeys(answer.messages) if text not in self._messages)
        self._record(
            Completion(
                step=self._steps,
                model=reply.model,
                request=tuple(self._messages.setdefault(text, len(self._messages)) for text in answer.messages),
                request_sha256=answer.request_sha256,
                content=reply.content,
                reasoning=reply.reasoning,
                calls=calls,
                finish_reason=reply.finish_reason,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
                response=reply.message,
                logprobs=reply.logprobs,
            ),
            *new_messages,
            *(call.name + call.arguments for call in calls),
            reply.content,
            reply.reasoning,
            reply.message,
            reply.logprobs,
        )
        if unreadable is not None:
            raise unreadable
        return {
            "content": reply.content,
            "reasoning": reply.reasoning,
            "tool_calls": [
                {"id": call.call_id, "name": call.name, "arguments": call.arguments} for call in reply.calls
            ],
            "message": msgspec.json.decode(reply.message),
            "finish_reason": reply.finish_reason,
            "usage": {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens},
        }

    # -- what an episode may leave behind

    def _record(self, event: Event, *texts: str) -> None:
        """Append an event, then stop when shown trace or record is full. `texts` is what the event adds to the body."""
        limits = self._limits
        self._events.append(event)
        self._body_bytes += sum(len(text.encode()) for text in texts)
        with reading_guest_bytes():
            self._shown_bytes += self._shown_bytes_of(event)
        if limits.trace_bytes and self._shown_bytes > limits.trace_bytes:
            self._stop("trace", "A1021", f"{limits.trace_bytes} bytes of shown trace")
        if limits.body_bytes and self._body_bytes > limits.body_bytes:
            self._stop("body", "A1021", f"{limits.body_bytes} bytes of record")

    def _stop(self, stop: StopReason, code: str, detail: str) -> NoReturn:
        self.breach = (stop, Failure(code=code, detail=detail))
        raise EpisodeOver(detail)


def _read_tool_call(params: dict[str, object], limit: int) -> tuple[str, str]:
    """Name and arguments as JSON text, serialised again by us where they are JSON at all.

    Raises GuestCallError A1050 for params that no SDK sends, and for a call of more than `limit` bytes: it is refused
    before anything of ours reads it.
    """
    name, arguments = params.get("name"), params.get("arguments")
    if params.keys() != {"name", "arguments"} or not isinstance(name, str):
        raise GuestCallError(BAD_CALL, "a tool call has a name and arguments")
    size = len(foreign_text([name, arguments]).encode())
    if size > limit:
        raise GuestCallError(BAD_CALL, f"a tool call of {size} bytes; at most {limit} are read")
    if not isinstance(arguments, str):
        return name, foreign_text(arguments)
    try:
        return name, foreign_text(orjson.loads(arguments))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return name, arguments


def _size(params: dict[str, object]) -> int:
    """Bytes of what a guest sent, as we would write it."""
    return len(foreign_text(params).encode())
