"""Rows on their way to the process that writes them: packed, and the same again on the other side.

Signed bytes travel once. A trajectory whose content and body are in its line is read from there again, and
nothing of it is sent twice; one that is not its line's (scrubbed, or without a line) is sent whole. What comes out
equals what went in.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arena.export.model import Trajectory
from arena.records.body import decode_body, decode_content
from arena.records.model import EvaluationRecord
from judge.verdict import UnscoredVerdict, Verdict
from problems.model import Pool


class Spans(msgspec.Struct, frozen=True, array_like=True):
    """Where an evaluation's signed bytes are in its line: offsets, the ends excluded."""

    content_start: int
    content_end: int
    body_start: int
    body_end: int


class Outgoing(msgspec.Struct, frozen=True):
    """A row as it is written. `line`: of `log/`, without its end; empty for a row that only views are made of.

    With `spans` the trajectory is that of the line; without, and where `is_scrubbed`, it is taken as it is.
    """

    line: bytes
    trajectory: Trajectory | None = None
    is_scrubbed: bool = False
    spans: Spans | None = None


class _PackedRow(msgspec.Struct, frozen=True, array_like=True):
    """A trajectory but for what its line says."""

    validator: str
    seq: int
    content_sha256: str
    signature: str
    verdict: Verdict | UnscoredVerdict | None
    verdict_seq: int
    pool: Pool
    cluster_id: str


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    line: bytes
    spans: Spans | None
    facts: _PackedRow | None
    whole: Trajectory | None
    is_scrubbed: bool


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_Packed])


def pack(rows: Sequence[Outgoing]) -> bytes:
    """The rows as MessagePack."""
    packed = list[_Packed]()
    for row in rows:
        facts, whole = None, row.trajectory
        if whole is not None and row.spans is not None and not row.is_scrubbed:
            facts, whole = _PackedRow(*(getattr(whole, name) for name in _PackedRow.__struct_fields__)), None
        packed.append(_Packed(row.line, row.spans, facts, whole, row.is_scrubbed))
    return _ENCODER.encode(packed)


def unpack(packed: bytes) -> list[Outgoing]:
    """What `pack` was given."""
    rows = list[Outgoing]()
    for row in _DECODER.decode(packed):
        trajectory, spans = row.whole, row.spans
        if row.facts is not None:
            assert spans is not None
            content = decode_content(row.line[spans.content_start : spans.content_end])
            assert isinstance(content.payload, EvaluationRecord)
            trajectory = Trajectory(
                content=content,
                evaluation=content.payload,
                body=decode_body(row.line[spans.body_start : spans.body_end]),
                **msgspec.structs.asdict(row.facts),
            )
        rows.append(Outgoing(row.line, trajectory, row.is_scrubbed, spans))
    return rows
