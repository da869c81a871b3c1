"""How far a trace can get, whoever judges it: the highest quality that its own words can carry.

Promise: a pure function of body and rubric. It asks of whole completions what `judge.citations` asks of quotes, so no
reply that passes there lies above it, and text that the agent's program plants in arguments, tool names, prompts or
results raises neither.
"""

from __future__ import annotations

from harness.trace import EvaluationBody
from judge.citations import ECHO_LIMIT_E4, neighbours, own_text, supports
from judge.evidence.results import evidence_of
from judge.render import RenderedTrace, render
from judge.rubric import Rubric, quality_of


def ceiling_e4(body: EvaluationBody, rubric: Rubric) -> int:
    """The highest quality, in ten-thousandths, that any usable reply can give this body."""
    trace = render(body)
    if not is_inference_present(trace, rubric):
        return quality_of(0)
    evidence = evidence_of(trace)
    completions = [span.number for span in trace.spans if span.kind == "completion"]
    own = [(text, span.number) for span in trace.spans if (text := own_text(span))]
    if not supports("results_analysed", own, evidence):
        return quality_of(1)
    if not supports("data_cited", own, evidence):
        return quality_of(2)
    compared = (supports("candidates_compared", passages, evidence) for passages in neighbours(own, completions))
    return quality_of(4 if any(compared) else 3)


def is_inference_present(trace: RenderedTrace, rubric: Rubric) -> bool:
    """The first gate: some completion of at least `inference_tokens_min` tokens is not mostly its own request."""
    return any(
        span.kind == "completion" and span.tokens >= rubric.inference_tokens_min and span.echo_e4 < ECHO_LIMIT_E4
        for span in trace.spans
    )
