"""Canonical bytes and content hashes: one value has one byte string, on every machine.

Rule: sorted ASCII keys, UTF-8 strings, integers below 2^53, booleans, null, lists. Floats are refused, because two
languages print them differently; foreign JSON that may hold floats travels as text. Hash and sign the bytes; verifying
never canonicalises again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import orjson

Value = TypeVar("Value")

# What reading foreign JSON raises: malformed or of another form, no UTF-8, nested deeper than the reader goes.
UNREADABLE_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER  # of canonical bytes


def canonical_bytes(value: object) -> bytes:
    """Canonical JSON of a Struct, dict, list or scalar.

    Raises TypeError for a float, a non-ASCII key or an unknown type, and orjson.JSONEncodeError (a TypeError) for an
    integer outside (-2^53, 2^53) or a string that is not valid Unicode.
    """
    plain = msgspec.to_builtins(value)
    _refuse_ambiguous(plain)
    return orjson.dumps(plain, option=OPTIONS)


def read_canonical(content: bytes | str, kind: type[Value]) -> Value:
    """A typed value of foreign JSON that can be hashed: it has canonical bytes, though it may have come in others.

    Raises one of UNREADABLE_JSON, also for a number or a text that canonical bytes don't hold.
    """
    value = msgspec.json.decode(content, type=kind)
    try:
        canonical_bytes(value)
    except TypeError as error:
        raise msgspec.ValidationError(str(error)) from error
    return value


def content_hash(value: object) -> str:
    """sha256 hex of `canonical_bytes(value)`: the identity of a typed value."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def text_hash(text: str) -> str:
    """sha256 hex of the UTF-8 bytes of `text` (agent source, prompts)."""
    return hashlib.sha256(text.encode()).hexdigest()


def foreign_text(value: object) -> str:
    """Deterministic JSON text of foreign data (floats allowed), to be carried as a string. Keys are sorted."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()


def objects_in(value: object) -> Iterator[dict[str, object]]:
    """Every object in a decoded value of foreign JSON, without recursion."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack += [one for one in item.values() if isinstance(one, (dict, list))]
        elif isinstance(item, list):
            stack.extend(item)


_PLAIN = frozenset({str, int, bool, type(None)})  # nearly every value, so a call for each took most of the time


def _refuse_ambiguous(value: object) -> None:
    if isinstance(value, float):
        raise TypeError("canonical bytes hold no floats: use integers in ten-thousandths, or foreign_text()")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isascii():
                raise TypeError(f"canonical bytes need ASCII string keys, not {key!r}")
            if type(item) not in _PLAIN:
                _refuse_ambiguous(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if type(item) not in _PLAIN:
                _refuse_ambiguous(item)


def file_sha256(path: Path) -> str:
    """sha256 hex of a file's bytes, read in blocks. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
