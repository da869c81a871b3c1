"""A judge's reply, read strictly: one JSON object of the agreed form, or a reason why it is refused.

Models think aloud in a `<think>` block, lead in with a sentence and put fences around JSON. Each of these is read where
it leaves one object to mean and nothing after it: one block that closes once, a sentence without a brace, one fence.
There is no repair of broken JSON: a reply that has to be guessed at is asked again (docs/architecture.md#the-judge).
"""

from __future__ import annotations

import itertools
import json
import re

import msgspec

from judge.rubric import GATES, QUALITY_LEVELS_E4, Gate, quality_of
from judge.verdict import Citation

_THOUGHT_ENDS = re.compile(r"</(?:think|thinking|reasoning)>")
_THOUGHT_BEGINS = re.compile(r"\s*<(?:think|thinking|reasoning)>")
_LEAD_IN = re.compile(r"\A[^{}\[\]`<>]{0,400}")  # words before the object, none of them JSON
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n\s*```\Z", re.DOTALL)
_EXPLANATION_LIMIT = 2_000


def _closed(**properties: object) -> dict[str, object]:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


# What an endpoint that writes to a schema is asked for.
REPLY_SCHEMA = _closed(
    gates=_closed(**{gate: {"type": "boolean"} for gate in GATES}),
    quality={"type": "number"},  # without an enum: xgrammar's 0.3 would be 0.29999999999999999, which no model writes
    citations={
        "type": "array",
        "items": _closed(
            span={"type": "integer"}, quote={"type": "string"}, gate={"type": "string", "enum": list(GATES)}
        ),
    },
    explanation={"type": "string"},
)


class RefusedReplyError(ValueError):
    """A reply that can't be used. The text is one sentence that the judge reads when it is asked again."""


class GateAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """One answer per gate of the tree."""

    inference_present: bool
    results_analysed: bool
    data_cited: bool
    candidates_compared: bool

    def passed(self) -> tuple[Gate, ...]:
        """The leading gates that hold: the tree stops at the first that fails."""
        return tuple(itertools.takewhile(lambda gate: getattr(self, gate), GATES))


class ParsedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A well-formed reply. Its citations are not checked yet."""

    gates: GateAnswers
    quality: float
    citations: tuple[Citation, ...]
    explanation: str

    @property
    def quality_e4(self) -> int:
        """In ten-thousandths; -1 where it is no share."""
        return round(self.quality * 10_000) if 0 <= self.quality <= 1 else -1


def parse_reply(text: str, *, is_cut: bool = False) -> ParsedReply:
    """Read one reply; `is_cut`: the endpoint ended it at its limit of tokens.

    Raises RefusedReplyError with the reason when it is not the agreed JSON or contradicts itself.
    """
    if is_cut:  # wherever it ends, what it was about to say is not known
        raise RefusedReplyError("the reply was cut off: think less and write the JSON object alone")
    bare = _without_thought(text).strip()
    bare = _LEAD_IN.sub("", bare, count=1)
    fenced = _FENCE.match(bare)
    written = fenced.group(1) if fenced else bare
    try:
        reply = msgspec.json.decode(written, type=ParsedReply)
        json.loads(written, object_pairs_hook=_refuse_repeated, parse_int=str, parse_float=str)
    except msgspec.ValidationError as error:
        raise RefusedReplyError(f"the reply is JSON of another form: {error}") from error
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        if not text.strip():
            raise RefusedReplyError("the reply is not one JSON object: it is empty") from error
        raise RefusedReplyError(f"the reply is not one JSON object and nothing else: {error}") from error
    if reply.quality_e4 not in QUALITY_LEVELS_E4:
        raise RefusedReplyError(f"quality {reply.quality} is not one of 0.1, 0.3, 0.5, 0.7, 0.9")
    expected = quality_of(len(reply.gates.passed()))
    if reply.quality_e4 != expected:
        raise RefusedReplyError(f"quality {reply.quality} contradicts the gates, which give {expected / 10_000}")
    return msgspec.structs.replace(reply, explanation=reply.explanation[:_EXPLANATION_LIMIT])


def _without_thought(text: str) -> str:
    """What follows the one thought of a reply; all of it where there is none.

    A reply may begin inside its thought, since some servers put the opening tag into the request. Where tags stand
    several times, one of them is a quotation, and nobody knows which: all is left, and refused as no JSON.
    """
    ends = list(_THOUGHT_ENDS.finditer(text))
    if len(ends) != 1 or text.lstrip().startswith("{"):
        return text
    if "{" in text[: ends[0].start()] and not _THOUGHT_BEGINS.match(text):
        return text
    return text[ends[0].end() :]


def _refuse_repeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise RefusedReplyError("the reply says one field of its JSON twice")
    return fields
