"""Conversations as nested Arrow columns: messages, tools and calls as lists of typed fields, from version 3 on.

A field of one name is of one type in every row, so no table library has to guess and none fills one tool's
arguments with another's: arguments and a tool's parameters stay JSON text. What a message does not have is null.
Columns are put together from buffers, as in `parquet`, and are read back without a Python object a scalar.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa

from arena.export.conversation import ExecutedCall
from harness.chat import ChatMessage

_TEXT, _NUMBER = pa.string(), pa.int64()
_FUNCTION = pa.struct([("name", _TEXT), ("arguments", _TEXT)])
_CALLS = pa.list_(pa.struct([("id", _TEXT), ("type", _TEXT), ("function", _FUNCTION)]))
MESSAGES = pa.list_(
    pa.struct(
        [
            ("role", _TEXT),
            ("content", _TEXT),
            ("reasoning_content", _TEXT),
            ("tool_calls", _CALLS),
            ("tool_call_id", _TEXT),
            ("origin", _TEXT),
            ("weight", _NUMBER),
            ("echoed_tool_calls", _CALLS),
            ("agent_tool_calls", _CALLS),
        ]
    )
)
TOOLS = pa.list_(
    pa.struct(
        [
            ("type", _TEXT),
            ("function", pa.struct([("name", _TEXT), ("description", _TEXT), ("parameters", _TEXT)])),
        ]
    )
)
CALLS = pa.list_(
    pa.struct(
        [
            ("index", _NUMBER),
            ("step", _NUMBER),
            ("name", _TEXT),
            ("arguments", _TEXT),
            ("emitter", _TEXT),
            ("call_id", _TEXT),
            ("message", _NUMBER),
            ("result", _TEXT),
            ("failure", _TEXT),
            ("surfaced", pa.list_(pa.struct([("product_id", _TEXT), ("rank", _NUMBER)]))),
            ("ignored_parameters", pa.list_(_TEXT)),
        ]
    )
)
TYPES = {"messages": MESSAGES, "tools": TOOLS, "calls": CALLS}
UNREAD = "_text"  # of arguments as objects: the key of text that is no object


def plain_messages(messages: Sequence[ChatMessage], *, as_objects: bool) -> list[dict[str, Any]]:
    """Messages as plain values, for `MESSAGES`."""
    plain: list[dict[str, Any]] = msgspec.to_builtins(messages)
    if as_objects:
        for message in plain:
            for key in ("tool_calls", "echoed_tool_calls", "agent_tool_calls"):
                for call in message.get(key, ()):
                    call["function"]["arguments"] = object_text(call["function"]["arguments"])
    return plain


def plain_calls(calls: Sequence[ExecutedCall], *, as_objects: bool) -> list[dict[str, Any]]:
    """Executed calls as plain values, for `CALLS`."""
    plain: list[dict[str, Any]] = msgspec.to_builtins(calls)
    for call in plain if as_objects else ():
        call["arguments"] = object_text(call["arguments"])
    return plain


@functools.lru_cache(maxsize=64)  # as many as `tools_of` remembers
def plain_tools(tools: str) -> list[dict[str, Any]]:
    """A `tools` array as plain values, for `TOOLS`. Equal texts give one list, which nobody may change."""
    plain: list[dict[str, Any]] = msgspec.json.decode(tools)
    for tool in plain:
        function = tool["function"]
        tool["function"] = function | {"parameters": msgspec.json.encode(function.get("parameters", {})).decode()}
    return plain


def object_of(arguments: str) -> dict[str, Any]:
    """Arguments as the object they say; text that says none under `UNREAD`."""
    try:
        said = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {UNREAD: arguments}


def object_text(arguments: str) -> str:
    """The JSON text of `object_of`, as it was written where it says an object."""
    said = object_of(arguments)
    return msgspec.json.encode(said).decode() if list(said) == [UNREAD] else arguments


def values_of(column: Any) -> list[Any]:
    """The plain values of a column, nested or not; fields that are null are left out."""
    kind = column.type
    if pa.types.is_list(kind):
        ends, flat = column.offsets.to_pylist(), values_of(column.flatten())
        base = ends[0] if ends else 0
        return [flat[start - base : end - base] for start, end in pairwise(ends)]
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = zip(*map(values_of, column.flatten()), strict=True)
        return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in fields]
    values: list[Any] = column.to_pylist()
    return values


def feature_lines(name: str, kind: Any, *, has_argument_objects: bool, depth: int = 1) -> list[str]:
    """A column in the YAML of a dataset card. A tool's parameters are `json`, which `datasets` decodes, and so are
    arguments where every one of them is an object."""
    indent = "  " * depth
    lines = [f"{indent}- name: {name}"]
    is_list = pa.types.is_list(kind)
    inner = kind.value_type if is_list else kind
    if pa.types.is_struct(inner):
        lines.append(f"{indent}  {'list' if is_list else 'struct'}:")
        for field in inner:
            lines += feature_lines(field.name, field.type, has_argument_objects=has_argument_objects, depth=depth + 1)
        return lines
    if is_list:
        return [*lines, f"{indent}  list: {inner}"]
    is_json = name == "parameters" or (name == "arguments" and has_argument_objects)
    return [*lines, f"{indent}  dtype: {'json' if is_json else kind}"]
