"""Filing: under which kind, race and body a store finds a record, read from the record's content alone.

A store copies these out of what was signed, so that a race's records are found without decoding the whole log.
`filing_of` reads them as the append function of the schema does (`migrations/sql/0002_append.sql`), so a row that is
filed otherwise was changed after it was appended, and searches by its content would miss it.
"""

from __future__ import annotations

import msgspec

from foundation.canonical import UNREADABLE_JSON


class Filing(msgspec.Struct, frozen=True, array_like=True):
    """What a record is found by. `body_sha256`: hex, "" for a record that names no body."""

    kind: str
    race_id: str
    body_sha256: str


class _Named(msgspec.Struct):
    race_id: str | None = None
    body_sha256: str | None = None


class _Payload(msgspec.Struct):
    kind: str
    race_id: str | None = None
    body_sha256: str | None = None
    context: _Named | None = None
    verdict: _Named | None = None


class _Content(msgspec.Struct):
    payload: _Payload


_CONTENT = msgspec.json.Decoder(_Content)
_NUL, _NOT_NUL = rb"\u0000", rb"\u0001"  # the server's texts hold no NUL


def filing_of(content: bytes) -> Filing | None:
    """How a record of these bytes is filed; None for bytes that say nothing of it."""
    try:
        payload = _CONTENT.decode(content.replace(_NUL, _NOT_NUL)).payload
    except UNREADABLE_JSON:
        return None
    race_id, body_sha256 = payload.race_id, payload.body_sha256
    if payload.context and payload.context.race_id is not None:
        race_id = payload.context.race_id
    if body_sha256 is None and payload.verdict:
        body_sha256 = payload.verdict.body_sha256
    return Filing(payload.kind, race_id or "", (body_sha256 or "").lower())
