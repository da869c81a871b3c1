"""Reads tool calls out of text and gives each a key, so that two spellings of one call compare equal.

The published argument normalisation, version `calls/1`: key order and white space do not count; numbers and strings
of the same number are the same; nulls, empty strings and values equal to the schema's default are left out; a list of
plain values equals its comma-separated text; JSON given as a string equals the JSON; Unicode is composed (NFC). Pure
and total: malformed text gives no call or a key of its own, never an exception.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation

import orjson

from harness.trace import EmittedCall

EVERY_CALL = "*"  # stands for all keys: the text is too crowded with tool names to be read call by call

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"^```[a-z]*\s*|\s*```$")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?")
_DECODER = json.JSONDecoder()

_MENTIONS_MAX = 1_000  # tool names in one message beyond which it counts as holding every call
_OPENINGS_MAX = 4  # braces before a tool name that may open the object it stands in
_WINDOW_CHARS = 1 << 16
_UNESCAPES = 3  # JSON in a string in a string


class CallReader:
    """Knows a profile's tools: their names, parameter order and defaults."""

    def __init__(self, schemas: str) -> None:
        """`schemas` is the canonical OpenAI `tools` array, JSON text."""
        functions = [schema["function"] for schema in json.loads(schemas)]
        self._properties: dict[str, Mapping[str, Mapping[str, object]]] = {
            function["name"]: function.get("parameters", {}).get("properties", {}) for function in functions
        }
        names = "|".join(re.escape(name) for name in sorted(self._properties, key=len, reverse=True))
        self._mention = re.compile(rf"(?<![A-Za-z0-9_])(?:{names})(?![A-Za-z0-9_])") if names else None

    def key(self, name: str, arguments: str) -> str:
        """The identity of a call. `arguments` is JSON text, well formed or not; none at all means no arguments."""
        try:
            decoded = orjson.loads(arguments) if arguments.strip() else {}
        except orjson.JSONDecodeError:
            return f"{name.strip()} ? {_plain_text(arguments)}"
        return self._key(name, decoded)

    def emitted(self, content: str, native: tuple[EmittedCall, ...]) -> tuple[EmittedCall, ...]:
        """The calls of a completion: the native ones, then those written as `<tool_call>` text outside its thinking."""
        written = []
        for tagged in _TAGGED.finditer(_THINKING.sub("", content)):
            for value in _values(_FENCE.sub("", tagged[1].strip())):
                for item in value if isinstance(value, list) else [value]:
                    if (call := _as_call(item)) is not None:
                        written.append(call)
        return native + tuple(
            EmittedCall(call_id=f"text-{index}", name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(written, start=1)
        )

    def keys_in(self, message: Mapping[str, object]) -> frozenset[str]:
        """Keys of the calls that stand in a chat message: in its text, and as native calls."""
        keys: set[str] = set()
        for call in _objects(message.get("tool_calls")):
            if (read := _as_call(call)) is not None:
                keys.add(self.key(*read))
        for text in _texts(message.get("content")):
            keys |= self._keys_in_text(text)
        return frozenset(keys)

    def _keys_in_text(self, text: str) -> set[str]:
        keys: set[str] = set()
        for _ in range(_UNESCAPES + 1):
            if self._mention is None:
                break
            mentions = [match.span() for match in self._mention.finditer(text)]
            if len(mentions) > _MENTIONS_MAX:
                return {EVERY_CALL}
            tried: set[int] = set()
            for start, end in mentions:
                for opening in _openings(text, start):
                    if opening not in tried:
                        tried.add(opening)
                        keys |= self._keys_at(text, opening)
                if text[end : end + 1] == "(" and (key := self._key_of_expression(text[start:end], text, start)):
                    keys.add(key)
            if '\\"' not in text:
                break
            text = text.replace('\\"', '"')
        return keys

    def _keys_at(self, text: str, opening: int) -> set[str]:
        try:
            value, _ = _DECODER.raw_decode(text[opening : opening + _WINDOW_CHARS])
        except (ValueError, RecursionError):
            return set()
        return {self.key(*call) for item in _objects(value) if (call := _as_call(item)) is not None}

    def _key_of_expression(self, name: str, text: str, start: int) -> str | None:
        """The key of `name(...)` as Python would read it; positional values take the schema's order. `name()` is how
        prose names a function and is no call."""
        source = _balanced(text, start + len(name))
        if source is None:
            return None
        try:
            tree = ast.parse(f"f{source}", mode="eval").body
            if not isinstance(tree, ast.Call):
                return None
            order = list(self._properties[name])
            arguments = {key: ast.literal_eval(node) for key, node in zip(order, tree.args, strict=False)}
            arguments |= {word.arg: ast.literal_eval(word.value) for word in tree.keywords if word.arg is not None}
            return self._key(name, json.loads(json.dumps(arguments))) if arguments else None
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None

    def _key(self, name: str, decoded: object) -> str:
        name = name.strip()
        if isinstance(decoded, str):  # arguments that were encoded twice
            try:
                decoded = orjson.loads(decoded)
            except orjson.JSONDecodeError:
                return f"{name} ? {_plain_text(str(decoded))}"
        if not isinstance(decoded, dict):
            return f"{name} ? {_spell(decoded)}"
        properties = self._properties.get(name, {})
        kept = {}
        for parameter, value in decoded.items():
            spelled = _spell(value)
            if spelled not in ("", _spell(properties.get(parameter, {}).get("default"))):
                kept[str(parameter).strip()] = spelled
        return f"{name} {json.dumps(kept, sort_keys=True, ensure_ascii=False)}"


def _spell(value: object) -> str:
    """One text for all spellings of a value; empty for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(repr(value))
    if isinstance(value, str):
        return _spell_text(value)
    if isinstance(value, list):
        if all(not isinstance(item, list | dict) for item in value):
            return ",".join(_spell(item) for item in value)
        return "[" + ",".join(_spell(item) for item in value) + "]"
    if isinstance(value, dict):
        items = sorted((str(key).strip(), _spell(item)) for key, item in value.items())
        return json.dumps([pair for pair in items if pair[1]], ensure_ascii=False)
    return _plain_text(str(value))


def _spell_text(value: str) -> str:
    text = _plain_text(value)
    if text[:1] in ("[", "{"):
        try:
            decoded = orjson.loads(value)
        except orjson.JSONDecodeError:
            return text
        return _spell(decoded)
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
    return " ".join(unicodedata.normalize("NFC", text).split())


def _as_call(value: object) -> tuple[str, str] | None:
    """Name and arguments (JSON text) of an object that is a call: native, with arguments, or with parameters."""
    if not isinstance(value, dict):
        return None
    function = value.get("function")
    call = function if isinstance(function, dict) else value
    name = call.get("name")
    if not isinstance(name, str):
        return None
    for word in ("arguments", "parameters", "args"):
        if word in call:
            arguments = call[word]
            # A JSON schema's `parameters` describes a call and is none.
            if isinstance(arguments, dict) and arguments.get("type") == "object" and "properties" in arguments:
                return None
            return name, arguments if isinstance(arguments, str) else json.dumps(arguments)
    return None


def _objects(value: object) -> Iterator[dict[str, object]]:
    """Every object in a decoded value, without recursion."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _values(text: str) -> Iterator[object]:
    """The JSON values that stand one after another in `text`, up to the first thing that is none."""
    position = 0
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        yield value
        while text[position : position + 1].isspace():
            position += 1


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def _openings(text: str, position: int) -> Iterator[int]:
    """The nearest braces before `position`, closest first."""
    for _ in range(_OPENINGS_MAX):
        position = text.rfind("{", 0, position)
        if position < 0:
            return
        yield position


def _balanced(text: str, start: int) -> str | None:
    """The parenthesised text that opens at `start`, or None when it does not close within the window."""
    depth, quote, position = 0, "", start
    end = min(len(text), start + _WINDOW_CHARS)
    while position < end:
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                return text[start : position + 1]
        position += 1
    return None
