"""Bytes of contents and bodies: encode what is signed or addressed, decode what was stored.

Encoding is canonical (one value, one byte string); decoding is strict about types and never re-encodes, so a
reader checks hashes over the bytes it was given. Fields a format does not name are ignored, and a record of a later
version or of a kind that is not known here is told from a broken one: the first is `Unread`, the second V2050, and
never another exception. A new field with a default keeps the version, and so does a new kind of record, which an
earlier release reads as `Unread`; from the first tagged release on, a new event, stop reason or any other word in a
closed list raises it.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
import orjson

from arena.records.model import RECORD_VERSION, Payload, RecordContent
from arena.store.port import StoredBody
from foundation.canonical import OPTIONS, canonical_bytes
from foundation.errors import ArenaError
from harness.trace import BODY_VERSION, EvaluationBody

Version = Annotated[int, msgspec.Meta(ge=1)]
Kind = Annotated[str, msgspec.Meta(pattern="^[a-z_]{1,32}$")]

KINDS = frozenset(str(kind.__struct_config__.tag) for kind in Payload.__args__)


class Unread(msgspec.Struct, frozen=True):
    """A record or body of a later format: sound as far as hashes and signatures go, and not decoded."""

    kind: str  # "body" for a body
    version: int

    @property
    def name(self) -> str:
        """How it is counted."""
        return f"{self.kind}/{self.version}"


class _AnyPayload(msgspec.Struct):
    kind: Kind


class _AnyContent(msgspec.Struct):
    version: Version
    payload: _AnyPayload


class _AnyBody(msgspec.Struct):
    version: Version


_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # the last: nested without end
_BODY = msgspec.json.Decoder(EvaluationBody)
_CONTENT = msgspec.json.Decoder(RecordContent)
_ANY_BODY = msgspec.json.Decoder(_AnyBody)
_ANY_CONTENT = msgspec.json.Decoder(_AnyContent)


def encode_body(body: EvaluationBody) -> StoredBody:
    """The canonical bytes of a body under their sha256, which equals `body.body_hash()`."""
    content = canonical_bytes(body)
    return StoredBody(body_sha256=hashlib.sha256(content).hexdigest(), content=content)


def decode_body(content: bytes) -> EvaluationBody:
    """The body of stored bytes. Raises ArenaError V2050 when they are not one."""
    try:
        return _BODY.decode(content)
    except _MALFORMED as error:
        raise ArenaError("V2050", f"body: {error}") from error


def read_body(content: bytes) -> EvaluationBody | Unread:
    """The body of stored bytes, or what later format they are. Raises ArenaError V2050 when they are neither."""
    try:
        body = _BODY.decode(content)
        if body.version == BODY_VERSION:
            return body
        reason = f"version {body.version}"
    except _MALFORMED as error:
        reason = str(error)
    try:
        found = _ANY_BODY.decode(content)
    except _MALFORMED as error:
        raise ArenaError("V2050", f"body: {reason}") from error
    if found.version == BODY_VERSION:
        raise ArenaError("V2050", f"body: {reason}")
    return Unread("body", found.version)


def is_canonical(content: bytes, value: RecordContent | EvaluationBody) -> bool:
    """Whether bytes that were decoded to `value` are canonical. Raises nothing.

    The types of records and bodies hold no float and no key that is not ASCII, so a value that gives back its own bytes
    needs no look for them. Bytes with more in them than the types name get it.
    """
    try:
        if orjson.dumps(msgspec.to_builtins(value), option=OPTIONS) == content:
            return True
        return canonical_bytes(orjson.loads(content)) == content
    except (TypeError, orjson.JSONDecodeError, RecursionError):  # also a number beyond 2^53, or text that is no Unicode
        return False


def encode_content(content: RecordContent) -> bytes:
    """The canonical bytes of a record's content: what is hashed, signed and stored."""
    return canonical_bytes(content)


def decode_content(content: bytes) -> RecordContent:
    """The content of stored bytes. Raises ArenaError V2050 when they are not one."""
    try:
        return _CONTENT.decode(content)
    except _MALFORMED as error:
        raise ArenaError("V2050", f"content: {error}") from error


def read_content(content: bytes) -> RecordContent | Unread:
    """The content of stored bytes, or what later format they are. Raises ArenaError V2050 when they are neither."""
    try:
        record = _CONTENT.decode(content)
        if record.version == RECORD_VERSION:
            return record
        reason = f"version {record.version}"
    except _MALFORMED as error:
        reason = str(error)
    try:
        found = _ANY_CONTENT.decode(content)
    except _MALFORMED as error:
        raise ArenaError("V2050", f"content: {reason}") from error
    if found.version == RECORD_VERSION and found.payload.kind in KINDS:
        raise ArenaError("V2050", f"content: {reason}")
    return Unread(found.payload.kind, found.version)
