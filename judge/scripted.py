"""The scripted judge: the rubric's decision tree walked by code, for demo, tests and machines without an endpoint.

It is deterministic, quotes verbatim, and lets a gate pass where the words that it can quote meet the gate's necessary
condition (`judge.citations.supports`), as they stand and as the check of citations reads them: so text that asks for a
score moves nothing, and no reply is refused. It recognises grounded comparison, not wisdom: a real panel reads what
this one only counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from judge.citations import ECHO_LIMIT_E4, QUOTE_LENGTH_MAX, QUOTE_LENGTH_MIN, backs, supports
from judge.evidence.results import Evidence
from judge.render import JudgeReply, RenderedTrace, Span
from judge.rubric import GATES, Gate, Rubric, quality_of
from judge.verdict import Citation

_SENTENCES_MAX = 8  # of one passage
_REPORT = re.compile(
    r"\b(returned|found|came back|comes? up|shows|shown|listed|results?|offers?|offered|none|nothing|empty)\b",
    re.IGNORECASE,
)
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_CALL = re.compile(r"<tool_call>[\s\S]*?(?:</tool_call>|\Z)|^\s*Action(?: Input)?:.*$", re.MULTILINE)
_EXPLANATIONS = (  # by how many gates have a citation
    "The model does not say what the results mean.",
    "Results are read, but no datum from them is named.",
    "Data are named, but no two candidates are weighed against each other.",
    "Two candidates are told apart by returned data.",
)


class ScriptedJudge:
    """A `Judge` without a model. Its replies have the form and pass the checks a model's replies must pass."""

    def __init__(self, model: str = "scripted-judge") -> None:
        self.model = model  # the name under which a rubric lists it

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """Walk the tree over the rendered spans; `refusals` change nothing, since code has nothing to reconsider."""
        evidence = Evidence(trace)
        said = [(passage, span) for span in trace.deliberation for passage in _passages(span)]
        citations: list[Citation] = []
        for gate in GATES[1:]:
            found = next((one for one in said if _carries(gate, one, evidence)), None)
            if found is None:
                break
            citations.append(Citation(span=found[1].number, quote=found[0], gate=gate))
        held = len(citations)
        reply = {
            "gates": {gate: place <= held for place, gate in enumerate(GATES)},
            "quality": quality_of(1 + held) / 10_000,
            "citations": msgspec.to_builtins(citations),
            "explanation": _EXPLANATIONS[held],
        }
        return JudgeReply(text=msgspec.json.encode(reply).decode())


def _carries(gate: Gate, said: tuple[str, Span], evidence: Evidence) -> bool:
    """Whether a passage meets a gate's condition, and still does as a citation; words that the query has, too, may only
    restate the request, unless they stand in a report."""
    passage, span = said
    before = span.number
    here = [(passage, before)]
    if not supports(gate, here, evidence) or not backs(gate, passage, span, evidence):
        return False
    if gate != "results_analysed" or supports("data_cited", here, evidence):
        return True
    told = (one for one in _END.split(passage) if _REPORT.search(one))
    return not evidence.known.issuperset(evidence.grounded_words(passage, before)) or any(
        len(evidence.grounded_words(one, before)) > 1 for one in told
    )


def _passages(span: Span) -> Iterator[str]:
    """What of a completion can be quoted: up to some sentences that follow each other, the fewest first."""
    if span.kind != "completion" or span.echo_e4 >= ECHO_LIMIT_E4:
        return
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
