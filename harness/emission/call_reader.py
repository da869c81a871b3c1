"""Reads tool calls: those that a completion wrote, and what a tool makes of one.

Two calls are the same where executing either does and answers the same (`harness/EMISSION.md`). Pure and total;
malformed text gives no call, never an exception, and a hostile text is read in bounded time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import chain
from typing import Any
from urllib.parse import quote_plus

import orjson

from harness.catalogue.port import read_query
from harness.tools.functions import QUERY_CHARS_MAX, decode_arguments, split_list
from harness.trace import EmittedCall
from problems.model import SERVICES

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_THOUGHT = re.compile("<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"\A\s*```[a-z]*|```\s*\Z")
_DECODER = json.JSONDecoder()
_NESTING_MAX = 100  # of JSON that is read: far below what any interpreter's stack holds

_SEARCH_TEXT = "q"
_LISTS = frozenset(("product_ids", "product_prices", "shop_ids"))  # read part by part, blanks at a comma dropped
_JSON_TEXTS = frozenset(("requirements", "product_queries"))
_SPACES = re.compile(" +")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?")
# What a spelling is of: one kind's never equals another's.
_TEXT, _VALUE, _AMOUNT, _UNREAD = "text:", "value:", "amount:", "unread:"

Decoded = dict[str, Any]
# Name and arguments as the tool reads them: sorted pairs of parameter and spelling, defaults left out.
CallKey = tuple[str, tuple[tuple[str, str], ...]]


class CallReader:
    """Knows a profile's tools: their names, parameters, types and defaults."""

    def __init__(self, schemas: str) -> None:
        """`schemas` is the canonical OpenAI `tools` array, JSON text."""
        self.schemas = schemas
        functions = [schema["function"] for schema in json.loads(schemas)]
        self._tools: dict[str, dict[str, Decoded]] = {
            one["name"]: one.get("parameters", {}).get("properties", {}) for one in functions
        }
        self.names = tuple(self._tools)

    def parameters(self, name: str) -> Sequence[str]:
        """The parameters of a tool, in the schema's order; none of an unknown tool."""
        return tuple(self._tools.get(name, ()))

    def emitted(self, content: str, native: tuple[EmittedCall, ...]) -> tuple[EmittedCall, ...]:
        """The calls of a completion: the native ones, then those written as `<tool_call>` text outside its thinking."""
        written, end = [], content.rfind("</think>") + len("</think>")
        # What follows the last end has no thoughts, and is not searched for one.
        said = _THOUGHT.sub("", content[:end]) + content[end:] if end >= len("</think>") else content
        for tagged in _TAGGED.findall(said):
            values = _values(_FENCE.sub("", tagged).strip())
            for item in chain.from_iterable(value if isinstance(value, list) else [value] for value in values):
                with suppress(UnicodeEncodeError):  # JSON can escape half a character, which no record can hold
                    if (call := _as_call(item)) is not None and "".join(call).encode():
                        written.append(call)
        return native + tuple(
            EmittedCall(call_id=f"text-{index}", name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(written, start=1)
        )

    def key(self, name: str, arguments: str) -> CallKey:
        """What the tool reads of a call. `arguments` is JSON text, well formed or not; blank text is no arguments."""
        try:
            decoded = decode_arguments(arguments)
            if isinstance(decoded, dict):
                return self._read(name, decoded)
            return name, (("", _UNREAD + _value(decoded)),)
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            return name, (("", _UNREAD + arguments),)

    def accepted(self, name: str, arguments: str) -> frozenset[CallKey]:
        """What may be executed as the call that a model wrote: what the tool reads of it as it stands; of it put right,
        where the model gave an argument in another type than the schema's or with blanks around; and of both with the
        search text URL-encoded once, as agents of SN15 send it."""
        accepted = {self.key(name, arguments)}
        decoded = decoded_object(arguments)
        if decoded is None:
            return frozenset(accepted)
        with suppress(orjson.JSONEncodeError):
            known = self._tools.get(name, {})
            right = {key: _put_right(key, value, known.get(key)) for key, value in decoded.items()}
            for given in (decoded, right):
                text = given.get(_SEARCH_TEXT)
                encoded = {_SEARCH_TEXT: quote_plus(text)} if isinstance(text, str) else {}
                accepted.add(self._read(name, {**given, **encoded}))
            accepted.add(self._read(name, right))
        return frozenset(accepted)

    def said(self, name: str, arguments: str) -> Decoded:
        """The arguments that say something: those that the tool takes (all of a tool that is not known) and that are
        not its defaults. What is no object says itself."""
        decoded = decoded_object(arguments)
        if decoded is None:
            return {"": arguments}
        known = self._tools.get(name)
        if known is None:
            return decoded
        return {
            key: value
            for key, value in decoded.items()
            if key in known and value is not None and str(value) not in ("", str(known[key].get("default")))
        }

    def _read(self, name: str, given: Decoded) -> CallKey:
        read = []
        for parameter, value in given.items():
            schema = self._tools.get(name, {}).get(parameter)
            if schema is None:
                read.append((parameter, _value(value)))
                continue
            spelled = _spell(parameter, value, schema)
            # the dispatcher takes null for the default, where there is one
            if "default" not in schema or (
                value is not None and spelled != _spell(parameter, schema["default"], schema)
            ):
                read.append((parameter, spelled))
        return name, tuple(sorted(read))


def decoded_object(arguments: str) -> Decoded | None:
    """The arguments of a call, also those that were encoded twice; None where they are no object."""
    with suppress(orjson.JSONDecodeError):
        decoded = decode_arguments(arguments)
        if isinstance(decoded, str):
            decoded = orjson.loads(decoded)
        return decoded if isinstance(decoded, dict) else None
    return None


def searched(arguments: str) -> str:
    """Arguments, JSON text, with their search text as it is searched for; as they are where they have none."""
    with suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
        decoded = decode_arguments(arguments)
        if isinstance(decoded, dict) and isinstance(text := decoded.get(_SEARCH_TEXT), str):
            return orjson.dumps({**decoded, _SEARCH_TEXT: read_query(text)}).decode()
    return arguments


def _as_call(value: object) -> tuple[str, str] | None:
    """Name and arguments (JSON text) of an object that is a call: native, with arguments, or with parameters."""
    if not isinstance(value, dict):
        return None
    function = value.get("function")
    call = function if isinstance(function, dict) else value
    name = call.get("name")
    if not isinstance(name, str):
        return None
    for word in ("arguments", "parameters", "args", "input"):
        if word in call:
            arguments = call[word]
            # A JSON schema's `parameters` describes a call.
            if isinstance(arguments, dict) and arguments.get("type") == "object" and "properties" in arguments:
                return None
            return name, arguments if isinstance(arguments, str) else json.dumps(arguments)
    return None


def _is_flat(value: object) -> bool:
    """Whether a decoded value is nested no deeper than any honest one."""
    level = [value]
    for _ in range(_NESTING_MAX):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return True
    return False


def _values(text: str) -> Iterator[object]:
    """The JSON values that stand one after another in `text`, up to the first thing that is not JSON."""
    position = 0
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        if not _is_flat(value):
            return
        yield value
        while text[position : position + 1].isspace():
            position += 1


def _spell(parameter: str, value: object, schema: Decoded) -> str:
    """One text for all values of a declared parameter that its tool cannot tell apart."""
    if not isinstance(value, str):
        if schema.get("type") == "number" and isinstance(value, int | float) and not isinstance(value, bool):
            number = Decimal(repr(value))
            return _AMOUNT + (str(number.normalize()) if number else "0")
        return _value(value)
    text = value
    if parameter == _SEARCH_TEXT and len(text) <= QUERY_CHARS_MAX:
        text = _SPACES.sub(" ", read_query(text))
    elif parameter in _LISTS:
        text = ",".join(split_list(text))
    elif parameter in ("sort", "service"):
        parts = [part for part in text.split(",") if part not in ("", "default")]
        is_read = parameter == "service" and all(part in SERVICES for part in parts)
        text = ",".join(parts) if is_read or text == "default" else text
    elif parameter in _JSON_TEXTS:
        with suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
            text = orjson.dumps(orjson.loads(text)).decode()
    return _TEXT + text


def _put_right(parameter: str, value: object, schema: Decoded | None) -> object:
    """A declared argument in the schema's type, without blanks around; everything else as it is."""
    wanted = None if schema is None else schema.get("type")
    if wanted in ("integer", "number"):
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = orjson.loads(value.strip())
        return int(value) if wanted == "integer" and isinstance(value, float) and value.is_integer() else value
    if wanted != "string" or value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text, value = value.strip(), None
        if parameter in _LISTS:
            with suppress(orjson.JSONDecodeError):
                value = orjson.loads(text)
        if not (isinstance(value, list) and {str, int, float}.issuperset(map(type, value))):
            return ",".join(map(str.strip, text.split(","))) if parameter == "service" else text
    if isinstance(value, list) and {str, int, float}.issuperset(map(type, value)):
        return ",".join(str(item).strip() for item in value)
    return orjson.dumps(value).decode() if isinstance(value, list | dict) else str(value)


def _value(value: object) -> str:
    return _VALUE + orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
