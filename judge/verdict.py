"""A verdict: how well the trace reasons, with verbatim citations, blind to the outcome. Or why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from foundation.errors import Failure
from judge.rubric import Gate, Rubric

VERDICT_VERSION = 1
JUDGED_AT = "judge/"  # what an endpoint's name begins with in accounts of judging

Share = Annotated[int, msgspec.Meta(ge=0, le=10_000)]  # ten-thousandths of one


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """A verbatim quote from one numbered span of the rendered trace, and the gate it supports."""

    span: int
    quote: str
    gate: Gate


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What one judge model said, after its citations were found verbatim in the trace."""

    model: str
    quality_e4: Share
    citations: tuple[Citation, ...]
    explanation: str
    attempts: int
    reply_sha256: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A judge model that gave no usable reply to this trace, and why the last reply was refused."""

    model: str
    attempts: int
    reason: str
    is_by_trace: bool = False  # it gave the trace's neutral twin a usable reply: what put it off stands in the trace


class Verdict(msgspec.Struct, frozen=True, kw_only=True, tag="verdict"):
    """The panel's verdict on one body: the lower median of the opinions. No opinions: code alone decided."""

    version: int = VERDICT_VERSION
    body_sha256: str
    rubric_id: str
    prompt_sha256: str
    quality_e4: Share
    coefficient_e4: Share
    spread_e4: Share  # highest minus lowest opinion
    opinions: tuple[Opinion, ...]
    refused: tuple[Refusal, ...] = ()


class UnscoredVerdict(msgspec.Struct, frozen=True, kw_only=True, tag="unscored"):
    """No verdict exists, and why. The body is stored, so the verdict is owed, not lost."""

    version: int = VERDICT_VERSION
    body_sha256: str
    rubric_id: str
    failure: Failure
    refused: tuple[Refusal, ...] = ()


def counted_verdict(
    verdicts: Iterable[Verdict | UnscoredVerdict], rubric: Rubric | None = None
) -> Verdict | UnscoredVerdict | None:
    """What counts of a validator's verdicts on one body, oldest first: the first under the rubric of the race's policy
    (None: under any, as in qualifying), and a refusal only without one."""
    refusal = None
    for one in verdicts:
        if isinstance(one, UnscoredVerdict):
            refusal = refusal or one
        elif rubric is None or (one.rubric_id, one.prompt_sha256) == (rubric.rubric_id, rubric.prompt_sha256):
            return one
    return refusal
