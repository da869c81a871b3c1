"""The likeness of two tool calls, so that a call is found in a prompt however it is spelled there.

The published normalisation (`harness/EMISSION.md`): key order and white space do not count; numbers and strings of the
same number are the same; nulls, empty strings and values equal to the schema's default are left out; a list of plain
values equals its comma-separated text; JSON given as a string equals the JSON; Unicode is composed (NFC); a search text
counts the same typed or URL-encoded; `default` in sort and service means none. In version `calls/1` it also decided
what the model wrote, and read JSON in every text; since, `harness.emission.execution` decides that, names count as they
are and a text that is searched for is no JSON. Pure and total: malformed arguments get a key of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from re import compile as compile_pattern
from urllib.parse import unquote_plus

import msgspec
import orjson

from harness.emission.unicode_normalize import compose

_NUMBER = compile_pattern(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?")
_MALFORMED = "?"
_DEPTH_MAX = 32  # of nested arguments; all that lies deeper is one and the same to the key
# Spellings of objects are set with separators that count as white space, so that no normalised text holds them. Quoting
# would double at each level: an object forty levels deep would fill the host's memory.
_OPEN, _CLOSE, _NEXT, _IS = "\x1d", "\x1c", "\x1e", "\x1f"
_SEARCH_TEXT = "q"  # agents of SN15 URL-encode it once themselves before they send it
_WITH_DEFAULT_WORD = ("sort", "service")  # where SN15's tools write `default` for none


class CallKey(msgspec.Struct, frozen=True):
    """Name and normalised arguments: sorted pairs of parameter and spelling, defaults left out."""

    name: str
    arguments: tuple[tuple[str, str], ...] = ()


class CallMenu(msgspec.Struct, frozen=True):
    """All calls whose every argument is among the listed choices of its parameter; none without arguments."""

    name: str
    choices: tuple[tuple[str, frozenset[str]], ...]


def call_key(name: str, arguments: str, defaults: Mapping[str, object], *, is_first: bool = False) -> CallKey:
    """The key of a call. `arguments` is JSON text, well formed or not; none at all means no arguments. `defaults` maps
    parameters of the tool to the defaults of its schema; `is_first` asks for `calls/1`."""
    try:
        decoded = orjson.loads(arguments) if arguments.strip() else {}
    except orjson.JSONDecodeError:
        return _malformed(name, arguments)
    return decoded_call_key(name, decoded, defaults, is_first=is_first)


def decoded_call_key(name: str, decoded: object, defaults: Mapping[str, object], *, is_first: bool = False) -> CallKey:
    """The key of a call whose arguments are decoded JSON."""
    if isinstance(decoded, str):  # arguments that were encoded twice
        try:
            decoded = orjson.loads(decoded)
        except orjson.JSONDecodeError:
            return _malformed(name, str(decoded))
    if not isinstance(decoded, dict):
        return CallKey(name.strip(), ((_MALFORMED, _spell(decoded, is_first=is_first)),))
    spelled = {
        str(parameter).strip() if is_first else str(parameter): spell_argument(str(parameter), value, is_first=is_first)
        for parameter, value in decoded.items()
    }
    kept = {
        parameter: text
        for parameter, text in spelled.items()
        if text not in ("", spell_argument(parameter, defaults.get(parameter), is_first=is_first))
    }
    return CallKey(name.strip(), tuple(sorted(kept.items())))


def spell_argument(parameter: str, value: object, *, is_first: bool = False) -> str:
    """One text for all spellings of an argument; empty for one that says nothing."""
    if parameter == _SEARCH_TEXT and isinstance(value, str):
        return (
            _spell(unquote_plus(value), is_first=True) if is_first else _spell_parts(_plain_text(unquote_plus(value)))
        )
    text = _spell(value, is_first=is_first)
    if parameter in _WITH_DEFAULT_WORD:
        return ",".join(part for part in text.split(",") if part != "default")
    return text


def _malformed(name: str, arguments: str) -> CallKey:
    return CallKey(name.strip(), ((_MALFORMED, _plain_text(arguments)),))


def _spell(value: object, depth: int = 0, *, is_first: bool) -> str:
    if depth > _DEPTH_MAX:
        return _OPEN + _CLOSE
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(repr(value))
    if isinstance(value, str):
        return _spell_text(value, depth, is_first=is_first)
    if isinstance(value, list):
        spelled = ",".join(_spell(item, depth + 1, is_first=is_first) for item in value)
        return f"[{spelled}]" if any(isinstance(item, list | dict) for item in value) else spelled
    if isinstance(value, dict):
        items = sorted(
            (_plain_text(str(key)), _spell(item, depth + 1, is_first=is_first)) for key, item in value.items()
        )
        return _OPEN + _NEXT.join(key + _IS + text for key, text in items if text) + _CLOSE
    return _plain_text(str(value))


def _spell_text(value: str, depth: int, *, is_first: bool) -> str:
    text = _plain_text(value)
    # Of a text inside other JSON, a search reads the words and not the JSON; nor does any tool read what nests so deep.
    if text[:1] in ("[", "{") and (is_first or (depth == 0 and value.count("[") + value.count("{") <= _DEPTH_MAX)):
        try:
            decoded = orjson.loads(value)
        except orjson.JSONDecodeError:
            return text
        return _spell(decoded, depth + 1, is_first=is_first)
    return _spell_parts(text)


def _spell_parts(text: str) -> str:
    return ",".join(_number(part.strip()) for part in text.split(","))


def _number(text: str) -> str:
    if _NUMBER.fullmatch(text) is None:
        return text
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return format(number.normalize(), "f") if number else "0"


def _plain_text(text: str) -> str:
    return " ".join(compose("NFC", text).split())
