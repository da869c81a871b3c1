"""What models write about a trace: five annotations that cite it word for word, and a tasklet made of it (paper, A.1).

A trace is read as numbered spans in the judge's own form: headers are ours, content is neutral text, so nothing in it
can pass for an instruction; who wrote it, its coefficient and its outcome are never shown. A reply that does not hold
is refused with the reason and asked for again, and then given up: no repair. A tasklet's targets are the products that
the trace recommends, and it is grounded where searches by its prompt's words find them. Shares are ten-thousandths.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Literal, NamedTuple, get_args

import msgspec

from harness.catalogue.port import Catalogue, SearchRequest
from judge.citations import QUOTE_LENGTH_MAX, QUOTE_LENGTH_MIN, is_verbatim
from judge.neutral import neutral_name
from judge.parse import RefusedReplyError
from judge.render import DEFAULT_CAPS, RenderedTrace, SpanKind, cut_span, span_text
from training.corpus.model import Trace
from training.trac.asking import Chat, read_json

Dimension = Literal["intent", "search", "observation", "justification", "supervisor"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

PROMPT_CHARS = (20, 2_000)
TERMS_MAX = 12
CITATIONS_MAX = 8
_EXPLANATION_CHARS = 2_000
_WORD = re.compile(r"\w+")
_FORM = '{"score": 0.0, "citations": [{"span": 1, "quote": "..."}], "explanation": "..."'


class SpanQuote(msgspec.Struct, frozen=True, kw_only=True):
    """A passage of the trace, verbatim, and the span it is in."""

    span: int
    quote: str


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """What one annotator says. `train_use_decision` is the supervisor's alone."""

    dimension: Dimension
    score_e4: int
    citations: tuple[SpanQuote, ...]
    explanation: str
    train_use_decision: bool | None = None


class Tasklet(msgspec.Struct, frozen=True, kw_only=True):
    """A task of its own: what is asked, the words that find each target, and the products that answer it."""

    prompt: str
    search_terms: tuple[str, ...]
    target_ids: tuple[str, ...]


class Question(NamedTuple):
    """What a dimension asks, and the kinds of span of which one must be cited."""

    text: str
    kinds: tuple[SpanKind, ...]


QUESTIONS: dict[Dimension, Question] = {
    "intent": Question(
        "Did the agent understand what the user wants: product type, every attribute, price, services, shop, budget?",
        ("completion", "call"),
    ),
    "search": Question(
        "Are the searches well chosen: specific words, filters where they help, reformulated when results were poor?",
        ("call",),
    ),
    "observation": Question(
        "Did the agent read the results rightly: no datum misread, overlooked or made up?",
        ("completion", "result"),
    ),
    "justification": Question(
        "Is the recommendation justified by what the tools returned, against the candidates that were seen?",
        ("completion",),
    ),
    "supervisor": Question(
        "Weigh the four annotations below against the record. Should a model be trained on this run? Set"
        " train_use_decision to true only for a run worth imitating as a whole.",
        ("completion", "call", "result"),
    ),
}


class _AnnotationReply(msgspec.Struct, frozen=True, kw_only=True):
    score: float
    citations: tuple[SpanQuote, ...]
    explanation: str
    train_use_decision: bool | None = None


class _CompilationReply(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
    search_terms: tuple[str, ...]


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


def annotator_chat(trace: RenderedTrace, dimension: Dimension, earlier: Sequence[Annotation]) -> Chat:
    """The conversation that asks for one annotation; the supervisor is shown the `earlier` ones."""
    question = QUESTIONS[dimension]
    is_supervisor = dimension == "supervisor"
    form = _FORM + (', "train_use_decision": false}' if is_supervisor else "}")
    system = _prompt_text("annotate").format(question=question.text, form=form, kinds=" or ".join(question.kinds))
    shown = trace.text
    if is_supervisor:
        plain = [
            {"dimension": one.dimension, "score": one.score_e4 / 10_000, "why": one.explanation} for one in earlier
        ]
        shown += f"\n\n[[annotations of the four others]]\n{msgspec.json.encode(plain).decode()}"
    return ("system", system), ("user", shown)


def check_annotation(text: str, trace: RenderedTrace, dimension: Dimension) -> Annotation:
    """An annotation whose citations hold. Raises RefusedReplyError naming the first thing that is wrong."""
    reply = read_json(text, _AnnotationReply)
    if not 0 <= reply.score <= 1:
        raise RefusedReplyError(f"score {reply.score} is not between 0 and 1")
    if (reply.train_use_decision is not None) != (dimension == "supervisor"):
        raise RefusedReplyError("train_use_decision is the supervisor's, and only the supervisor's")
    if not 1 <= len(reply.citations) <= CITATIONS_MAX:
        raise RefusedReplyError(f"{len(reply.citations)} citations are not 1 to {CITATIONS_MAX}")
    spans = {span.number: span for span in trace.spans}
    for one in reply.citations:
        length = len(" ".join(one.quote.split()))
        if not QUOTE_LENGTH_MIN <= length <= QUOTE_LENGTH_MAX:
            raise RefusedReplyError(f"a quote for span {one.span} has {length} characters")
        if one.span not in spans or not is_verbatim(one.quote, spans[one.span].content):
            raise RefusedReplyError(f"the quote {one.quote[:60]!r} does not stand in span {one.span}")
    kinds = QUESTIONS[dimension].kinds
    if not any(spans[one.span].kind in kinds for one in reply.citations):
        raise RefusedReplyError(f"no citation is of a span of kind {' or '.join(kinds)}")
    return Annotation(
        dimension=dimension,
        score_e4=round(reply.score * 10_000),
        citations=reply.citations,
        explanation=reply.explanation[:_EXPLANATION_CHARS],
        train_use_decision=reply.train_use_decision,
    )


def author_chat(trace: RenderedTrace, targets: tuple[str, ...]) -> Chat:
    """The conversation that asks for a tasklet."""
    return ("system", _prompt_text("tasklet").format(targets=", ".join(targets))), ("user", trace.text)


def check_tasklet(text: str, targets: tuple[str, ...]) -> Tasklet:
    """A tasklet of the agreed form. Raises RefusedReplyError; grounding is `ungrounded`'s."""
    reply = read_json(text, _CompilationReply)
    prompt = " ".join(reply.prompt.split())
    if not PROMPT_CHARS[0] <= len(prompt) <= PROMPT_CHARS[1]:
        raise RefusedReplyError(f"the prompt has {len(prompt)} characters, not {PROMPT_CHARS[0]} to {PROMPT_CHARS[1]}")
    if named := [one for one in targets if one in prompt]:
        raise RefusedReplyError(f"the prompt names the product {named[0]}")
    terms = tuple(dict.fromkeys(" ".join(one.split()) for one in reply.search_terms if one.strip()))
    if not 1 <= len(terms) <= TERMS_MAX:
        raise RefusedReplyError(f"{len(terms)} search terms are not 1 to {TERMS_MAX}")
    words = set(_WORD.findall(prompt.casefold()))
    for term in terms:
        if unseen := sorted(set(_WORD.findall(term.casefold())) - words):
            raise RefusedReplyError(f"the search term {term!r} uses {unseen[0]!r}, which the prompt does not")
    return Tasklet(prompt=prompt, search_terms=terms, target_ids=targets)


def ungrounded(tasklet: Tasklet, catalogue: Catalogue, pages: int) -> tuple[str, ...]:
    """The targets that no search by the prompt's words brings to its first `pages` pages; none if it is grounded."""
    found = {
        product.product_id
        for term in tasklet.search_terms
        for page in range(1, pages + 1)
        for product in catalogue.search(SearchRequest(q=term, page=str(page)))
    }
    return tuple(one for one in tasklet.target_ids if one not in found)


@functools.cache
def _prompt_text(name: str) -> str:
    """The prompt of a name, package data, with its slots in braces."""
    return files("training.trac").joinpath("prompts", f"{name}.txt").read_text("utf-8")
