"""A trace as an annotator reads it: numbered spans, in the judge's own form. Pure.

Headers are ours, content is neutral text behind a mark on every line, as `judge.render` makes it, so nothing
in a trace can pass for an instruction of ours. Never shown: who wrote it, its coefficient and its outcome.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from judge.neutral import neutral_name
from judge.parse import RefusedReplyError
from judge.render import DEFAULT_CAPS, RenderedTrace, SpanKind, cut_span, span_text
from training.corpus.model import Trace

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)
_Form = TypeVar("_Form")


def read_trace(trace: Trace) -> RenderedTrace:
    """The spans of a trace, its request first; system prompts are left out. The same trace gives the same text."""
    caps = DEFAULT_CAPS
    spans = [cut_span(1, "query", trace.query, caps.query)]
    names = {call.id: call.name for message in trace.messages for call in message.calls}
    step = 0

    def add(kind: SpanKind, content: str, cap: int, tool: str = "") -> None:
        span = cut_span(len(spans) + 1, kind, content, cap)
        spans.append(msgspec.structs.replace(span, step=step, tool=tool))

    for message in trace.messages:
        if message.role == "tool":
            add("result", message.content, caps.result, neutral_name(names.get(message.call_id, "")))
        if message.role != "assistant":
            continue
        step += 1
        prose = "\n".join(part for part in (message.reasoning, message.content) if part.strip())
        if prose:
            add("completion", prose, caps.completion)
        for call in message.calls:
            add("call", call.arguments, caps.arguments, neutral_name(call.name))
    shown = tuple(spans[: caps.spans])
    return RenderedTrace(body_sha256=trace.trace_id, spans=shown, text="\n\n".join(span_text(span) for span in shown))


def read_json(text: str, form: type[_Form]) -> _Form:
    """A reply that is one JSON object of a form, alone or in one code fence. Raises RefusedReplyError with a reason."""
    bare = text.strip()
    fenced = _FENCE.match(bare)
    try:
        return msgspec.json.decode(fenced.group(1) if fenced else bare, type=form)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise RefusedReplyError(f"the reply is not one JSON object of the agreed form: {error}") from error
