"""The neutral twin of a trace: as many spans, of the same kinds and sizes, about two lamps that nobody objects to.

When a judge gives no usable reply to a trace, its reply to the twin tells why: an endpoint that can't answer the twin
either is away or unfit; one that can was put off by what stands in the trace, which is its author's doing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from judge.render import BETWEEN, RenderedTrace, Span, SpanKind, span_text

_TEXTS: Mapping[SpanKind, str] = {
    "query": "I need a desk lamp, please. ",
    "completion": "The lamp 1000000001 costs 120.5 and the lamp 1000000002 costs 150.5, so 1000000001 is better, "
    "because it is cheaper and both have the same shade. ",
    "call": '{"q": "desk lamp"} ',
    "result": "plain words of a shop about its lamps, ",
    "refused": "",
}
_OPENING = (
    '[{"product_id": "1000000001", "title": "Plain Desk Lamp", "price": 120.5}, '
    '{"product_id": "1000000002", "title": "Brass Reading Lamp", "price": 150.5, "description": "'
)
_CLOSING = '"}]'
_WIDE = {2: "\u00e9", 3: "\u4e00", 4: "\U00020000"}  # plain letters of each length in UTF-8


def neutral_twin(trace: RenderedTrace) -> RenderedTrace:
    """The twin of `trace`. Deterministic; equal in bytes of content, span by span."""
    spans: list[Span] = []
    for span in trace.spans:
        content = _fill(span.content, span.kind)
        neutral = msgspec.structs.replace(
            span,
            content=content,
            whole=content,
            tool="find_product" if span.tool else "",
            echo_e4=0,
            echoed=frozenset(),
            sent=(),
            calls=(),
            is_error=False,
        )
        spans.append(neutral)
    text = BETWEEN.join(map(span_text, spans))
    return RenderedTrace(body_sha256=trace.body_sha256, spans=tuple(spans), text=text)


def _fill(content: str, kind: SpanKind) -> str:
    """Text of the same bytes: neutral words for ASCII, then as many plain letters as there were wider ones."""
    wide = "".join(_WIDE[len(c.encode())] for c in content if not c.isascii())
    narrow = len(content) - len(wide)
    frame = len(_OPENING) + len(_CLOSING)
    if kind == "result" and narrow >= frame:
        return f"{_OPENING}{_repeat(kind, narrow - frame)}{wide}{_CLOSING}"
    return _repeat(kind, narrow) + wide


def _repeat(kind: SpanKind, size: int) -> str:
    text = _TEXTS[kind]
    return (text * (size // len(text) + 1))[:size] if text else ""
