"""Citations, checked by code: a quote stands verbatim in the span it names, or the reply is refused.

Whitespace runs count as one space; nothing else is forgiven. Every gate a judge lets pass needs the model's own words
in support, and a cited datum must really have been returned by a tool before it was said.
"""

from __future__ import annotations

from judge.evidence import Evidence, evidence_of
from judge.parse import ParsedReply, RefusedReplyError
from judge.render import RenderedTrace, Span
from judge.rubric import Gate
from judge.verdict import Citation

QUOTE_LENGTH_MIN = 12
QUOTE_LENGTH_MAX = 1_000
CITATIONS_MAX = 24
_GATES_WITH_CITATION: tuple[Gate, ...] = ("results_analysed", "data_cited", "candidates_compared")


def check_citations(reply: ParsedReply, trace: RenderedTrace) -> None:
    """Check every citation of a reply, and that every passed gate is supported.

    Raises RefusedReplyError naming the first citation or gate that fails. A trace whose inference gate the host has
    found to hold may not be judged as if it did not.
    """
    if not reply.gates.inference_present:
        raise RefusedReplyError("inference_present is a recorded fact and true for this trace")
    if len(reply.citations) > CITATIONS_MAX:
        raise RefusedReplyError(f"{len(reply.citations)} citations are more than {CITATIONS_MAX}")
    spans = {span.number: span for span in trace.spans}
    for citation in reply.citations:
        _check_verbatim(citation, spans)
    passed = reply.gates.passed()
    evidence = evidence_of(trace)
    for gate in _GATES_WITH_CITATION:
        if gate in passed:
            _check_support(gate, reply.citations, spans, evidence)


def is_verbatim(quote: str, content: str) -> bool:
    """True when `quote` stands in `content`, whitespace runs counted as one space."""
    return _squeeze(quote) in _squeeze(content)


def _check_verbatim(citation: Citation, spans: dict[int, Span]) -> None:
    length = len(_squeeze(citation.quote))
    if not QUOTE_LENGTH_MIN <= length <= QUOTE_LENGTH_MAX:
        raise RefusedReplyError(
            f"a quote for span {citation.span} has {length} characters, not {QUOTE_LENGTH_MIN} to {QUOTE_LENGTH_MAX}"
        )
    span = spans.get(citation.span)
    if span is None:
        raise RefusedReplyError(f"there is no span {citation.span}")
    if not is_verbatim(citation.quote, span.content):
        raise RefusedReplyError(f"the quote {citation.quote[:60]!r} does not stand in span {citation.span}")


def _check_support(gate: Gate, citations: tuple[Citation, ...], spans: dict[int, Span], evidence: Evidence) -> None:
    own = [c for c in citations if c.gate == gate and spans[c.span].kind == "completion"]
    if not own:
        raise RefusedReplyError(f"gate {gate} is true but no completion span is cited for it")
    first_result = min((number for number, span in spans.items() if span.kind == "result"), default=len(spans) + 1)
    if not any(citation.span > first_result for citation in own):
        raise RefusedReplyError(f"gate {gate} cites only words said before any tool had answered")
    if gate == "data_cited" and not any(evidence.cited_in(c.quote, c.span) for c in own):
        raise RefusedReplyError("no quote for data_cited contains a datum from an earlier tool result")


def _squeeze(text: str) -> str:
    return " ".join(text.split())
