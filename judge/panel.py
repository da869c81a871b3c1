"""The panel: one body in, one verdict out, or why there is none yet.

What code can decide, code decides: a trace without inference has quality 0.1 and no model is asked. The models of the
rubric are asked at the same time; a reply that breaks the form or cites what is not there is refused and asked again
with the reason. The lower median of the opinions counts, the spread is recorded.

A model that gives no usable reply is asked about the trace's neutral twin. If it fails there too, the endpoint or the
model is at fault: the verdict stays owed (U3020, U3021), because the stored body can be judged later, and nothing
becomes a low score. If it answers, the trace put it off: that model abstains, and once half of the panel does, each
abstention counts as the lowest quality. So a trace that no model will read costs its author, and nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median_low

import msgspec

from foundation.canonical import text_hash
from foundation.errors import ArenaError, Failure
from harness.trace import EvaluationBody
from judge.citations import check_citations, is_inference_present
from judge.parse import RefusedReplyError, parse_reply
from judge.render import BETWEEN, Judge, RenderedTrace, Span, render, span_text
from judge.rubric import Rubric, coefficient_e4, quality_of
from judge.verdict import Opinion, Refusal, UnscoredVerdict, Verdict

_NEUTRAL = (
    "The lamp 1000000001 costs 120.5 and the lamp 1000000002 costs 150.5, so 1000000001 is better, "
    "because it is cheaper and both have the same shade. "
)
_OPENING = (
    '[{"product_id": "1000000001", "title": "Plain Desk Lamp", "price": 120.5}, '
    '{"product_id": "1000000002", "title": "Brass Reading Lamp", "price": 150.5, "description": "'
)
_CLOSING = '"}]'
_WIDE = {2: "\u00e9", 3: "\u4e00", 4: "\U00020000"}  # plain letters of each length in UTF-8


def judge_body(body: EvaluationBody, rubric: Rubric, judges: Sequence[Judge]) -> Verdict | UnscoredVerdict:
    """Judge one body by every model `rubric.models` names.

    Returns an UnscoredVerdict with U3020 when a model is missing or its endpoint failed, with U3021 when half or more
    of the models gave no usable reply, unless half or more abstain and abstentions and opinions make more than half.
    Never raises for what a judge answered.
    """
    trace = render(body)
    if not is_inference_present(trace, rubric):
        return _verdict(trace, rubric, (), ())
    by_model = {judge.model: judge for judge in judges}
    if missing := [model for model in rubric.models if model not in by_model]:
        return _unscored(trace, rubric, Failure(code="U3020", detail=f"no endpoint for judge model {missing[0]}"))
    with ThreadPoolExecutor(max(1, len(rubric.models)), thread_name_prefix="judge") as pool:
        answers = list(pool.map(lambda model: consult(by_model[model], trace, rubric), rubric.models))
    if failed := [answer for answer in answers if isinstance(answer, Failure)]:
        return _unscored(trace, rubric, failed[0])
    opinions = [answer for answer in answers if isinstance(answer, Opinion)]
    refused = [answer for answer in answers if isinstance(answer, Refusal)]
    abstained = sum(refusal.is_by_trace for refusal in refused)
    if 2 * len(opinions) > len(rubric.models):
        return _verdict(trace, rubric, tuple(opinions), tuple(refused))
    if 2 * abstained >= len(rubric.models) and 2 * (len(opinions) + abstained) > len(rubric.models):
        return _verdict(trace, rubric, tuple(opinions), tuple(refused), abstained)
    detail = "; ".join(f"{refusal.model}: {refusal.reason}" for refusal in refused)
    return _unscored(trace, rubric, Failure(code="U3021", detail=detail), tuple(refused))


def consult(judge: Judge, trace: RenderedTrace, rubric: Rubric) -> Opinion | Refusal | Failure:
    """What one model says of a trace; where it says nothing usable, whether that is the trace's doing.

    A model that gives the neutral twin (equal in spans and bytes) a usable reply, and after that fails on the trace
    once more, abstains by the trace. One whose endpoint fails on the twin too is a Failure U3020.
    """
    first = ask(judge, trace, rubric)
    if isinstance(first, Opinion):
        return first
    control = ask(judge, neutral_twin(trace), rubric)
    if isinstance(control, Failure):
        return first if isinstance(first, Failure) else control
    if isinstance(control, Refusal):
        return first if isinstance(first, Refusal) else Failure(code="U3020", detail=first.detail)
    again = ask(judge, trace, rubric)
    if isinstance(again, Opinion):
        return again
    reason = again.reason if isinstance(again, Refusal) else again.detail
    return Refusal(model=judge.model, attempts=2 * rubric.attempts_per_model, reason=reason[:500], is_by_trace=True)


def ask(judge: Judge, trace: RenderedTrace, rubric: Rubric) -> Opinion | Refusal | Failure:
    """Ask one model until a reply is usable, at most `attempts_per_model` times; a Failure of its endpoint."""
    reasons: list[str] = []
    for attempt in range(1, rubric.attempts_per_model + 1):
        try:
            reply = judge.opine(trace, rubric, tuple(reasons))
            parsed = parse_reply(reply.text, is_cut=reply.is_cut)
            check_citations(parsed, trace)
        except RefusedReplyError as error:
            reasons.append(str(error))
            continue
        except ArenaError as error:
            return error.failure
        return Opinion(
            model=judge.model,
            quality_e4=parsed.quality_e4,
            citations=parsed.citations,
            explanation=parsed.explanation,
            attempts=attempt,
            reply_sha256=text_hash(reply.text),
        )
    return Refusal(model=judge.model, attempts=len(reasons), reason=reasons[-1][:500])


def _verdict(
    trace: RenderedTrace,
    rubric: Rubric,
    opinions: tuple[Opinion, ...],
    refused: tuple[Refusal, ...],
    lowest: int = 0,
) -> Verdict:
    """`lowest` models abstained by the trace and count as the lowest quality."""
    qualities = [opinion.quality_e4 for opinion in opinions] + [quality_of(0)] * lowest or [quality_of(0)]
    quality_e4 = median_low(qualities)
    return Verdict(
        body_sha256=trace.body_sha256,
        rubric_id=rubric.rubric_id,
        prompt_sha256=rubric.prompt_sha256,
        quality_e4=quality_e4,
        coefficient_e4=coefficient_e4(quality_e4),
        spread_e4=max(qualities) - min(qualities),
        opinions=opinions,
        refused=refused,
    )


def _unscored(
    trace: RenderedTrace, rubric: Rubric, failure: Failure, refused: tuple[Refusal, ...] = ()
) -> UnscoredVerdict:
    trimmed = msgspec.structs.replace(failure, detail=failure.detail[:1_000])
    return UnscoredVerdict(body_sha256=trace.body_sha256, rubric_id=rubric.rubric_id, failure=trimmed, refused=refused)


# -- the neutral twin: as many spans, of the same kinds and sizes, about two lamps that nobody objects to. A judge that
# cannot answer it either is away or unfit; one that can was put off by what stands in the trace.


def neutral_twin(trace: RenderedTrace) -> RenderedTrace:
    """The twin of `trace`. Deterministic; equal in bytes of content, span by span."""
    spans: list[Span] = []
    for span in trace.spans:
        # neutral words for ASCII, then as many plain letters as there were wider ones
        wide = "".join(_WIDE[len(c.encode())] for c in span.content if not c.isascii())
        size = len(span.content) - len(wide)
        is_list = span.kind == "result" and size >= len(_OPENING) + len(_CLOSING)
        opening, closing = (_OPENING, _CLOSING) if is_list else ("", "")
        filled = size - len(opening) - len(closing)
        content = f"{opening}{(_NEUTRAL * (filled // len(_NEUTRAL) + 1))[:filled]}{wide}{closing}"
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
    return msgspec.structs.replace(trace, spans=tuple(spans), text=text)
