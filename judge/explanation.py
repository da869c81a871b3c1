"""Why a verdict is what it is: what code required, which words carry which gate, what each model said and was refused.

Pure: from a body, the rubric and the verdicts on it; nothing is asked of anybody.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.trace import EvaluationBody
from judge.citations import ceiling_e4, is_reasoning, is_verbatim, own_text
from judge.render import render
from judge.rubric import GATES, Gate, Rubric, quality_of
from judge.verdict import Citation, UnscoredVerdict, Verdict


class CompletionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What code knows of a completion: whether it is inference, how many characters of it are the model's own, and
    whether it was said before the recommendation that counts."""

    span: int
    step: int
    tokens: int
    echo_e4: int
    is_inference: bool
    own_chars: int
    is_before_recommendation: bool


class PlacedQuote(msgspec.Struct, frozen=True, kw_only=True):
    """A quote of an opinion. `is_there`: it stands in its span, checked again."""

    model: str
    citation: Citation
    is_there: bool


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A body's judgement. `possible` are the gates whose necessary conditions its words meet."""

    body_sha256: str
    completions: tuple[CompletionFacts, ...]
    possible: tuple[Gate, ...]
    ceiling_e4: int
    verdicts: tuple[Verdict | UnscoredVerdict, ...]  # oldest first
    quotes: tuple[PlacedQuote, ...]  # of the newest verdict


def explain_verdicts(
    body: EvaluationBody, rubric: Rubric, verdicts: Sequence[Verdict | UnscoredVerdict]
) -> Explanation:
    """The explanation of the verdicts on a body, under the conditions of a rubric."""
    trace = render(body)
    highest_e4 = ceiling_e4(body, rubric)
    held = next(count for count in range(len(GATES) + 1) if quality_of(count) == highest_e4)
    newest = verdicts[-1] if verdicts else None
    opinions = newest.opinions if isinstance(newest, Verdict) else ()
    content = {span.number: span.content for span in trace.spans}
    return Explanation(
        body_sha256=trace.body_sha256,
        completions=tuple(
            CompletionFacts(
                span=span.number,
                step=span.step,
                tokens=span.tokens,
                echo_e4=span.echo_e4,
                is_inference=is_reasoning(span, rubric),
                own_chars=len(own_text(span).replace("\n", "")),
                is_before_recommendation=span in trace.deliberation,
            )
            for span in trace.spans
            if span.kind == "completion"
        ),
        possible=GATES[:held],
        ceiling_e4=highest_e4,
        verdicts=tuple(verdicts),
        quotes=tuple(
            PlacedQuote(model=opinion.model, citation=one, is_there=is_verbatim(one.quote, content.get(one.span, "")))
            for opinion in opinions
            for one in opinion.citations
        ),
    )
