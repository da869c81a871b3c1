"""A trace as the calls that were made, and back: the same calls and results with thoughts before them.

Pure. What comes out of `lifted` differs from the record in nothing but the thoughts and the system prompt; the
order, the arguments and the results are the record's, byte for byte.
"""

from __future__ import annotations

import msgspec

from harness.chat import Call, Message
from training.corpus.model import ExecutedTrace, Rewritten, Trace, assemble_trace
from training.rewriting.model import CallStep, CallTimeline, LeftOutCode, RewriteRules


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
