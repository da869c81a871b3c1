"""A view's row: what every form says about a trajectory. Facts, conversation, tools, and what stands beside the log.

`row_of` is pure and total; a fact that does not exist is None (an outcome that could not be scored, a verdict that is
owed), never 0. The names of facts are the columns of Parquet, the `metadata` of chat rows and samples and the `info` of
rollouts; FORMATS.md says what they mean. Names and price tables are those that stand in the export beside the log.

The conversation (`converse`) is what the model was sent and wrote, in OpenAI's chat form; one body has one. A turn is
the assistant's only when a completion of this run wrote it, and a call only when the record says the model emitted it:
calls written by the agent's Python or read off the prompt are in `calls` with their emitter, and what is left of them
in `messages` is marked with `origin`. Which path is chosen when an agent rewrites its prompts: FORMATS.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import orjson

from arena.export.model import Trajectory
from arena.policy import Policy
from foundation.canonical import foreign_text, text_hash
from harness.chat import ChatCall, ChatMessage, Function, Origin, served_tools
from harness.emission.attribution import reader_of
from harness.inference.reply import broken_apart, object_text
from harness.limits import completion_cost
from harness.tools.registry import PROFILES, profile_schemas
from harness.trace import Completion, EmittedCall, Emitter, EvaluationBody, Surfaced, ToolCall
from judge.verdict import Opinion, UnscoredVerdict, Verdict
from problems.model import AXES, Axis, OutcomeScore, Pool

_AGENT: Origin = "agent"
_ORIGIN_OF: dict[Emitter, Origin | None] = {"llm": None, "echoed": "echoed", "code": "code"}
_OF_COMPLETION = ("step", "model", "request_sha256", "finish_reason", "prompt_tokens", "completion_tokens")
_OF_CALL = ("index", "step", "name", "arguments", "emitter", "surfaced", "ignored_parameters")

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


_SENT = msgspec.json.Decoder(ChatMessage)  # a message as a request carries it
_Words = tuple[str, tuple[tuple[str, str], ...]]  # what identifies an assistant turn: its text and its calls


def converse(body: EvaluationBody) -> Conversation:
    """The conversation of a body."""
    return _RequestConversation(body).conversation()


class _RequestConversation:
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
        self._place: dict[int, int] = {}  # message index of the body -> place in messages + other_messages
        self._replies: dict[int, int] = {}  # turn -> place of its reply
        self._held: dict[int, int] = {}  # call index -> place of the message that holds its result

    def conversation(self) -> Conversation:
        is_linear = self._is_linear()
        # the completion whose request carries most of the completions before it; of several, the last
        lengths = [] if is_linear else [len(self._recognised(number)) for number in range(len(self._turns))]
        longest = max(range(len(lengths)), key=lambda number: (lengths[number], number), default=0)
        path = len(self._turns) - 1 if is_linear else longest
        messages, others = list[ChatMessage](), list[ChatMessage]()
        if self._turns:
            messages += self._shown(path)
            self._replies[path] = len(messages)
            messages.append(self._reply(path))
            messages += self._unsent_results(path, len(messages))
        for number, request in enumerate(self._requests):
            for index in request:
                if index not in self._place:
                    self._place[index] = len(messages) + len(others)
                    others.append(self._other(index, number))
            if number not in self._replies:
                self._replies[number] = len(messages) + len(others)
                others.append(self._reply(number))
        first = next((index for index, message in enumerate(messages) if message.role == "assistant"), len(messages))
        is_written = all(message.origin is None and not message.echoed_tool_calls for message in messages)
        return Conversation(
            messages=tuple(messages),
            other_messages=tuple(others),
            completions=tuple(
                Turn(
                    request=tuple(self._place[index] for index in self._requests[number]),
                    reply=self._replies[number],
                    **{name: getattr(turn, name) for name in _OF_COMPLETION},
                )
                for number, turn in enumerate(self._turns)
            ),
            calls=tuple(
                ExecutedCall(
                    call_id=call.emitted_call_id,
                    message=self._held.get(call.index),
                    result=call.result if call.index not in self._held else None,
                    failure=call.failure.code if call.failure is not None else "",
                    **{name: getattr(call, name) for name in _OF_CALL},
                )
                for call in self._calls
            ),
            prompt_length=first,
            is_linear=is_linear,
            is_model_written=bool(messages) and is_written and all(call.emitter == "llm" for call in self._calls),
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

    def _shown(self, path: int) -> Iterable[ChatMessage]:
        """The request of the path's last completion, with the replies in it as they were recorded."""
        writers = self._recognised(path)
        turn: Completion | None = None
        renamed: dict[str, str] = {}  # ids that the agent gave to the model's calls -> the model's own
        for position, index in enumerate(self._requests[path]):
            sent = self._sent[index]
            self._place.setdefault(index, position)
            if position in writers:
                turn = self._turns[writers[position]]
                self._replies[writers[position]] = position
                renamed = {
                    call.id: own.call_id
                    for call, own in zip(sent.tool_calls, (c for c in turn.calls if _is_native(c)), strict=False)
                }
                yield self._reply(writers[position])
            elif sent.role == "assistant":
                turn, renamed = None, {}
                yield _not_written(sent)
            elif sent.role == "tool":
                yield self._result(sent, turn, renamed.get(sent.tool_call_id, sent.tool_call_id), position)
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

    def _result(self, sent: ChatMessage, turn: Completion | None, call_id: str, position: int) -> ChatMessage:
        """A tool message, with where its content comes from unless it is what the host answered to the model's call."""
        calls, origin = self._calls_of.get(turn.step, ()) if turn is not None else (), None
        own = next((call for call in calls if call.emitter == "llm" and call.emitted_call_id == call_id), None)
        if own is None or not _is_same_text(sent.content, own.result):
            matching = (call for call in calls if call.emitter != "llm" and _is_same_text(sent.content, call.result))
            own = next(matching, None)
            origin = _ORIGIN_OF[own.emitter] if own is not None else _AGENT
        if own is not None and own.result == sent.content:
            self._held.setdefault(own.index, position)
        return ChatMessage(role="tool", content=sent.content, tool_call_id=call_id, origin=origin)

    def _unsent_results(self, path: int, length: int) -> list[ChatMessage]:
        """What the host answered to the last reply's native calls, which no later request of the path carries."""
        turn = self._turns[path]
        native = {call.call_id for call in turn.calls if _is_native(call)}
        results: list[ChatMessage] = []
        for call in self._calls_of.get(turn.step, ()):
            if call.emitter == "llm" and call.emitted_call_id in native:
                self._held.setdefault(call.index, length + len(results))
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
        reader = reader_of(profile_schemas(self._body.tool_profile) if self._body.tool_profile in PROFILES else "[]")
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


def _decoded(text: str) -> ChatMessage:
    try:
        return _SENT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ChatMessage(role="unknown", content=text)


def _is_native(call: EmittedCall) -> bool:
    return not call.call_id.startswith(TEXT_CALL)


def _native(calls: Sequence[EmittedCall]) -> tuple[ChatCall, ...]:
    return tuple(
        ChatCall(id=call.call_id, function=Function(name=call.name, arguments=call.arguments))
        for call in calls
        if _is_native(call)
    )


def _not_written(sent: ChatMessage) -> ChatMessage:
    """An assistant turn that no completion of this run wrote."""
    return ChatMessage(
        role="assistant", content=sent.content, origin=_AGENT, weight=0, agent_tool_calls=sent.tool_calls
    )


def _words(content: str, calls: Sequence[ChatCall]) -> _Words:
    """What is compared when a turn is sent back: agents drop thinking, and write arguments out anew."""
    closed, end, after = content.rpartition("</think>")  # a search for an end that is not there is made from each start
    text = _THINKING.sub("", closed + end) + after
    sent = ((call.function.name, broken_apart(object_text(call.function.arguments))) for call in calls)
    return broken_apart(text).strip(), tuple((name, foreign_text(orjson.loads(arguments))) for name, arguments in sent)


def _is_same_text(sent: str, recorded: str) -> bool:
    """Equal but for spaces: JSON is laid out anew, and the host breaks control tokens apart."""
    return sent == recorded or "".join(sent.split()) == "".join(recorded.split())


_COUNT_MAX = 2**53 - 1  # of a canonical integer; sums of hostile counts must still fit a column
UNKNOWN_TOOLS = "[]"


class TrajectoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory's facts."""

    # where it stands
    validator: str
    seq: int
    content_sha256: str
    body_sha256: str
    verdict_seq: int
    recorded_ms: int
    recorded_day: str
    attempt_id: str
    # which problem
    stage: str
    race_id: str
    suite: str
    problem_id: str
    pool: Pool
    cluster_id: str
    cluster_commitment: str
    batch_sha256: str
    partition_sha256: str
    bucket: str
    query: str
    # whose agent
    agent_version_id: str
    agent_sha256: str
    miner_hotkey: str
    commitment_block: int
    commitment_sha256: str
    # under which conditions
    policy_sha256: str
    scoring_pipeline: str
    code_commit: str
    sandbox_level: str
    guest_sha256: str
    guest_python: str
    tool_profile: str
    tools_sha256: str
    catalogue_sha256: str
    models: str
    # how it went
    stop: str
    failure_code: str
    recommended: str | None
    unsurfaced: int
    is_agentic: bool
    is_linear: bool
    is_model_written: bool
    steps: int
    tool_calls: int
    llm_calls: int
    echoed_calls: int
    code_calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_micro_usd: int
    # what it was worth
    unscored_code: str
    title_matcher: str | None = None
    is_success: bool | None = None
    is_gt_exact: bool | None = None
    is_one_shop: bool | None = None
    is_within_budget: bool | None = None
    rule_e4: int | None = None
    reward_e4: int | None = None
    slots: int | None = None
    slots_found: int | None = None
    slots_exact: int | None = None
    title_hits: int | None = None
    title_total: int | None = None
    price_hits: int | None = None
    price_total: int | None = None
    service_hits: int | None = None
    service_total: int | None = None
    sku_hits: int | None = None
    sku_total: int | None = None
    attribute_hits: int | None = None
    attribute_total: int | None = None
    # how it reasoned
    rubric_id: str
    quality_e4: int | None = None
    coefficient_e4: int | None = None
    spread_e4: int | None = None
    unjudged_code: str
    # what stands in the export beside the log, and the episode's cost and times: None where not known
    agent_name: str | None
    priced_micro_usd: int | None
    episode_ms: int | None
    model_ms: int | None
    agent_ms: int | None


_NAMES = frozenset(TrajectoryFacts.__struct_fields__)


class ViewRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a form writes of one trajectory. `tools` is an OpenAI `tools` array, JSON text."""

    facts: TrajectoryFacts
    conversation: Conversation
    tools: str
    opinions: tuple[Opinion, ...]


def row_of(trajectory: Trajectory, names: Mapping[str, str] = {}, policies: Mapping[str, Policy] = {}) -> ViewRow:
    """The row of a trajectory. `names` of agents by version id and `policies` by hash: those that stand beside the
    log."""
    conversation = converse(trajectory.body)
    return ViewRow(
        facts=_facts_of(trajectory, conversation, names, policies),
        conversation=conversation,
        tools=tools_of(trajectory.body.tool_profile, trajectory.body.tools_sha256),
        opinions=trajectory.verdict.opinions if isinstance(trajectory.verdict, Verdict) else (),
    )


@functools.lru_cache(maxsize=64)
def tools_of(profile: str, tools_sha256: str) -> str:
    """The schemas of a profile as models read them; `[]` where this release has not those that the record names."""
    schemas = profile_schemas(profile) if profile in PROFILES else UNKNOWN_TOOLS
    return served_tools(schemas) if text_hash(schemas) == tools_sha256 else UNKNOWN_TOOLS


def _is_whole_cost(policy: Policy | None, completions: Sequence[Completion], recorded_micro_usd: int) -> bool:
    """Whether the recorded cost (micro-USD) is that of every completion.

    A policy prices models under the names that agents ask for, and a record names them as the endpoint does: the cost
    is whole where every model of the policy has a price, or where the completions, priced by the names recorded, come
    to it.
    """
    if policy is None or not completions:
        return not completions
    priced = {price.model for price in policy.limits.prices}
    if priced.issuperset(policy.inference.models):
        return True
    costs = (completion_cost(policy.limits, one.model, one.prompt_tokens, one.completion_tokens) for one in completions)
    return priced.issuperset(one.model for one in completions) and sum(costs) == recorded_micro_usd


def _facts_of(
    trajectory: Trajectory, conversation: Conversation, names: Mapping[str, str], policies: Mapping[str, Policy]
) -> TrajectoryFacts:
    """The facts of a trajectory, whose conversation was made already: its parts' fields by name, and what follows."""
    evaluation, body, verdict = trajectory.evaluation, trajectory.body, trajectory.verdict
    conditions = evaluation.conditions
    outcome = evaluation.outcome if isinstance(evaluation.outcome, OutcomeScore) else None
    judged = verdict if isinstance(verdict, Verdict) else None
    values: dict[str, object] = {}
    own = (evaluation.subject, evaluation.context, conditions, evaluation.totals)
    for source in (outcome, judged, body, *own, evaluation, trajectory):
        if source is not None:
            values |= {name: getattr(source, name) for name in source.__struct_fields__ if name in _NAMES}
    values |= {
        "recorded_ms": trajectory.content.recorded_ms,
        "recorded_day": _day_of(trajectory.content.recorded_ms),
        "sandbox_level": conditions.sandbox.name,
        "guest_sha256": conditions.sandbox.guest_sha256,
        "guest_python": conditions.sandbox.python_version,
        "models": ",".join(dict.fromkeys(turn.model for turn in conversation.completions)),
        "failure_code": evaluation.failure.code if evaluation.failure is not None else "",
        "recommended": None if body.recommended is None else ",".join(body.recommended),
        "unsurfaced": len(body.unsurfaced),
        "is_linear": conversation.is_linear,
        "is_model_written": conversation.is_model_written,
        "unscored_code": "" if isinstance(evaluation.outcome, OutcomeScore) else evaluation.outcome.failure.code,
        "rubric_id": verdict.rubric_id if verdict is not None else "",
        "unjudged_code": verdict.failure.code if isinstance(verdict, UnscoredVerdict) else "",
    }
    if outcome is not None:
        values["title_matcher"] = outcome.titles
        values["slots"] = len(outcome.slots)
        values["slots_found"] = sum(slot.is_found for slot in outcome.slots)
        values["slots_exact"] = sum(slot.is_answer for slot in outcome.slots)
        for axis in AXES:  # summed over slots
            met: list[Axis] = [getattr(slot, axis) for slot in outcome.slots]
            values[f"{axis}_hits"] = min(sum(one.hits for one in met), _COUNT_MAX)
            values[f"{axis}_total"] = min(sum(one.total for one in met), _COUNT_MAX)
    host, completions = trajectory.content.host, [event for event in body.events if isinstance(event, Completion)]
    policy, cost = policies.get(conditions.policy_sha256), evaluation.totals.cost_micro_usd
    values |= {
        "agent_name": names.get(evaluation.subject.agent_version_id),
        "priced_micro_usd": cost if _is_whole_cost(policy, completions, cost) else None,
    }
    for name, time_ms in ("episode_ms", host.episode_ms), ("model_ms", host.model_ms), ("agent_ms", host.agent_time_ms):
        values[name] = time_ms if host.episode_ms > 0 else None  # a record without times has 0 in all three
    return TrajectoryFacts(**values)  # type: ignore[arg-type]  # by name


def _day_of(recorded_ms: int) -> str:
    """The UTC day of a time in unix milliseconds, YYYY-MM-DD; the calendar's first or last day beyond its ends."""
    try:
        return datetime.fromtimestamp(recorded_ms // 1000, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "0001-01-01" if recorded_ms < 0 else "9999-12-31"
