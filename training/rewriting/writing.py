"""A run as its calls in order and back, and asking a writer for the thoughts between them, one step at a time.

The writer is shown what was known before a step and the call that follows, never a later result; what it answers is
checked by code (`training.rewriting.grounding`), refused with the reason, asked for again, and given up after as many
replies as the rules allow. What comes out of `lifted` differs from the record in thoughts and system prompt alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from foundation.canonical import text_hash
from foundation.codes.names import NO_ANSWER_TO_THIS
from foundation.errors import ArenaError
from harness.chat import Call, Message
from judge.parse import RefusedReplyError
from training.corpus.model import ExecutedTrace, RejectCode, Rewritten, Trace, assemble_trace
from training.rewriting.grounding import refusal
from training.rewriting.known_facts import prompt_text
from training.rewriting.model import (
    LEFT_OUT_CODES,
    CallStep,
    CallTimeline,
    LeftOutCode,
    OmittedRun,
    Rewrite,
    RewriteReport,
    RewriteRules,
)
from training.trac.annotation import read_json, refused_chat
from training.trac.asking import Asker, Chat


def why_not(trace: Trace, timeline: CallTimeline | None, rules: RewriteRules) -> LeftOutCode | None:
    """Why a run cannot be rewritten; None where it can."""
    if trace.facts.is_success is not True:
        return "not_a_success"
    if trace.facts.is_agentic is not False:
        return "already_agentic"
    if timeline is None:
        return "not_in_order"
    if not any(step.name == "recommend_product" for step in timeline.steps):
        return "no_answer"
    return "too_long" if len(timeline.steps) > rules.steps_max else None


def timeline_of(trace: ExecutedTrace) -> CallTimeline | None:
    """The calls with their results, in order; None where a call has no result."""
    steps = [
        CallStep(name=name, arguments=arguments, result=result)
        for name, arguments, result in trace.executed
        if result is not None
    ]
    return CallTimeline(query=trace.query, steps=tuple(steps)) if len(steps) == len(trace.executed) else None


def lifted(trace: Trace, timeline: CallTimeline, thoughts: tuple[str, ...], prompt: str, by: Rewritten) -> Trace:
    """The run as if the model had chosen its calls: `prompt`, the query, then thought, call and result of each step.

    Raises ValueError where there is not one thought for each step.
    """
    messages = [Message(role="system", content=prompt), Message(role="user", content=timeline.query)]
    for number, (step, thought) in enumerate(zip(timeline.steps, thoughts, strict=True), start=1):
        call = Call(id=f"call_{number}", name=step.name, arguments=step.arguments)
        messages.append(Message(role="assistant", reasoning=thought, calls=(call,)))
        messages.append(Message(role="tool", content=step.result, call_id=call.id))
    made = assemble_trace(
        trace.source,
        messages,
        tools=trace.tools,
        query=trace.query,
        facts=msgspec.structs.replace(trace.facts, is_linear=True),
    )
    return msgspec.structs.replace(made, rewritten=by)


WouldReject = Callable[[Trace], Sequence[RejectCode]]  # what the filter would say of a lifted trace


class _ThoughtReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thought: str


def rewrite_all(
    traces: Iterable[ExecutedTrace],
    writer: str,
    rules: RewriteRules,
    asker: Asker,
    would_reject: WouldReject,
    *,
    parallel: int = 1,
) -> Iterator[Rewrite | OmittedRun]:
    """What becomes of each trace, in their order; memory holds a few traces at a time.

    Raises ArenaError V2148, A1040, U3001 to U3004: whatever was answered is kept.
    """
    running: deque[Future[Rewrite | OmittedRun]] = deque()
    with ThreadPoolExecutor(parallel) as pool:
        try:
            for trace in traces:
                running.append(pool.submit(rewrite, trace, writer, rules, asker, would_reject))
                if len(running) > 2 * parallel:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:  # after an error nothing more is begun
                future.cancel()


def report(
    found: Sequence[Rewrite | OmittedRun], writer: str, rules: RewriteRules, asker: Asker, sources: Sequence[str]
) -> RewriteReport:
    """The counts of a finished run. `sources` are the hashes of what was read."""
    made = [one for one in found if isinstance(one, Rewrite)]
    left = Counter(one.code for one in found if isinstance(one, OmittedRun))
    return RewriteReport(
        rules=rules,
        writer=writer,
        prompt_sha256=text_hash(prompt_text("think")),
        sources=tuple(sources),
        traces=len(found),
        rewritten=len(made),
        steps=sum(len(one.thoughts) for one in made),
        refused=sum(one.refused for one in made),
        left_out=tuple((code, left[code]) for code in LEFT_OUT_CODES if left[code]),
        usage=asker.usage(),
    )


def rewrite(
    trace: ExecutedTrace, writer: str, rules: RewriteRules, asker: Asker, would_reject: WouldReject
) -> Rewrite | OmittedRun:
    """The thoughts of a run, or why it has none; nothing is asked about a run that the corpus would reject.

    Raises what `Asker.ask` raises; what was answered is kept.
    """
    timeline = timeline_of(trace)
    if (code := why_not(trace, timeline, rules)) is not None or timeline is None:
        return OmittedRun(trace_id=trace.trace_id, place=trace.source.place, code=code or "not_in_order")
    by = Rewritten(writer=writer, prompt_sha256=text_hash(prompt_text("think")))
    if kept_out := would_reject(lifted(trace, timeline, ("",) * len(timeline.steps), "", by)):
        detail = ", ".join(kept_out)
        return OmittedRun(trace_id=trace.trace_id, place=trace.source.place, code="kept_out", detail=detail)
    thoughts: list[str] = []
    refused = 0
    for number, step in enumerate(timeline.steps):
        chat, reason = thought_chat(timeline, thoughts, rules), ""
        for _ in range(rules.replies_max):
            try:
                text = asker.ask(writer, chat, rules.reply_tokens_max)
            except ArenaError as error:
                if error.failure.code != NO_ANSWER_TO_THIS:
                    raise
                detail = f"step {number + 1}, {step.name}: {error.failure.detail}"
                return OmittedRun(trace_id=trace.trace_id, place=trace.source.place, code="not_answered", detail=detail)
            try:
                thought = read_json(text, _ThoughtReply).thought.strip()
                reason = refusal(thought, timeline, number, thoughts) or ""
            except RefusedReplyError as wrong:
                reason = str(wrong)
            if not reason:
                thoughts.append(thought)
                break
            refused += 1
            chat = refused_chat(chat, text, reason)
        else:
            detail = f"step {number + 1}, {step.name}: {reason}"
            return OmittedRun(trace_id=trace.trace_id, place=trace.source.place, code="not_grounded", detail=detail)
    return Rewrite(
        trace_id=trace.trace_id,
        place=trace.source.place,
        by=by,
        thoughts=tuple(thoughts),
        refused=refused,
    )


def broken(made: Rewrite, timeline: CallTimeline) -> str | None:
    """Why the thoughts of a file may not stand before these steps; None where they may."""
    if len(made.thoughts) != len(timeline.steps):
        return f"{len(made.thoughts)} thoughts for {len(timeline.steps)} steps"
    for number, thought in enumerate(made.thoughts):
        if (reason := refusal(thought, timeline, number, made.thoughts[:number])) is not None:
            return f"step {number + 1}: {reason}"
    return None


def thought_chat(timeline: CallTimeline, thoughts: list[str], rules: RewriteRules) -> Chat:
    """The conversation that asks for the thought before the step after those that have one."""
    done = [
        {
            "thought": thought,
            "tool": step.name,
            "arguments": step.arguments,
            "result": step.result[: rules.result_chars],
        }
        for thought, step in zip(thoughts, timeline.steps, strict=False)
    ]
    step = timeline.steps[len(thoughts)]
    shown = {"request": timeline.query, "done": done, "next": {"tool": step.name, "arguments": step.arguments}}
    return ("system", prompt_text("think")), ("user", msgspec.json.encode(shown).decode())
