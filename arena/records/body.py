"""Bytes of contents and bodies: encode what is signed or addressed, decode what was stored.

Promise: encoding is canonical (one value, one byte string); decoding is strict about types and never re-encodes, so a
reader checks hashes over the bytes it was given. An undecodable value is V2050, never another exception.
"""

from __future__ import annotations

import hashlib

import msgspec

from arena.records.model import RecordContent
from arena.store.port import StoredBody
from harness.trace import EvaluationBody
from problems.canonical import canonical_bytes
from problems.errors import ArenaError

_BODY = msgspec.json.Decoder(EvaluationBody)
_CONTENT = msgspec.json.Decoder(RecordContent)


def encode_body(body: EvaluationBody) -> StoredBody:
    """The canonical bytes of a body under their sha256, which equals `body.body_hash()`."""
    content = canonical_bytes(body)
    return StoredBody(body_sha256=hashlib.sha256(content).hexdigest(), content=content)


def decode_body(content: bytes) -> EvaluationBody:
    """The body of stored bytes. Raises ArenaError V2050 when they are not one."""
    try:
        return _BODY.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArenaError("V2050", f"body: {error}") from error


def encode_content(content: RecordContent) -> bytes:
    """The canonical bytes of a record's content: what is hashed, signed and stored."""
    return canonical_bytes(content)


def decode_content(content: bytes) -> RecordContent:
    """The content of stored bytes. Raises ArenaError V2050 when they are not one."""
    try:
        return _CONTENT.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArenaError("V2050", f"content: {error}") from error
