"""The trace as a judge reads it: numbered spans, facts of the host apart from the agent's words.

A header line holds only what the host recorded; every line of content starts with `| ` and is neutral text: no double
square brackets (the host's header marks), no line separators but `\\n`, no control, format or surrogate characters,
and none that is shown as nothing, in which a whole sentence can be spelled: nothing in a trace can pass for a header.
Content is capped, and the header says how much was cut. Never shown: the outcome, why the episode ended, which ids the
surfaced rule refuses, and what the agent's program returned (a claim). Source: docs/architecture.md#the-judge.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec
import orjson

from harness.emission.wording import Words
from harness.tools.functions import decode_arguments
from harness.tools.registry import TOOL_NAMES
from harness.trace import Completion, Emitter, EvaluationBody, Event, FailedCompletion, ToolCall
from judge.echo import NO_ECHO, Echo, echoes_of
from judge.rubric import Rubric

SpanKind = Literal["query", "completion", "call", "result", "refused"]


# Characters of content kept of a span, spans kept of a trace, and bytes of UTF-8 that a whole trace may have. In one
# that would be longer each span but the query may have the same share of its characters, so that long ones give way
# first. A tokeniser makes no more tokens than bytes: a judge with a context of 128 k tokens can read any trace.
CHARS: Mapping[SpanKind, int] = {"query": 2_000, "completion": 4_000, "call": 1_000, "result": 1_600}
SPANS_MAX, TRACE_BYTES = 240, 100_000
BETWEEN = "\n\n"
RENDERER = "spans/1"  # another number whenever the same body gives another text
_UNKNOWN_TOOL = "unknown tool"
_MODEL_NAME = re.compile(r"[A-Za-z0-9._:/+-]{1,60}")
_LAST_NUMBER = 10**6  # no span's number is longer
_WHOLE = 1_000  # thousandths


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One numbered span. `content` is neutral text as shown, without line prefixes; the rest are the host's facts."""

    number: int
    kind: SpanKind
    step: int = 0
    content: str = ""
    whole: str = ""  # the content before it was cut: for code that looks data up, never shown
    model: str = ""
    tokens: int = 0  # completion tokens
    echo_e4: int = 0  # share of the completion that stood in its request already
    echoed: frozenset[Words] = frozenset()  # the runs of words that did, never shown
    sent: tuple[str, ...] = ()  # messages that its request was the first to hold (JSON texts), never shown
    calls: tuple[str, ...] = ()  # arguments of the calls it wrote (JSON texts), never shown
    tool: str = ""
    emitter: Emitter | None = None
    surfaced: tuple[str, ...] = ()
    is_error: bool = False
    cut: int = 0  # characters not shown


class RenderedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A body, rendered. `text` is what a model reads; `spans` is what code checks citations against.

    `decided` is the span of the recommendation that counts: the last that took effect, None where no shown one did.
    """

    body_sha256: str
    spans: tuple[Span, ...]
    text: str
    decided: int | None = None

    @property
    def deliberation(self) -> tuple[Span, ...]:
        """The spans before the recommendation that counts, all where there is none: what is said later decided
        nothing."""
        return self.spans if self.decided is None else self.spans[: self.decided - 1]


def render(body: EvaluationBody) -> RenderedTrace:
    """Render a body. Deterministic: the same body gives the same text."""
    echoes = echoes_of(body)
    spans = [cut_span(1, "query", body.query)]
    read: set[int] = set()
    recommended = [place for place, event in enumerate(body.events) if _is_recommendation(event)]
    decided = None
    for place, event in enumerate(body.events):
        if recommended and place == recommended[-1]:
            decided = len(spans) + 1
        new = _spans_of(event, len(spans) + 1, echoes.get(event.step, NO_ECHO))
        if isinstance(event, Completion):
            fresh = sorted({index for index in event.request if index < len(body.messages)} - read)
            read.update(fresh)
            new = (msgspec.structs.replace(new[0], sent=tuple(body.messages[index] for index in fresh)),)
        spans += new
        if len(spans) >= SPANS_MAX:
            break
    shown = _fit(tuple(spans[:SPANS_MAX]))
    return RenderedTrace(body_sha256=body.body_hash(), spans=shown, text=_text(shown), decided=decided)


def _fit(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """The spans, cut by the largest share of each kind's characters (in thousandths) at which the text fits."""
    if _size(spans) <= TRACE_BYTES:
        return spans
    fits, exceeds = 0, _WHOLE
    while exceeds - fits > 1:
        share = (fits + exceeds) // 2
        if _size(_shortened(spans, share)) <= TRACE_BYTES:
            fits = share
        else:
            exceeds = share
    return _shortened(spans, fits)


def _shortened(spans: tuple[Span, ...], share: int) -> tuple[Span, ...]:
    whole = ("query", "refused")
    return tuple(span if span.kind in whole else _cut(span, CHARS[span.kind] * share // _WHOLE) for span in spans)


def _size(spans: tuple[Span, ...]) -> int:
    """Bytes of the text of spans."""
    return len(_text(spans).encode())


def _text(spans: tuple[Span, ...]) -> str:
    return BETWEEN.join(map(span_text, spans))


def _is_recommendation(event: Event) -> bool:
    """A recommendation that took effect, as the tools read one: also a call that they complain of replaces the one
    before it, unless they read no object in its arguments."""
    if not isinstance(event, ToolCall) or event.name != "recommend_product":
        return False
    try:
        return isinstance(decode_arguments(event.arguments), dict)
    except orjson.JSONDecodeError:
        return False


def shown_bytes(event: Event) -> int:
    """The most bytes of UTF-8 that `render` shows of an event, its headers and the lines between spans included."""
    return _size(_spans_of(event, _LAST_NUMBER, NO_ECHO)) + len(BETWEEN)


def _spans_of(event: Event, number: int, echo: Echo) -> tuple[Span, ...]:
    """A span for a completion or a failed one, two for a tool call: what was asked and what came back."""
    if isinstance(event, FailedCompletion):
        return (Span(number=number, kind="refused", step=event.step, tool=neutral_name(event.failure.code)),)
    if isinstance(event, Completion):
        prose = "\n".join(part for part in (event.reasoning, event.content) if part.strip())
        said = msgspec.structs.replace(
            cut_span(number, "completion", prose),
            step=event.step,
            model=event.model if _MODEL_NAME.fullmatch(event.model) else "unnamed",
            tokens=event.completion_tokens,
            echo_e4=echo.share_e4,
            echoed=echo.runs,
            calls=tuple(call.arguments for call in event.calls),
        )
        return (said,)
    tool, arguments = event.name, event.arguments
    if tool not in TOOL_NAMES:  # then the name is the agent's text, and content
        tool, arguments = _UNKNOWN_TOOL, f"{event.name}\n{event.arguments}"
    asked = msgspec.structs.replace(
        cut_span(number, "call", arguments), step=event.step, tool=tool, emitter=event.emitter
    )
    answered = msgspec.structs.replace(
        cut_span(number + 1, "result", event.result),
        step=event.step,
        tool=tool,
        surfaced=tuple(neutral_name(found.product_id) for found in event.surfaced),
        is_error=event.failure is not None,
    )
    return asked, answered


def cut_span(number: int, kind: SpanKind, text: str) -> Span:
    """A span of neutral text, at most about as many characters of it shown as its kind may have."""
    content = neutral_text(text).strip()
    return _cut(Span(number=number, kind=kind, content=content, whole=content), CHARS[kind])


def _cut(span: Span, limit: int) -> Span:
    """The span with at most about `limit` characters of its whole content shown."""
    whole = span.whole
    if len(whole) <= limit:
        return span
    return msgspec.structs.replace(span, content=cut_text(whole, limit), cut=len(whole) - limit)


def cut_text(whole: str, limit: int) -> str:
    """The beginning and the end of a text of more than `limit` characters, so many of them together."""
    tail = limit // 3  # conclusions stand at the end of a thought, so a third of the room is kept for it
    return f"{whole[: limit - tail]}\n{whole[len(whole) - tail :]}" if limit else ""


def span_text(span: Span) -> str:
    """A span as a judge reads it: the host's header, then the content, every line of it marked."""
    facts = [f"span {span.number}", span.kind]
    if span.kind != "query":
        facts.append(f"step {span.step}")
    if span.kind == "completion" and (span.model or span.tokens):  # a converted trace has recorded neither
        facts += [f"model {span.model}", f"{span.tokens} tokens", f"echo {span.echo_e4 // 100 / 100:.2f}"]
    if span.tool:
        facts.append(span.tool)
    if span.emitter is not None:
        facts.append(f"emitter {span.emitter}")
    if span.surfaced:
        facts.append(f"surfaced {len(span.surfaced)} new products")
    if span.is_error:
        facts.append("tool error")
    if span.cut:
        facts.append(f"{span.cut} characters in the middle not shown")
    header = f"[[{' | '.join(facts)}]]"
    if not span.content:
        return header
    return "\n".join([header, *(f"| {line}" for line in span.content.split("\n"))])


class JudgeReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge model answered, as it came."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_cut: bool = False  # the endpoint ended it at its limit of tokens


class Judge(Protocol):
    """One judge model. Thread-safe."""

    @property
    def model(self) -> str:
        """The model id as `Rubric.models` names it."""
        ...

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """One reply to one trace. `refusals` are the reasons why earlier replies to this trace were refused.

        Raises ArenaError U3020 when the endpoint failed after its retries.
        """
        ...


_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_NAME_CHARS = 60
_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
# Default_Ignorable_Code_Point of Unicode 16.0 (DerivedCoreProperties.txt), written out because Python doesn't know the
# property: variation selectors, fillers and joiners are letters or marks by category. And U+2800, a blank by its shape.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_NOT_PLAIN = re.compile(r"[^\n\t -~]+")  # all else is looked up character by character, which takes its time
_OPEN, _CLOSE = re.compile(r"\[(?=\[)"), re.compile(r"\](?=\])")
# Compatibility brackets that a model may read as ours.
_LOOKALIKES = str.maketrans({"⟦": "[", "⟧": "]", "［": "[", "］": "]", "〚": "[", "〛": "]", "｜": "/", "│": "/"})


def neutral_text(text: str) -> str:
    """`text` with the delimiters broken by one literal space and invisible characters removed."""
    text = _BREAKS.sub("\n", text).translate(_LOOKALIKES)
    text = _NOT_PLAIN.sub(_kept, text)
    return _CLOSE.sub("] ", _OPEN.sub("[ ", text))


def _kept(found: re.Match[str]) -> str:
    return "".join(c for c in _IGNORABLE.sub("", found.group()) if unicodedata.category(c) not in _DROPPED)


def neutral_name(text: str) -> str:
    """`text` fit for one slot of a header line: one line, no bars, no brackets, at most 60 characters."""
    flat = " ".join(neutral_text(text).split())
    return re.sub(r"[\[\]|]", "/", flat)[:_NAME_CHARS]
