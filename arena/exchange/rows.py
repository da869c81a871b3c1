"""Rows as validators show them to each other: whole without bodies where they count for a race, stubs otherwise.

Promise: pure. A stub keeps what chain, tree and signature need and nothing of the content, whose hash is blinded.
"""

from __future__ import annotations

from collections.abc import Iterable

from arena.exchange.log_digest import counts
from arena.export.model import LogRow
from arena.export.writing.assembly import log_row, signed_content
from arena.records.model import SignedRecord


def shown_rows(records: Iterable[SignedRecord], race_id: str, to_seq: int) -> list[LogRow]:
    """The rows of own records up to `to_seq`, those that count for a race ("": qualifying) whole."""
    return [_shown(record, race_id) for record in records if record.seq <= to_seq]


def as_stub(row: LogRow) -> LogRow:
    """The stub of a row."""
    return LogRow(
        validator=row.validator,
        seq=row.seq,
        prev=row.prev,
        content_sha256=row.content_sha256,
        signature=row.signature,
        withheld="unreleased",
    )


def _shown(record: SignedRecord, race_id: str) -> LogRow:
    content = signed_content(record.content, record.content_sha256)
    if content and counts(content, len(record.content), race_id):
        return log_row(record, content=record.content)
    return log_row(record, withheld="unreleased")
