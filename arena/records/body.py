"""Bytes of contents and bodies: encode what is signed or addressed, decode what was stored; bodies as zstd frames.

Encoding is canonical (one value, one byte string); decoding is strict about types and version and never re-encodes, so
a reader checks hashes over the bytes it was given. Fields that a format does not name are ignored. Whatever can't be
read is V2050, and never another exception. A new field with a default keeps the version.

A stored body is a zstd frame of the canonical bytes, under the sha256 of the uncompressed ones. Much at once is
compressed beside the event loop; one body of the usual size (40 kB) takes a quarter of a millisecond, less than handing
it over.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Sequence

import msgspec
import orjson
import zstandard

from arena.records.model import RECORD_VERSION, BodyFrame, RecordContent, StoredBody
from foundation.canonical import OPTIONS, UNREADABLE_JSON, canonical_bytes
from foundation.errors import ArenaError
from harness.trace import BODY_VERSION, EvaluationBody

_BODY = msgspec.json.Decoder(EvaluationBody)
_CONTENT = msgspec.json.Decoder(RecordContent)
_THREAD = threading.local()

LEVEL = 1  # a third faster than 3, and as small on measured bodies
BODY_BYTES_MAX = 64 << 20
INLINE_BYTES_MAX = 128 << 10


def encode_body(body: EvaluationBody) -> StoredBody:
    """The canonical bytes of a body under their sha256, which equals `body.body_hash()`."""
    content = canonical_bytes(body)
    return StoredBody(body_sha256=hashlib.sha256(content).hexdigest(), content=content)


def decode_body(content: bytes) -> EvaluationBody:
    """The body of stored bytes. Raises ArenaError V2050 when they are not one of this version."""
    try:
        body = _BODY.decode(content)
    except UNREADABLE_JSON as error:
        raise ArenaError("V2050", f"body: {error}") from error
    if body.version != BODY_VERSION:
        raise ArenaError("V2050", f"body: version {body.version}, this software reads {BODY_VERSION}")
    return body


def is_canonical(content: bytes, value: RecordContent | EvaluationBody) -> bool:
    """Whether bytes that were decoded to `value` are canonical. Raises nothing.

    The types of records and bodies hold no float and no key that is not ASCII, so a value that gives back its own bytes
    needs no look for them. Bytes with more in them than the types name get it.
    """
    try:
        if orjson.dumps(msgspec.to_builtins(value), option=OPTIONS) == content:
            return True
        return canonical_bytes(orjson.loads(content)) == content
    except (TypeError, orjson.JSONDecodeError, RecursionError):  # also a number beyond 2^53, or no Unicode
        return False


def decode_content(content: bytes) -> RecordContent:
    """The content of stored bytes. Raises ArenaError V2050 when they are not one of this version."""
    try:
        record = _CONTENT.decode(content)
    except UNREADABLE_JSON as error:
        raise ArenaError("V2050", f"content: {error}") from error
    if record.version != RECORD_VERSION:
        raise ArenaError("V2050", f"content: version {record.version}, this software reads {RECORD_VERSION}")
    return record


async def compress_bodies(bodies: Sequence[StoredBody]) -> list[BodyFrame]:
    """One zstd frame per body, each with its content size. Raises ArenaError V2025 for a body over 64 MiB."""
    for body in bodies:
        if len(body.content) > BODY_BYTES_MAX:
            raise ArenaError("V2025", f"body {body.body_sha256} has {len(body.content)} bytes")

    compressor = zstandard.ZstdCompressor(level=LEVEL)

    def compress_at_once() -> list[bytes]:  # one call, which holds up no other thread
        frames = compressor.multi_compress_to_buffer([body.content for body in bodies])
        return [frames[place].tobytes() for place in range(len(frames))]

    if sum(len(body.content) for body in bodies) <= INLINE_BYTES_MAX:
        frames = [compressor.compress(body.content) for body in bodies]
    else:
        frames = await asyncio.to_thread(compress_at_once)
    return [
        BodyFrame(body_sha256=body.body_sha256, content=frame, size=len(body.content))
        for body, frame in zip(bodies, frames, strict=True)
    ]


def restore_frame(content: bytes, size: int) -> bytes:
    """The bytes of a zstd frame; empty when it is none, or does not hold `size` bytes."""
    with contextlib.suppress(zstandard.ZstdError):
        if 0 < size <= BODY_BYTES_MAX and zstandard.frame_content_size(content) == size:
            # One a thread: making one costs a quarter of what restoring a usual body does, and they can't be shared.
            if not hasattr(_THREAD, "decompressor"):
                _THREAD.decompressor = zstandard.ZstdDecompressor()
            decompressor: zstandard.ZstdDecompressor = _THREAD.decompressor
            return decompressor.decompress(content, max_output_size=size)
    return b""
