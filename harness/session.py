"""One episode: the host-side recorder between a jailed agent, the tools and the model.

`run_episode` returns the body of an evaluation record: what happened as this side saw it, whatever the agent says of
itself. The body holds no clock, host or random value, so equal inputs and equal completions give equal bytes. Every
tool call and every completion passes through the `Recorder` and becomes an event in the order it happened; limits are
counted there before anything is executed. Nothing that a guest sends raises out of it: what can't be read ends the
episode as the agent's, and a fault of ours is raised as an ArenaError and never becomes part of a body.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NoReturn

import msgspec
import orjson

from foundation.canonical import canonical_bytes, foreign_text, text_hash
from foundation.codes import BAD_CALL
from foundation.errors import ArenaError, Failure
from harness import trace
from harness.chat import Call, Message, chat_row
from harness.emission.attribution import EMISSION, Emission, is_agentic, reader_of
from harness.emission.wording import compose, texts_in
from harness.errors import UnreadableError, classify_guest, our_fault, reading_guest_bytes
from harness.inference.gateway import ledger_sha256
from harness.inference.journal import MemoryJournal
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
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit, GuestJob, Sandbox
from harness.tools.registry import ENVIRONMENT, Toolbox, environment_problem
from problems.model import Problem

_DETAIL_CHARS = 500  # of a refusal, which may quote what the agent sent
_OF_REPLY = ("model", "content", "reasoning", "finish_reason", "prompt_tokens", "completion_tokens", "logprobs")


class Recorder:
    """A `Host` for one episode."""

    def __init__(
        self,
        toolbox: Toolbox,
        gateway: ModelGateway,
        limits: EpisodeLimits,
        shown_bytes: Callable[[trace.Event], int],
        query: str,
    ) -> None:
        """`shown_bytes` tells how many bytes of an event a judge is shown at most; `query` is the shopper's."""
        self._toolbox, self._gateway, self._limits, self._reader = toolbox, gateway, limits, reader_of(toolbox.schemas)
        self._shown_bytes_of, self._emission = shown_bytes, Emission(self._reader, query)
        self._surfaced: set[str] = set()  # ids
        self.work = WorkMeter(limits.host_work)
        self.events: list[trace.Event] = []  # in the order in which they happened
        self.messages: dict[str, int] = {}  # interned: completions point to their places
        self.totals = trace.Totals()
        self._refused = self._asked_tools = self._rounds = 0
        self._has_acted = True  # since the latest completion, or no completion yet
        self._result_bytes = self._shown_bytes = self._body_bytes = 0
        self.model_ms, self.tool_s = 0, 0.0  # for the host's metrics and no record
        self.is_terminated = False
        self.breach: tuple[trace.StopReason, Failure] | None = None
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

    def _count(self, **more: int) -> None:
        totals = {name: getattr(self.totals, name) + number for name, number in more.items()}
        self.totals = msgspec.structs.replace(self.totals, **totals)

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
        started_s = time.monotonic()
        try:
            outcome = self._toolbox.dispatch(name, arguments, self.work)
        except (ArenaError, UnreadableError, WorkExceededError):
            raise
        except Exception as error:
            raise our_fault(error) from error
        finally:
            self.tool_s += time.monotonic() - started_s
        with reading_guest_bytes():
            surfaced = self._surface(name, arguments, outcome.found_ids)
            self._emission.returned(name, arguments, outcome.result, attribution.emitter)
        index = self.totals.tool_calls
        self._count(tool_calls=1, **{f"{attribution.emitter}_calls": 1})
        self._record(
            trace.ToolCall(
                index=index,
                step=self.totals.steps,
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
        # A result that passes a limit is in the record, whole, and the agent never sees it.
        size, limit = len(outcome.result.encode()), self._limits.result_bytes
        self._result_bytes += size
        if limit and self._result_bytes > limit:
            self._stop("results", "A1021", f"{limit} bytes of tool results")
        self.work.spend(RESULT_BYTE * size)
        if outcome.recommended_ids is not None:
            self.recommended, self.recommending = outcome.recommended_ids, index
            self.unsurfaced = tuple(dict.fromkeys(i for i in outcome.recommended_ids if i not in self._surfaced))
        self.is_terminated = outcome.is_final
        failure = outcome.failure
        shown = None if failure is None else {"code": failure.code, "message": failure.detail}
        return {"result": outcome.result, "failure": shown}

    def _surface(self, name: str, arguments: str, found_ids: tuple[str, ...]) -> tuple[trace.Surfaced, ...]:
        """The ids that this call surfaces for the first time, each with its rank in the result, from 1.

        An id counts only if the catalogue's search put it before the agent: it is surfaced by the first `find_*` result
        that holds it and whose own arguments do not (docs/architecture.md#scores); ids that an agent brings along,
        views, checks or searches by number stay unsurfaced.
        """
        if not found_ids or not name.startswith("find_"):
            return ()
        text = compose("NFKC", "\n".join(texts_in(arguments)))
        new = []
        for rank, product_id in enumerate(found_ids, start=1):
            # As a word of its own, so that "7" is not found in "700".
            word = rf"(?<![0-9A-Za-z]){re.escape(product_id)}(?![0-9A-Za-z])"
            if product_id in self._surfaced or (product_id in text and re.search(word, text)):
                continue
            self._surfaced.add(product_id)
            new.append(trace.Surfaced(product_id=product_id, rank=rank))
        return tuple(new)

    # -- completions

    def _complete(self, params: dict[str, object]) -> object:
        limits, so_far = self._limits, self.totals
        # Refused requests cost no model time, but an agent that sends nothing else must end as well.
        if max(so_far.steps, self._refused) >= limits.completions_max:
            kind = "steps" if limits.completions_max == limits.steps else "completions"
            self._stop("steps", "A1021", f"{limits.completions_max} {kind}")
        if self._has_acted and self._rounds >= limits.steps:
            self._stop("steps", "A1021", f"{limits.steps} steps")
        if so_far.prompt_tokens >= limits.prompt_tokens:
            self._stop("tokens", "A1021", f"{limits.prompt_tokens} prompt tokens")
        if so_far.completion_tokens >= limits.completion_tokens:
            self._stop("tokens", "A1021", f"{limits.completion_tokens} completion tokens")
        if limits.cost_micro_usd and so_far.cost_micro_usd >= limits.cost_micro_usd:
            self._stop("cost", "A1021", f"{limits.cost_micro_usd} micro-USD")
        self.work.spend(REQUEST + REQUEST_BYTE * _size(params))
        left = limits.completion_tokens - so_far.completion_tokens
        try:
            answer = self._gateway.chat(params, completion_tokens_left=left)
        except GuestCallError as error:
            self._refused += 1
            failure = Failure(code=error.code, detail=error.message[:_DETAIL_CHARS])
            self._record(trace.FailedCompletion(step=so_far.steps + 1, failure=failure), failure.detail)
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
        calls: tuple[trace.EmittedCall, ...] = ()
        unreadable: UnreadableError | None = None
        try:
            with reading_guest_bytes():  # a prompt can dictate what a model writes
                calls = self._reader.emitted(reply.content, reply.calls)
                self._emission.complete(answer.messages, calls, reply.content, reply.reasoning)
        except UnreadableError as error:  # it was paid for and is recorded all the same
            calls, unreadable = (), error
        self._rounds += self._has_acted
        self._has_acted = False
        tokens = (reply.prompt_tokens, reply.completion_tokens)
        cost = completion_cost(self._limits, answer.model or reply.model, *tokens)
        self._count(steps=1, prompt_tokens=tokens[0], completion_tokens=tokens[1], cost_micro_usd=cost)
        self.model_ms += answer.model_ms
        new_messages = tuple(text for text in dict.fromkeys(answer.messages) if text not in self.messages)
        self._record(
            trace.Completion(
                step=self.totals.steps,
                request=tuple(self.messages.setdefault(text, len(self.messages)) for text in answer.messages),
                request_sha256=answer.request_sha256,
                calls=calls,
                response=reply.message,
                **{name: getattr(reply, name) for name in _OF_REPLY},
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
        told = tuple(Call(id=call.call_id, name=call.name, arguments=call.arguments) for call in reply.calls)
        message = Message(role="assistant", content=reply.content, reasoning=reply.reasoning, calls=told)
        return {
            "content": reply.content,
            "reasoning": reply.reasoning,
            "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in told],
            "message": chat_row(message),
            "finish_reason": reply.finish_reason,
            "usage": {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens},
        }

    # -- what an episode may leave behind

    def _record(self, event: trace.Event, *texts: str) -> None:
        """Append an event, then stop when shown trace or record is full. `texts` is what the event adds to the body."""
        limits = self._limits
        self.events.append(event)
        self._body_bytes += sum(len(text.encode()) for text in texts)
        with reading_guest_bytes():
            self._shown_bytes += self._shown_bytes_of(event)
        if limits.trace_bytes and self._shown_bytes > limits.trace_bytes:
            self._stop("trace", "A1021", f"{limits.trace_bytes} bytes of shown trace")
        if limits.body_bytes and self._body_bytes > limits.body_bytes:
            self._stop("body", "A1021", f"{limits.body_bytes} bytes of record")

    def _stop(self, stop: trace.StopReason, code: str, detail: str) -> NoReturn:
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


class EpisodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode works with. `journal` is the gateway's, where the episode may be a restart."""

    toolbox: Toolbox
    gateway: ModelGateway
    sandbox: Sandbox
    shown_bytes: Callable[[trace.Event], int] = lambda _: 0  # of an event, at most, in the trace that a judge is shown
    journal: MemoryJournal | None = None


class EpisodeRules(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's slice for an episode. `models` are those the agent may ask for, preferred first."""

    policy_sha256: str
    catalogue_sha256: str
    limits: EpisodeLimits = EpisodeLimits()
    models: tuple[str, ...] = ()
    is_surfaced_rule_on: bool = True
    agentic_min_e4: int = 9_500


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """The body, and the host's facts beside it."""

    body: trace.EvaluationBody
    exit: GuestExit
    model_ms: int
    tool_ms: int
    episode_ms: int


def run_episode(source: str, problem: Problem, ports: EpisodePorts, rules: EpisodeRules) -> Episode:
    """Run the agent `source` on `problem` in a fresh guest.

    Raises ArenaError: A1001 or A1004 for a source that no guest takes, V2002..V2004 and U3xxx for faults of ours, after
    which nothing of the episode counts.
    """
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        raise ArenaError("A1001", "the source holds lone surrogates") from error
    if size > rules.limits.source_bytes:
        raise ArenaError("A1004", f"{size} bytes; the limit is {rules.limits.source_bytes}")
    started_s = time.monotonic()
    recorder = Recorder(ports.toolbox, ports.gateway, rules.limits, ports.shown_bytes, problem.query)
    view = environment_problem(problem, rules.limits) if ports.toolbox.profile == ENVIRONMENT else problem.view()
    job = GuestJob(
        source=source,
        problem=canonical_bytes(view).decode(),
        limits=rules.limits,
        tools=ports.toolbox.schemas,
        models=rules.models,
    )
    ended = ports.sandbox.run(job, recorder)
    stop, failure = _explain(ended, recorder, rules.limits)
    if failure is None and ports.journal is not None and ports.journal.owed():
        stop, failure = "diverged", Failure(code="A1044", detail="a restart leaves out what was answered before")
    calls = [event for event in recorder.events if isinstance(event, trace.ToolCall)]
    body = trace.EvaluationBody(
        policy_sha256=rules.policy_sha256,
        problem_id=problem.problem_id,
        bucket=problem.bucket,
        query=problem.query,
        agent_sha256=text_hash(source),
        tool_profile=ports.toolbox.profile,
        tools_sha256=ports.toolbox.schemas_sha256,
        catalogue_sha256=rules.catalogue_sha256,
        messages=tuple(recorder.messages),
        events=tuple(recorder.events),
        stop=stop,
        failure=failure,
        claim=ended.claim.encode()[: rules.limits.claim_bytes].decode(errors="ignore"),
        recommended=recorder.recommended,
        unsurfaced=recorder.unsurfaced if rules.is_surfaced_rule_on else (),
        is_agentic=is_agentic(calls, recorder.recommended, recorder.recommending, minimum_e4=rules.agentic_min_e4),
        totals=recorder.totals,
        emission=EMISSION,
        ledger_sha256=ledger_sha256(recorder.events),
    )
    episode_ms = int((time.monotonic() - started_s) * 1000)
    tool_ms = int(recorder.tool_s * 1000)
    return Episode(body=body, exit=ended, model_ms=recorder.model_ms, tool_ms=tool_ms, episode_ms=episode_ms)


def _explain(ended: GuestExit, recorder: Recorder, limits: EpisodeLimits) -> tuple[trace.StopReason, Failure | None]:
    """Why the episode ended and whose failure that is. After terminate nothing the guest does changes it."""
    without_answer = Failure(code="A1060") if recorder.recommended is None else None
    if recorder.is_terminated:
        return "terminated", without_answer
    if recorder.breach is not None:
        return recorder.breach
    stop, failure = classify_guest(ended, limits)
    if stop != "returned":
        return stop, failure
    return ("returned" if recorder.recommended is None else "terminated"), without_answer
