"""Lines of `log/` looked at alone, in this process or beside it: form, hash, signature, body, and credentials.

`look` is a pure function of a line, never raises whatever the line holds, and returns something small. Any
executor gives the same in the same order; lines go to it as bytes, so that it needs none of the export's files. Lines
that are lost again and again with their processes end it with V2052. What rows say about each other and what the
request keeps back is `arena.export.verify.row_check`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import msgspec

from arena.chain.port import Verifier
from arena.export.model import LogRow, Withheld
from arena.export.reading import read_row
from arena.export.redaction import holds_secret
from arena.records.body import decode_body, decode_content, is_canonical
from arena.records.inspection import RecordFinding, inspect
from arena.records.model import Entry, EvaluationRecord, ReleaseRecord
from foundation.codes.names import VERIFIER_DIED
from foundation.errors import ArenaError
from foundation.executors.port import Executor

BATCH_LINES, BATCH_BYTES = 128, 8 << 20

_ENCODER = msgspec.msgpack.Encoder()
_LINES = msgspec.msgpack.Decoder(list[bytes])


class ScannedRow(msgspec.Struct, frozen=True, array_like=True):
    """What one line is by itself. `wrong`: why no export may hold it; `finding` is None where it can't be read at all.

    `content` is the record's bytes where it is whole and sound. `is_secret`: it, or its body, holds what looks like a
    credential and is not allowed to.
    """

    wrong: str
    finding: RecordFinding | None = None
    withheld: Withheld | None = None
    content: bytes | None = None
    is_secret: bool = False


_LOOKED = msgspec.msgpack.Decoder(list[ScannedRow])


def look(line: bytes, verify_signature: Verifier) -> ScannedRow:
    """One line of `log/` or of the references, without its end."""
    try:
        row = read_row(line)
    except ArenaError as error:
        return ScannedRow(error.failure.detail)
    return look_at(row, verify_signature)


def look_at(row: LogRow, verify_signature: Verifier) -> ScannedRow:
    """One row."""
    raw = None if row.content is None else bytes(row.content)
    body = None if row.body is None else bytes(row.body)
    entry = Entry(row.validator, row.seq, row.prev, row.content_sha256, row.signature, raw, body)
    finding = inspect(entry, verify_signature)
    if (raw is None) == (row.withheld is None) or (raw is None and body is not None):
        return ScannedRow("a row is whole, or a stub with its reason", finding, row.withheld)
    if raw is None or finding.faults:
        return ScannedRow("", finding, row.withheld)
    content = decode_content(raw)
    if (body is not None) != isinstance(content.payload, EvaluationRecord):
        return ScannedRow("an evaluation, and nothing else, has a body", finding)
    if not is_canonical(raw, content) or (body is not None and not is_canonical(body, decode_body(body))):
        return ScannedRow("its bytes are not canonical", finding)
    is_release = isinstance(content.payload, ReleaseRecord)
    is_secret = not is_release and (holds_secret(raw) or (body is not None and holds_secret(body)))
    return ScannedRow("", finding, None, raw, is_secret)


def look_all(lines: Iterable[bytes], verify_signature: Verifier, executor: Executor) -> Iterator[ScannedRow]:
    """Every line, in order. `verify_signature` is a function of a module, so that other processes can import it.

    Raises ArenaError V2052 for lines that are lost again and again.
    """
    if executor.slots == 0:
        yield from (look(line, verify_signature) for line in lines)
        return
    batches = map(_ENCODER.encode, _batches(lines))
    for packed in executor.map(functools.partial(look_packed, verify_signature), batches, died=VERIFIER_DIED):
        yield from _LOOKED.decode(packed)


def look_packed(verify_signature: Verifier, packed: bytes) -> bytes:
    """What a process does: lines in, what they are out, both as MessagePack."""
    return _ENCODER.encode([look(line, verify_signature) for line in _LINES.decode(packed)])


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch, size = list[bytes](), 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if len(batch) == BATCH_LINES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
