"""Lines of `log/` looked at alone, in this process or in several: form, hash, signature, body, and credentials.

Promise: `look` is a pure function of a line, never raises whatever the line holds, and returns something small. With
processes or without it gives the same in the same order; a process that dies ends it with V2052. What rows say about
each other and what the request keeps back is `arena.export.verify.row_check`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import msgspec

from arena.chain.port import Verifier
from arena.export.model import LogRow, Withheld
from arena.export.reading import read_row
from arena.export.redaction.redaction import holds_secret
from arena.export.typed import is_canonical_as_typed
from arena.records.body import decode_body, decode_content
from arena.records.model import EvaluationRecord, ReleaseRecord
from arena.records.verify.inspection import Entry, RecordFinding, inspect
from arena.records.verify.workers import begin_process
from foundation.errors import ArenaError

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
Looking = Callable[[Iterable[bytes]], Iterator[ScannedRow]]


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
    if finding.facts is None or finding.unread:
        return ScannedRow("it is whole and of a version this release does not read", finding)
    content = decode_content(raw)
    if (body is not None) != isinstance(content.payload, EvaluationRecord):
        return ScannedRow("an evaluation, and nothing else, has a body", finding)
    is_canonical = is_canonical_as_typed(raw, content)
    if not is_canonical or (body is not None and not is_canonical_as_typed(body, decode_body(body))):
        return ScannedRow("its bytes are not canonical", finding)
    is_release = isinstance(content.payload, ReleaseRecord)
    is_secret = not is_release and (holds_secret(raw) or (body is not None and holds_secret(body)))
    return ScannedRow("", finding, None, raw, is_secret)


@contextlib.contextmanager
def open_looking(verify_signature: Verifier, processes: int = 0) -> Iterator[Looking]:
    """What looks at lines, for the length of the block: in `processes` of their own, or in this one where that is 0.

    `verify_signature` is a function of a module, so that processes can import it. Raises ArenaError V2052 for a process
    that died.
    """
    if processes <= 0:
        yield lambda lines: (look(line, verify_signature) for line in lines)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=begin_process)
    try:
        yield lambda lines: _look_apart(lines, pool, 2 * processes, verify_signature)
    finally:
        pool.shutdown(cancel_futures=True)


def look_packed(verify_signature: Verifier, packed: bytes) -> bytes:
    """What a process does: lines in, what they are out, both as MessagePack."""
    return _ENCODER.encode([look(line, verify_signature) for line in _LINES.decode(packed)])


def _look_apart(
    lines: Iterable[bytes], pool: ProcessPoolExecutor, depth: int, verify_signature: Verifier
) -> Iterator[ScannedRow]:
    running: deque[Future[bytes]] = deque()
    try:
        for batch in _batches(lines):
            running.append(pool.submit(look_packed, verify_signature, _ENCODER.encode(batch)))
            if len(running) >= depth:
                yield from _LOOKED.decode(running.popleft().result())
        while running:
            yield from _LOOKED.decode(running.popleft().result())
    except BrokenProcessPool as error:
        raise ArenaError("V2052", str(error)) from error


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
