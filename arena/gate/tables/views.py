"""Other readings of the same literals: what base64, base32, base85 and hexadecimal text in them decodes to.

Reversal and rotation are not made here: searches cover them on every reading (`arena.gate.tables.findings`). Decoding
is per token, so that one token that doesn't decode hides nothing else.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator

from arena.gate.tables.literals import Pool, make_pool

_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{8,}={0,2}")
_BASE32 = re.compile(rb"[A-Za-z2-7]{16,}={0,6}")
_HEX = re.compile(rb"[0-9A-Fa-f]{12,}")
_BASE85 = re.compile(rb"[!-~]{10,}")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def decoded_pools(pool: Pool) -> Iterator[Pool]:
    """One pool per encoding that decodes anything."""
    readings: tuple[tuple[str, re.Pattern[bytes], Callable[[bytes], bytes]], ...] = (
        ("base64", _BASE64, _from_base64),
        ("base32", _BASE32, _from_base32),
        ("hex", _HEX, _from_hex),
        ("base85", _BASE85, base64.b85decode),
        ("ascii85", _BASE85, base64.a85decode),
    )
    for name, pattern, decode in readings:
        decoded = make_pool(name, _decoded(pool, pattern, decode))
        if decoded.data:
            yield decoded


def _decoded(pool: Pool, pattern: re.Pattern[bytes], decode: Callable[[bytes], bytes]) -> Iterator[tuple[bytes, int]]:
    for match in pattern.finditer(pool.data):
        try:
            text = decode(match[0])
        except (binascii.Error, ValueError):
            continue
        yield text, pool.line_at(match.start())


def _from_base64(token: bytes) -> bytes:
    token = token.rstrip(b"=").translate(_URL_SAFE)
    return base64.b64decode(token + b"=" * (-len(token) % 4))


def _from_base32(token: bytes) -> bytes:
    token = token.rstrip(b"=")
    return base64.b32decode(token + b"=" * (-len(token) % 8), casefold=True)


def _from_hex(token: bytes) -> bytes:
    return binascii.unhexlify(token[: len(token) // 2 * 2])
