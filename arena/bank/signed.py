"""Signed files of a bank: read as they were written, byte for byte, and checked against the key that is expected."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from arena.chain.port import Verifier
from foundation.canonical import canonical_bytes
from foundation.durable_files import coded
from foundation.errors import ArenaError

_Shape = TypeVar("_Shape")


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises ArenaError P4001 when it can't be read."""
    with coded(path, "P4001"):
        return path.read_bytes()


def decode_written(content: bytes, shape: type[_Shape], place: str) -> _Shape:
    """The value in these bytes; `place` names them in errors. Raises ArenaError P4010 for another shape, and for bytes
    that are not as we write them."""
    with coded(place, "P4010"):
        held = msgspec.json.decode(content, type=shape)
    if msgspec.json.encode(held) != content:
        raise ArenaError("P4010", f"{place}: it was written again by another program")
    return held


def signed_bytes(domain: bytes, value: object) -> bytes:
    """What a key signs of a value: the domain tag, and the hash of its canonical bytes."""
    return domain + hashlib.sha256(canonical_bytes(value)).digest()


def check_signed(signer: str, signature: str, message: bytes, expected: str, verify: Verifier, place: str) -> None:
    """Raise ArenaError P4010 unless the `expected` hotkey (ss58) is the signer, and its signature (hex, in its one
    spelling) is under this message."""
    if signer != expected:
        raise ArenaError("P4010", f"{place}: signed by {signer}, not by {expected}")
    try:
        content = bytes.fromhex(signature)
    except ValueError:
        content = b""
    if content.hex() != signature or not verify(expected, message, content):
        raise ArenaError("P4010", f"{place}: the signature does not fit")
