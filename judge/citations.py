"""Citations, checked by code: a quote stands verbatim in the span it names, or the reply is refused.

Whitespace runs count as one space; nothing else is forgiven. What a quote says is read in the whole sentences that it
stands in, so nobody makes a datum by cutting one. Every gate a judge lets pass needs the model's own words in support:
said after a tool had answered and before the recommendation that counts, not repeated from its request, and of a
content that code can check (`supports`). So no judge, however gullible, can pass a gate that the trace's words do not
carry, and how far a trace can get (`ceiling_e4`) is known without asking one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from harness.trace import EvaluationBody
from judge.echo import own_words
from judge.evidence.mentions import whole_sentences
from judge.evidence.results import Evidence, Passage
from judge.parse import ParsedReply, RefusedReplyError
from judge.render import RenderedTrace, Span, cut_text, render
from judge.rubric import GATES, Gate, Rubric, quality_of
from judge.verdict import Citation

QUOTE_LENGTH_MIN = 12
QUOTE_LENGTH_MAX = 1_000
CITATIONS_MAX = 24
ECHO_LIMIT_E4 = 5_000  # from this share on a completion repeats its request
_LACKING: Mapping[Gate, str] = {
    "results_analysed": "no quote for results_analysed holds a word or number of an earlier tool result",
    "data_cited": "no quote for data_cited contains a datum from an earlier tool result",
    "candidates_compared": "no quote for candidates_compared names two different returned products, each by its id, "
    "price or title, or tells the first from the other by what one has and the other lacks",
}


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
        check_quote(citation.quote, citation.span, spans)
    passed = reply.gates.passed()
    evidence = Evidence(trace)
    for gate in GATES[1:]:
        if gate in passed:
            _check_support(gate, reply.citations, trace, evidence)


def check_quote(quote: str, number: int, spans: Mapping[int, Span]) -> None:
    """Raises RefusedReplyError for a quote that is too short or long, or does not stand in the span of that number."""
    length = len(_squeeze(quote))
    if not QUOTE_LENGTH_MIN <= length <= QUOTE_LENGTH_MAX:
        limits = f"{QUOTE_LENGTH_MIN} to {QUOTE_LENGTH_MAX}"
        raise RefusedReplyError(f"a quote for span {number} has {length} characters, not {limits}")
    if number not in spans:
        raise RefusedReplyError(f"there is no span {number}")
    if not is_verbatim(quote, spans[number].content):
        raise RefusedReplyError(f"the quote {quote[:60]!r} does not stand in span {number}")


def is_verbatim(quote: str, content: str) -> bool:
    """True when `quote` stands in `content`, whitespace runs counted as one space."""
    return _squeeze(quote) in _squeeze(content)


def own_text(span: Span) -> str:
    """What of a span only the model can have said: nothing of a call or result, nor of a completion that mostly repeats
    its request; else its shown words less those that it repeats, which are found before a span is cut: a run that was
    cut in two is still no words of its own."""
    if span.kind != "completion" or span.echo_e4 >= ECHO_LIMIT_E4:
        return ""
    if not (span.cut and span.echoed):
        return own_words(span.content, span.echoed)
    return cut_text(own_words(span.whole, span.echoed), len(span.whole) - span.cut)


def supports(gate: Gate, passages: Sequence[Passage], evidence: Evidence) -> bool:
    """The necessary condition of a gate for the model's words.

    results_analysed: a passage holds a word or number of an earlier result. data_cited: a passage holds a datum
    (`judge.evidence`). candidates_compared: the passages together mean two different returned products, each by its id,
    price or title, or tell "the first" from "the other" by an attribute or service. Who compares has cited and
    analysed. Raises KeyError for a gate that needs no citation.
    """
    if gate == "candidates_compared":
        return evidence.weighs_two(passages)
    found = {"results_analysed": evidence.grounded_words, "data_cited": evidence.cited_in}[gate]
    return any(found(text, before) or evidence.weighs_two([(text, before)]) for text, before in passages)


def backs(gate: Gate, quote: str, span: Span, evidence: Evidence) -> bool:
    """Whether a quote supports a gate alone: the whole sentences that it stands in, in the model's own words, do."""
    return supports(gate, [(whole_sentences(quote, own_text(span)), span.number)], evidence)


def neighbours(passages: Sequence[Passage], completions: Sequence[int]) -> Iterator[Sequence[Passage]]:
    """The passages of each two completions that follow each other; `completions` are their spans, in order."""
    for one, two in zip(completions, [*completions[1:], *completions[-1:]], strict=True):
        yield [(text, before) for text, before in passages if before in (one, two)]


def _check_support(gate: Gate, citations: tuple[Citation, ...], trace: RenderedTrace, evidence: Evidence) -> None:
    spans = {span.number: span for span in trace.spans}
    said = [(whole_sentences(c.quote, own_text(spans[c.span])), c.span) for c in citations if c.gate == gate]
    own = [(text, number) for text, number in said if text]
    if not own:
        raise RefusedReplyError(f"gate {gate} is true but no completion span is cited for it, or only repeated words")
    first_result = min((number for number, span in spans.items() if span.kind == "result"), default=len(spans) + 1)
    if not any(number > first_result for _, number in own):
        raise RefusedReplyError(f"gate {gate} cites only words said before any tool had answered")
    completions = [span.number for span in trace.deliberation if span.kind == "completion"]
    own = [(text, number) for text, number in own if number in completions]
    if not own:
        raise RefusedReplyError(f"gate {gate} cites only words said after the recommendation that counts")
    if not _carry(own, gate, completions, evidence):
        raise RefusedReplyError(_LACKING[gate])


def _carry(own: Sequence[Passage], gate: Gate, completions: Sequence[int], evidence: Evidence) -> bool:
    together = neighbours(own, completions) if gate == "candidates_compared" else [own]
    return any(supports(gate, passages, evidence) for passages in together)


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def ceiling_e4(body: EvaluationBody, rubric: Rubric) -> int:
    """The highest quality, in ten-thousandths, that any usable reply can give this body, from any judge.

    It asks of whole completions what `check_citations` asks of quotes, so no reply that passes there lies above it, and
    text that the agent's program plants in arguments, tool names, prompts or results raises neither.
    """
    trace = render(body)
    if not is_inference_present(trace, rubric):
        return quality_of(0)
    evidence = Evidence(trace)
    completions = [span.number for span in trace.deliberation if span.kind == "completion"]
    own = [(text, span.number) for span in trace.deliberation if (text := own_text(span))]
    return quality_of(1 + len([*takewhile(lambda gate: _carry(own, gate, completions, evidence), GATES[1:])]))


def is_inference_present(trace: RenderedTrace, rubric: Rubric) -> bool:
    """The first gate: before the recommendation that counts some completion of at least `inference_tokens_min` tokens
    is not mostly its own request."""
    return any(is_reasoning(span, rubric) for span in trace.deliberation)


def is_reasoning(span: Span, rubric: Rubric) -> bool:
    """A completion long enough to reason that is not mostly its own request."""
    return span.kind == "completion" and span.tokens >= rubric.inference_tokens_min and span.echo_e4 < ECHO_LIMIT_E4
