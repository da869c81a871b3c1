"""What rows of an export's log say about other rows: the verdict on a body, the release of a race.

One pass that reads verdicts and releases only; an index holds what the rows of one shard need, a number a body
and a word a problem. The first verdict on a body counts, as in the export's views.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from arena.export.reading import read_lines
from arena.export.writing.shards import LOG, REFERENCES, shard_name
from arena.records.body import decode_content
from arena.records.model import EvaluationRecord, Payload, ReleaseRecord, VerdictRecord
from judge.verdict import Verdict
from problems.model import Pool

_NULL = b"null"


class LogIndex(msgspec.Struct, frozen=True):
    """Coefficients by body hash (None: a verdict that could not be had), pool and cluster by race and problem."""

    verdicts: dict[str, tuple[int, int | None]] = {}
    problems: dict[str, dict[str, tuple[Pool, str]]] = {}

    def coefficient_e4(self, body_sha256: str) -> int | None:
        """The coefficient of the verdict that counts for a body, None where there is none."""
        return self.verdicts.get(body_sha256, (0, None))[1]

    def problem(self, evaluation: EvaluationRecord) -> tuple[Pool, str]:
        """Pool and cluster of an evaluated problem; a suite's is `never_touch`."""
        released = self.problems.get(evaluation.context.race_id, {}).get(evaluation.context.problem_id)
        if evaluation.context.stage != "race" or released is None:
            return "never_touch", ""
        return released


class _LoggedPayload(msgspec.Struct):
    kind: str
    body_sha256: str = ""  # of an evaluation


class _LoggedContent(msgspec.Struct):
    payload: _LoggedPayload


class _LoggedLine(msgspec.Struct):
    seq: int
    content: msgspec.Raw = msgspec.Raw(_NULL)


_LINE = msgspec.json.Decoder(_LoggedLine)
_CONTENT = msgspec.json.Decoder(_LoggedContent)


def index_shards(folder: Path, shards: int) -> tuple[LogIndex, ...]:
    """An index for each shard of an export's log. Raises ArenaError V2050 for lines that can't be read."""
    whole = LogIndex()
    if (folder / REFERENCES).exists():
        _take(folder / REFERENCES, whole)
    bodies = [_take(folder / LOG / shard_name(number), whole) for number in range(shards)]
    return tuple(
        LogIndex({body: whole.verdicts[body] for body in own if body in whole.verdicts}, whole.problems)
        for own in bodies
    )


def _take(path: Path, index: LogIndex) -> list[str]:
    """Add a file's verdicts and releases; the bodies of its evaluations."""
    bodies: list[str] = []
    for line in read_lines(path):
        row = _LINE.decode(line)
        content = bytes(row.content)
        if content == _NULL:
            continue
        said = _CONTENT.decode(content).payload
        if said.kind == "evaluation":
            bodies.append(said.body_sha256)
        elif said.kind in ("verdict", "release"):
            _add(row.seq, decode_content(content).payload, index)
    return bodies


def _add(seq: int, payload: Payload, index: LogIndex) -> None:
    if isinstance(payload, VerdictRecord):
        verdict = payload.verdict
        kept = index.verdicts.get(verdict.body_sha256)
        if kept is None or seq < kept[0]:
            coefficient_e4 = verdict.coefficient_e4 if isinstance(verdict, Verdict) else None
            index.verdicts[verdict.body_sha256] = seq, coefficient_e4
    elif isinstance(payload, ReleaseRecord):
        released = {one.problem_id: (one.pool, one.cluster_id) for one in payload.problems}
        index.problems.setdefault(payload.race_id, released)
