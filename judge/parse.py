"""A judge's reply, read strictly: one JSON object of the agreed form, or a reason why it is refused.

There is no repair of broken JSON: a reply that has to be guessed at is asked again (docs/architecture.md#the-judge).
"""

from __future__ import annotations

import re

import msgspec

from judge.rubric import GATES, QUALITY_LEVELS_E4, Gate, quality_of
from judge.verdict import Citation

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)
_EXPLANATION_LIMIT = 2_000


class RefusedReplyError(ValueError):
    """A reply that can't be used. The text is one sentence that the judge is told when it is asked again."""


class GateAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """One answer per gate of the tree."""

    inference_present: bool
    results_analysed: bool
    data_cited: bool
    candidates_compared: bool

    def passed(self) -> tuple[Gate, ...]:
        """The leading gates that hold: the tree stops at the first that fails."""
        held: list[Gate] = []
        for gate in GATES:
            if not getattr(self, gate):
                break
            held.append(gate)
        return tuple(held)


class ParsedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A well-formed reply. Its citations are not checked yet."""

    gates: GateAnswers
    quality_e4: int
    citations: tuple[Citation, ...]
    explanation: str


class _Wire(msgspec.Struct, frozen=True, kw_only=True):
    gates: GateAnswers
    quality: float
    citations: tuple[Citation, ...]
    explanation: str


def parse_reply(text: str) -> ParsedReply:
    """Read one reply. Raises RefusedReplyError with the reason when it is not the agreed JSON or contradicts itself."""
    bare = text.strip()
    fenced = _FENCE.match(bare)
    try:
        wire = msgspec.json.decode(fenced.group(1) if fenced else bare, type=_Wire)
    except msgspec.ValidationError as error:
        raise RefusedReplyError(f"the reply is JSON of another form: {error}") from error
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise RefusedReplyError(f"the reply is not one JSON object and nothing else: {error}") from error
    quality_e4 = round(wire.quality * 10_000) if 0 <= wire.quality <= 1 else -1
    if quality_e4 not in QUALITY_LEVELS_E4:
        raise RefusedReplyError(f"quality {wire.quality} is not one of 0.1, 0.3, 0.5, 0.7, 0.9")
    expected = quality_of(len(wire.gates.passed()))
    if quality_e4 != expected:
        raise RefusedReplyError(f"quality {wire.quality} contradicts the gates, which give {expected / 10_000}")
    return ParsedReply(
        gates=wire.gates,
        quality_e4=quality_e4,
        citations=wire.citations,
        explanation=wire.explanation[:_EXPLANATION_LIMIT],
    )
