"""What a tool reads of a call: two calls are one only where executing either does and answers the same (`calls/2`).

A dispatched call is the model's when the tool reads of it what it reads of the model's call: as it stands, or put right
in the one way of `ToolReading.accepted`. Nothing else is normalised: names and texts count letter for letter, but where
the tool's own reader drops something (`harness/EMISSION.md`). Pure and total.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

import orjson

from harness.catalogue.requests import read_query
from harness.emission.call_identity import CallKey
from harness.tools.call import decode_arguments, split_list
from harness.tools.search import QUERY_CHARS_MAX
from problems.product import SERVICES

_SEARCH_TEXT = "q"
_LISTS = frozenset(("product_ids", "product_prices", "shop_ids"))  # read part by part, blanks at a comma dropped
_JSON_TEXTS = frozenset(("requirements", "product_queries"))
_SPACES = re.compile(" +")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?")
# What a spelling is of: one kind's never equals another's.
_TEXT, _VALUE, _AMOUNT, _UNREAD = "text:", "value:", "amount:", "unread:"

Decoded = dict[str, Any]


class ToolReading:
    """How the tools of a profile read calls."""

    def __init__(self, schemas: str) -> None:
        """`schemas` is the canonical OpenAI `tools` array, JSON text."""
        functions = [schema["function"] for schema in json.loads(schemas)]
        self._tools: dict[str, dict[str, Decoded]] = {
            one["name"]: one.get("parameters", {}).get("properties", {}) for one in functions
        }

    def executed(self, name: str, arguments: str) -> CallKey:
        """What the tool reads of a call. `arguments` is JSON text, well formed or not."""
        try:
            decoded = decode_arguments(arguments)
            if isinstance(decoded, dict):
                return self._read(name, decoded)
            return CallKey(name, (("", _UNREAD + _value(decoded)),))
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            return CallKey(name, (("", _UNREAD + arguments),))

    def accepted(self, name: str, arguments: str) -> frozenset[CallKey]:
        """What may be executed as the call that a model wrote: what the tool reads of it as it stands; of it put right,
        where the model gave an argument in another type than the schema's or with blanks around; and of both with the
        search text URL-encoded once, as agents of SN15 send it."""
        accepted = {self.executed(name, arguments)}
        try:
            decoded = decode_arguments(arguments)
            if isinstance(decoded, str):
                decoded = orjson.loads(decoded)
            if not isinstance(decoded, dict):
                return frozenset(accepted)
            right = {key: _put_right(key, value, self._schema(name, key)) for key, value in decoded.items()}
            for given in (decoded, right):
                text = given.get(_SEARCH_TEXT)
                encoded = {_SEARCH_TEXT: quote_plus(text)} if isinstance(text, str) else {}
                accepted.add(self._read(name, {**given, **encoded}))
            accepted.add(self._read(name, right))
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            pass
        return frozenset(accepted)

    def searched(self, arguments: str) -> str:
        """Arguments, JSON text, with their search text as it is searched for; as they are where they have none."""
        try:
            decoded = decode_arguments(arguments)
            if isinstance(decoded, dict) and isinstance(text := decoded.get(_SEARCH_TEXT), str):
                return orjson.dumps({**decoded, _SEARCH_TEXT: read_query(text)}).decode()
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            pass
        return arguments

    def _schema(self, name: str, parameter: str) -> Decoded | None:
        """None of a parameter that the tool does not declare."""
        return self._tools.get(name, {}).get(parameter)

    def _read(self, name: str, given: Decoded) -> CallKey:
        read = []
        for parameter, value in given.items():
            schema = self._schema(name, parameter)
            if schema is None:
                read.append((parameter, _value(value)))
                continue
            spelled = _spell(parameter, value, schema)
            # the dispatcher takes null for the default, where there is one
            if "default" not in schema or (
                value is not None and spelled != _spell(parameter, schema["default"], schema)
            ):
                read.append((parameter, spelled))
        return CallKey(name, tuple(sorted(read)))


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
    elif parameter == "sort" and text == "default":
        text = ""
    elif parameter == "service":
        parts = [part for part in text.split(",") if part not in ("", "default")]
        text = ",".join(parts) if all(part in SERVICES for part in parts) else text
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
        if not (isinstance(value, list) and all(map(_is_plain, value))):
            return ",".join(map(str.strip, text.split(","))) if parameter == "service" else text
    if isinstance(value, list) and all(map(_is_plain, value)):
        return ",".join(str(item).strip() for item in value)
    return orjson.dumps(value).decode() if isinstance(value, list | dict) else str(value)


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _value(value: object) -> str:
    return _VALUE + orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
