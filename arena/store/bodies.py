"""Bodies at rest: zstd of the canonical bytes, under the sha256 of the uncompressed ones.

Promise: what `require_intact` lets through is exactly what went in. Compression runs beside the event loop, since
40 kB take about a millisecond of a core.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import zstandard

from arena.store.port import StoredBody
from problems.errors import ArenaError

LEVEL = 3
BODY_BYTES_MAX = 64 << 20


async def compress_bodies(bodies: Sequence[StoredBody]) -> list[bytes]:
    """One zstd frame per body, each with its content size. Raises ArenaError V2025 for a body over 64 MiB."""
    if not bodies:
        return []
    return await asyncio.to_thread(_compress, bodies)


def _compress(bodies: Sequence[StoredBody]) -> list[bytes]:
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    for body in bodies:
        if len(body.content) > BODY_BYTES_MAX:
            raise ArenaError("V2025", f"body {body.body_sha256} has {len(body.content)} bytes")
    return [compressor.compress(body.content) for body in bodies]


def restore_body(body_sha256: str, frame: bytes, size: int) -> StoredBody:
    """The bytes of a stored frame, unchecked; empty where the frame can't be read."""
    if not 0 < size <= BODY_BYTES_MAX:
        return StoredBody(body_sha256=body_sha256, content=b"")
    try:
        content = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
    except zstandard.ZstdError:
        content = b""
    return StoredBody(body_sha256=body_sha256, content=content)


def require_intact(body: StoredBody) -> StoredBody:
    """The body itself. Raises ArenaError V2050 when its bytes do not have its hash."""
    if hashlib.sha256(body.content).hexdigest() != body.body_sha256:
        raise ArenaError("V2050", f"body {body.body_sha256} does not have this hash")
    return body
