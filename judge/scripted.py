"""The scripted judge: the rubric's decision tree walked by code, for demo, tests and machines without an endpoint.

It is deterministic, quotes verbatim, and reads only the model's own words and tool results, so text that asks for a
score moves nothing. It recognises grounded comparison, not wisdom: a real panel reads what this one only counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from judge.citations import QUOTE_LENGTH_MAX, QUOTE_LENGTH_MIN, is_reasoning, supports
from judge.evidence.results import Evidence, evidence_of
from judge.parse import GateAnswers
from judge.port import JudgeReply
from judge.render import RenderedTrace, Span
from judge.rubric import Gate, Rubric, quality_of
from judge.verdict import Citation

_REASON = re.compile(
    r"\b(because|since|whereas|while|unlike|than|instead|rather|cheaper|cheapest|lower|lowest|better|best|closest|but|"
    r"however|therefore|only|prefer\w*|over)\b",
    re.IGNORECASE,
)
_ANALYSIS = re.compile(
    r"\b(match\w*|meets?|met|satisf\w+|miss\w*|fails?|lacks?|within|exceeds?|above|below|under|fits?|costs?|priced?|"
    r"cheaper|cheapest|better|best|wrong|right|correct|suitable|candidates?|options?|returned|found|shows?|has|have|"
    r"none|nothing|empty)\b",
    re.IGNORECASE,
)
_GROUNDED_WORDS_MIN = 2
_EXPLANATIONS = (  # by how many gates have a citation
    "The model does not say what the results mean.",
    "Results are read, but no datum from them is named.",
    "Data are named, but no two candidates are weighed against each other.",
    "Candidates are compared on returned data and a reason is given.",
)


class ScriptedJudge:
    """A `Judge` without a model. Its replies have the form and pass the checks a model's replies must pass."""

    def __init__(self, model: str = "scripted-judge") -> None:
        self._model = model

    @property
    def model(self) -> str:
        """The name under which a rubric lists it."""
        return self._model

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """Walk the tree over the rendered spans; `refusals` change nothing, since code has nothing to reconsider."""
        citations: list[Citation] = []
        evidence = evidence_of(trace)
        for gate in ("results_analysed", "data_cited", "candidates_compared"):
            found = next(_supports(gate, trace, rubric, evidence), None)
            if found is None:
                break
            citations.append(found)
        held = len(citations)
        answers = GateAnswers(
            inference_present=True,
            results_analysed=held >= 1,
            data_cited=held >= 2,
            candidates_compared=held >= 3,
        )
        reply = {
            "gates": msgspec.to_builtins(answers),
            "quality": quality_of(1 + held) / 10_000,
            "citations": msgspec.to_builtins(citations),
            "explanation": _EXPLANATIONS[held],
        }
        return JudgeReply(text=msgspec.json.encode(reply).decode())


def _supports(gate: Gate, trace: RenderedTrace, rubric: Rubric, evidence: Evidence) -> Iterator[Citation]:
    """Citations that would carry a gate, in trace order."""
    for span in trace.spans:
        if is_reasoning(span, rubric):
            prose = re.sub(r"<tool_call>.*?(?:</tool_call>|\Z)", "\n", span.content, flags=re.DOTALL)
            for line in prose.split("\n"):
                passage = line.strip()[:QUOTE_LENGTH_MAX].strip()
                if len(" ".join(passage.split())) >= QUOTE_LENGTH_MIN and _carries(gate, passage, span, evidence):
                    yield Citation(span=span.number, quote=passage, gate=gate)


def _carries(gate: Gate, passage: str, span: Span, evidence: Evidence) -> bool:
    is_grounded = len(evidence.grounded_words(passage, span.number)) >= _GROUNDED_WORDS_MIN
    if gate == "results_analysed":
        return is_grounded and _ANALYSIS.search(passage) is not None
    if gate == "data_cited":
        return supports(gate, [(passage, span.number)], evidence)
    is_choice = supports(gate, [(passage, span.number)], evidence)
    return is_grounded and is_choice and _REASON.search(passage) is not None
