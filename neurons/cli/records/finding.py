"""Finding one record by its number, or by the beginning of its hash, its body's hash or its attempt's id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neurons.cli.store_reading import logs_of

if TYPE_CHECKING:
    from arena.records.body import Unread
    from arena.records.model import RecordContent, SignedRecord
    from arena.store.postgres.store import PostgresStore

MESSAGE_NOT_FOUND = "no record matches {which!r}; give a number, or the beginning of a record, body or attempt id"


async def find_record(
    store: PostgresStore, which: str, validator: str
) -> tuple[SignedRecord, RecordContent | Unread | None] | None:
    """The first record that `which` names, and its content (None: it can't be decoded); None when there is none."""
    is_number = which.isdecimal()
    for name in await logs_of(store, validator):
        async for record in store.records(name, after_seq=max(0, int(which) - 1) if is_number else 0):
            content = read_or_none(record)
            if record.seq == int(which) if is_number else _has_id(record, content, which):
                return record, content
            if is_number:
                break
    return None


def read_or_none(record: SignedRecord) -> RecordContent | Unread | None:
    """A stored record's content, or None when it can't be decoded; `arena records verify` says what is wrong then."""
    from arena.records.body import read_content
    from foundation.errors import ArenaError

    try:
        return read_content(record.content)
    except ArenaError:
        return None


def _has_id(record: SignedRecord, content: RecordContent | Unread | None, which: str) -> bool:
    payload = getattr(content, "payload", None)
    names = (record.content_sha256, *(str(getattr(payload, field, "")) for field in ("body_sha256", "attempt_id")))
    return any(name.startswith(which) for name in names if which)
