"""The scripted judge: the rubric's decision tree walked by code, for demo, tests and machines without an endpoint.

It is deterministic, quotes verbatim, and reads only the model's own words and tool results, so text that asks for a
score moves nothing. It recognises grounded comparison, not wisdom: a real panel reads what this one only counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from judge.citations import ECHO_LIMIT_E4, QUOTE_LENGTH_MAX, QUOTE_LENGTH_MIN, supports
from judge.evidence.results import Evidence, evidence_of
from judge.evidence.weighing import is_weighed
from judge.parse import GateAnswers
from judge.port import JudgeReply
from judge.render import RenderedTrace, Span
from judge.rubric import Gate, Rubric, quality_of
from judge.verdict import Citation

_REPORT = re.compile(
    r"\b(returned|found|came back|comes? up|shows|shown|listed|results?|offers?|offered|none|nothing|empty)\b",
    re.IGNORECASE,
)
_GROUNDED_WORDS_MIN = 2
_SENTENCES_MAX = 8  # of one passage
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_CALL = re.compile(r"<tool_call>[\s\S]*?(?:</tool_call>|\Z)|^\s*Action(?: Input)?:.*$", re.MULTILINE)
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
        gates: tuple[Gate, ...] = ("results_analysed", "data_cited", "candidates_compared")
        held = 0
        for gate in gates:
            found = next(_supports(gate, trace, evidence), None)
            if found is None:
                break
            citations.append(found)
            held += 1
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


def _supports(gate: Gate, trace: RenderedTrace, evidence: Evidence) -> Iterator[Citation]:
    """Citations that would carry a gate, in trace order; the shortest passage of a completion first."""
    for span in trace.deliberation:
        if span.kind == "completion" and span.echo_e4 < ECHO_LIMIT_E4:
            for passage in _passages(span):
                if _carries(gate, passage, span.number, evidence):
                    yield Citation(span=span.number, quote=passage, gate=gate)


def _passages(span: Span) -> Iterator[str]:
    """What of a completion can be quoted: up to some sentences that follow each other, the fewest first."""
    parts = [part for part in _END.split(_CALL.sub("\n", span.content)) if part.strip()]
    for size in range(1, _SENTENCES_MAX + 1):
        for first in range(len(parts) - size + 1):
            passage = _stretch(span.content, parts[first : first + size])
            if QUOTE_LENGTH_MIN <= len(" ".join(passage.split())) <= QUOTE_LENGTH_MAX:
                yield passage


def _stretch(content: str, sentences: Sequence[str]) -> str:
    """The sentences as they stand in the content, one after the other; "" where a call stands between them."""
    found = re.search(r"\s*".join(re.escape(sentence.strip()) for sentence in sentences), content)
    return found.group() if found else ""


def _carries(gate: Gate, passage: str, before: int, evidence: Evidence) -> bool:
    here = [(passage, before)]
    if not supports(gate, here, evidence):
        return False
    grounded = evidence.grounded_words(passage, before)
    if gate == "results_analysed":  # words that the query has, too, may only restate the request
        is_new = not evidence.known.issuperset(grounded) or supports("data_cited", here, evidence)
        told = (one for one in _END.split(passage) if _REPORT.search(one))
        return is_new or any(len(evidence.grounded_words(one, before)) >= _GROUNDED_WORDS_MIN for one in told)
    return gate == "data_cited" or (len(grounded) >= _GROUNDED_WORDS_MIN and is_weighed(passage, before, evidence))
