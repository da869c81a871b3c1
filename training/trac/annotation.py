"""Five annotators, one after the other, each with one question, each citing the trace word for word (paper, A.1).

An annotation that is returned cites passages that stand verbatim in the spans it names, at least one of them
where its question is decided. A reply that does not is refused with the reason and asked for again, and then given up
(U3050): no repair, no annotation without its evidence. The supervisor reads the four others and decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from foundation.errors import ArenaError
from judge.citations import QUOTE_LENGTH_MAX, QUOTE_LENGTH_MIN, is_verbatim
from judge.parse import RefusedReplyError
from judge.render import RenderedTrace, SpanKind
from training.trac.asking import Asker, Chat
from training.trac.model import DIMENSIONS, Annotation, Dimension, OracleRules, SpanQuote
from training.trac.prompts import prompt_text
from training.trac.reading import read_json

CITATIONS_MAX = 8
_EXPLANATION_CHARS = 2_000
_FORM = '{"score": 0.0, "citations": [{"span": 1, "quote": "..."}], "explanation": "..."'


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


def annotate(trace: RenderedTrace, model: str, rules: OracleRules, asker: Asker) -> tuple[Annotation, ...]:
    """All five annotations, the supervisor's last.

    Raises ArenaError U3050 naming the dimension and why its last reply was refused, and what `Asker.ask` raises.
    """
    found: list[Annotation] = []
    for dimension in DIMENSIONS:
        chat = annotator_chat(trace, dimension, found)
        reason = ""
        for _ in range(rules.replies_max):
            text = asker.ask(model, chat, rules.reply_tokens_max)
            try:
                found.append(check_annotation(text, trace, dimension))
                break
            except RefusedReplyError as refused:
                reason = str(refused)
                chat = refused_chat(chat, text, reason)
        else:
            raise ArenaError("U3050", f"{dimension}: {reason}")
    return tuple(found)


def annotator_chat(trace: RenderedTrace, dimension: Dimension, earlier: Sequence[Annotation]) -> Chat:
    """The conversation that asks for one annotation."""
    question = QUESTIONS[dimension]
    is_supervisor = dimension == "supervisor"
    form = _FORM + (', "train_use_decision": false}' if is_supervisor else "}")
    system = prompt_text("annotate").format(question=question.text, form=form, kinds=" or ".join(question.kinds))
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


def refused_chat(chat: Chat, text: str, reason: str) -> Chat:
    """The conversation that asks again, with what was wrong."""
    again = f"That reply is refused: {reason}. Answer again with the JSON object alone."
    return *chat, ("assistant", text), ("user", again)
