"""A trace as an annotator reads it: numbered spans, in the judge's own form. Pure.

Promise: headers are ours, content is neutral text behind a mark on every line, as `judge.render` makes it, so nothing
in a trace can pass for an instruction of ours. Never shown: who wrote it, its coefficient and its outcome.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from judge.neutral import neutral_name
from judge.parse import RefusedReplyError
from judge.render import DEFAULT_CAPS, RenderedTrace, Span, cut_span, span_text
from training.corpus.model import Message, Trace

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)
_Form = TypeVar("_Form")


def read_trace(trace: Trace) -> RenderedTrace:
    """The spans of a trace, its request first; system prompts are left out. The same trace gives the same text."""
    caps = DEFAULT_CAPS
    spans = [cut_span(1, "query", trace.query, caps.query)]
    names = {call.id: call.name for message in trace.messages for call in message.calls}
    step = 0
    for message in trace.messages:
        if message.role == "assistant":
            step += 1
        for span in _spans(message, len(spans) + 1, names):
            spans.append(msgspec.structs.replace(span, step=step))
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


def _spans(message: Message, number: int, names: dict[str, str]) -> list[Span]:
    caps = DEFAULT_CAPS
    if message.role == "tool":
        span = cut_span(number, "result", message.content, caps.result)
        return [msgspec.structs.replace(span, tool=neutral_name(names.get(message.call_id, "")))]
    if message.role != "assistant":
        return []
    prose = "\n".join(part for part in (message.reasoning, message.content) if part.strip())
    spans = [cut_span(number, "completion", prose, caps.completion)] if prose else []
    for call in message.calls:
        span = cut_span(number + len(spans), "call", call.arguments, caps.arguments)
        spans.append(msgspec.structs.replace(span, tool=neutral_name(call.name)))
    return spans
