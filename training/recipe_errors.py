"""What is wrong with a recipe's key or value, in words: key, value, bound, and the nearest that is known.

Promise: pure; it reads the engine's message and the text's own values, and decides nothing.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

_UNKNOWN = re.compile(r"unknown field `(\w+)`")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_STEP = re.compile(r"\w+")


def describe_invalid(message: str, told: Mapping[str, Any], rules: type) -> str:
    """`key = value: bound` for a value that `rules` don't take, `; did you mean ...` for a key they don't know.

    `message` is msgspec's own, `told` what it was asked to read.
    """
    unknown = _UNKNOWN.search(message)
    if unknown:
        return message + _nearest(unknown.group(1), set(_names(msgspec.inspect.type_info(rules))))
    place = _PLACE.search(message)
    if place is None:
        return message
    steps = _STEP.findall(place.group(1))
    value = _value(told, steps)
    found = _type_at(msgspec.inspect.type_info(rules), steps)
    bound = message[: place.start()]
    if isinstance(found, msgspec.inspect.LiteralType):
        known = [str(one) for one in found.values]
        bound = f"one of {', '.join(known)} is expected{_nearest(str(value), known)}"
    return f"{place.group(1)} = {value!r}: {bound}"


def non_finite(told: Any, place: str = "") -> str:
    """`key = value` of the first number that is infinite or none, "" without one."""
    if isinstance(told, float):
        return "" if math.isfinite(told) else f"{place} = {told}"
    pairs: Iterator[tuple[str, Any]] = iter(())
    if isinstance(told, dict):
        pairs = ((f"{place}.{key}" if place else str(key), value) for key, value in told.items())
    elif isinstance(told, list):
        pairs = ((f"{place}[{number}]", value) for number, value in enumerate(told))
    return next((found for key, value in pairs if (found := non_finite(value, key))), "")


def _nearest(given: str, known: Sequence[str] | set[str]) -> str:
    close = difflib.get_close_matches(given, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _names(found: msgspec.inspect.Type) -> Iterator[str]:
    """The keys of a struct and of the structs in it."""
    if isinstance(found, msgspec.inspect.StructType):
        for field in found.fields:
            yield field.name
            yield from _names(field.type)


def _value(told: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        told = told[int(step)] if isinstance(told, list) else told[step]
    return told


def _type_at(found: msgspec.inspect.Type, steps: Sequence[str]) -> msgspec.inspect.Type:
    for step in steps:
        if isinstance(found, msgspec.inspect.StructType):
            found = next(field.type for field in found.fields if field.name == step)
        elif isinstance(found, msgspec.inspect.VarTupleType):
            found = found.item_type
    return found
