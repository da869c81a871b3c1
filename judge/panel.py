"""The panel: one body in, one verdict out, or why there is none yet.

What code can decide, code decides: a trace without inference has quality 0.1 and no model is asked. Each model of the
rubric is asked; a reply that breaks the form or cites what is not there is refused and asked again with the reason. The
lower median of the opinions counts, the spread is recorded. Rules of ours: an endpoint that fails leaves the verdict
owed (U3020), because the stored body can be judged later; models whose replies stay unusable are named, and the verdict
stands only while more than half of the panel has spoken (else U3021). Nothing here ever turns into a low score.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.trace import EvaluationBody
from judge.citations import check_citations
from judge.parse import ParsedReply, RefusedReplyError, parse_reply
from judge.port import Judge
from judge.render import RenderedTrace, render
from judge.rubric import Rubric, coefficient_e4, quality_of
from judge.verdict import Opinion, Refusal, UnscoredVerdict, Verdict
from problems.canonical import text_hash
from problems.errors import ArenaError, Failure

# Above this share a completion repeats its request and is no inference.
ECHO_LIMIT_E4 = 5_000


def judge_body(body: EvaluationBody, rubric: Rubric, judges: Sequence[Judge]) -> Verdict | UnscoredVerdict:
    """Judge one body by every model `rubric.models` names.

    Returns an UnscoredVerdict with U3020 when a model is missing or its endpoint failed, with U3021 when half or more
    of the models gave no usable reply. Never raises for what a judge answered.
    """
    trace = render(body)
    if not is_inference_present(trace, rubric):
        return _verdict(trace, rubric, (), ())
    by_model = {judge.model: judge for judge in judges}
    opinions: list[Opinion] = []
    refused: list[Refusal] = []
    for model in rubric.models:
        judge = by_model.get(model)
        if judge is None:
            return _unscored(trace, rubric, Failure(code="U3020", detail=f"no endpoint for judge model {model}"))
        try:
            answer = ask(judge, trace, rubric)
        except ArenaError as error:
            return _unscored(trace, rubric, error.failure)
        if isinstance(answer, Opinion):
            opinions.append(answer)
        else:
            refused.append(answer)
    if 2 * len(opinions) <= len(rubric.models):
        detail = "; ".join(f"{refusal.model}: {refusal.reason}" for refusal in refused)
        return _unscored(trace, rubric, Failure(code="U3021", detail=detail), tuple(refused))
    return _verdict(trace, rubric, tuple(opinions), tuple(refused))


def is_inference_present(trace: RenderedTrace, rubric: Rubric) -> bool:
    """The first gate: some completion of at least `inference_tokens_min` tokens is not mostly its own request."""
    return any(
        span.kind == "completion" and span.tokens >= rubric.inference_tokens_min and span.echo_e4 < ECHO_LIMIT_E4
        for span in trace.spans
    )


def ask(judge: Judge, trace: RenderedTrace, rubric: Rubric) -> Opinion | Refusal:
    """Ask one model until a reply is usable, at most `attempts_per_model` times. Raises ArenaError U3020."""
    reasons: list[str] = []
    for attempt in range(1, rubric.attempts_per_model + 1):
        reply = judge.opine(trace, rubric, tuple(reasons))
        try:
            parsed = parse_reply(reply.text)
            check_citations(parsed, trace)
        except RefusedReplyError as error:
            reasons.append(str(error))
            continue
        return _opinion(judge.model, parsed, attempt, reply.text)
    return Refusal(model=judge.model, attempts=len(reasons), reason=reasons[-1][:500])


def lower_median(values: Sequence[int]) -> int:
    """The middle value, the lower of the two middle ones when the count is even. Raises ValueError for none."""
    if not values:
        raise ValueError("the median of nothing is not defined")
    return sorted(values)[(len(values) - 1) // 2]


def _opinion(model: str, parsed: ParsedReply, attempts: int, text: str) -> Opinion:
    return Opinion(
        model=model,
        quality_e4=parsed.quality_e4,
        citations=parsed.citations,
        explanation=parsed.explanation,
        attempts=attempts,
        reply_sha256=text_hash(text),
    )


def _verdict(
    trace: RenderedTrace, rubric: Rubric, opinions: tuple[Opinion, ...], refused: tuple[Refusal, ...]
) -> Verdict:
    qualities = [opinion.quality_e4 for opinion in opinions] or [quality_of(0)]
    quality_e4 = lower_median(qualities)
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
