"""Reads tool calls out of text: those a completion wrote, and those that are in a message.

Pure and total; malformed text gives no call, never an exception, and a hostile message is read in bounded
time. `harness.emission.call_identity` compares two calls; `harness.emission.attribution` decides who wrote one.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from foundation.canonical import objects_in
from harness.emission.call_identity import CallKey, CallMenu, call_key, decoded_call_key, spell_argument
from harness.trace import EmittedCall

EVERY_CALL = CallKey("*")  # stands for all keys: the text is too crowded with tool names to be read call by call

_TAG_OPEN, _TAG_CLOSE = "<tool_call>", "</tool_call>"
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_FENCE = "```"
_FENCE_OPEN = re.compile(r"```[a-z]*")
_BRACKET = re.compile(r"[\\'\"()\[\]{}]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[\"\\/bfnrt])")
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_DECODER = json.JSONDecoder()

_KEYS_KEPT = 64  # a call is asked for when it is written, when it is dispatched and by the rule
_MENTIONS_MAX = 1_000  # tool names in one message beyond which it counts as holding every call
_OPENINGS_MAX = 4  # braces before a tool name that may open the object it is in
_GAP_CHARS = 64  # between a tool name and the object of its arguments, as in "Action: NAME, Action Input: {...}"
_TAGS_CHARS = 2_000  # after a tool name in which its arguments may stand as tags
_WINDOW_CHARS = 1 << 16
_UNESCAPES = 3  # JSON in a string in a string
_EFFORT_PER_CHARACTER = 32  # how often the characters of a message may be read again; a menu of calls needs about five
_EFFORT_MIN = 1 << 18
_EXPRESSION_EFFORT = 16  # parsing Python, or spelling out arguments, against decoding JSON
_NESTING_MAX = 100  # of JSON that is read: far below what any interpreter's stack holds
_BRACKETS_MAX = 12  # of brackets in a Python call: its parser may try each twice


class _CrowdedError(Exception):
    """A message asks for more reading than any honest one."""


class _Effort:
    """What reading one text may still cost, in characters decoded: a hostile one must not hold up the host."""

    def __init__(self, characters: int) -> None:
        self._left = characters

    def spend(self, characters: int) -> None:
        """Raises _CrowdedError when more is spent than there is."""
        self._left -= characters
        if self._left < 0:
            raise _CrowdedError


class StandingCall(msgspec.Struct, frozen=True):
    """The calls that are in a message."""

    keys: frozenset[CallKey] = frozenset()
    menus: frozenset[CallMenu] = frozenset()


class CallReader:
    """Knows a profile's tools: their names, parameter order and defaults."""

    def __init__(self, schemas: str, *, is_first: bool = False) -> None:
        """`schemas` is the canonical OpenAI `tools` array, JSON text; `is_first` spells calls as `calls/1` did."""
        self.schemas, self._is_first = schemas, is_first
        functions = [schema["function"] for schema in json.loads(schemas)]
        properties = {one["name"]: one.get("parameters", {}).get("properties", {}) for one in functions}
        self._parameters: dict[str, list[str]] = {name: list(known) for name, known in properties.items()}
        self._defaults: dict[str, dict[str, object]] = {
            name: {parameter: schema.get("default") for parameter, schema in known.items()}
            for name, known in properties.items()
        }
        names = "|".join(re.escape(name) for name in sorted(properties, key=len, reverse=True))
        self._mention = re.compile(rf"(?<![A-Za-z0-9_])(?:{names})(?![A-Za-z0-9_])") if names else None
        self._key = lru_cache(_KEYS_KEPT)(
            lambda name, arguments: call_key(name, arguments, self._defaults.get(name.strip(), {}), is_first=is_first)
        )

    def key(self, name: str, arguments: str) -> CallKey:
        """The identity of a call. `arguments` is JSON text, well formed or not; none at all means no arguments."""
        return self._key(name, arguments)

    def first(self) -> CallReader:
        """A reader of the same tools that spells calls as `calls/1` did."""
        return CallReader(self.schemas, is_first=True)

    def parameters(self, name: str) -> Sequence[str]:
        """The parameters of a tool, in the schema's order; none of an unknown tool."""
        return self._parameters.get(name, ())

    @property
    def names(self) -> Sequence[str]:
        """The profile's tools."""
        return tuple(self._parameters)

    def emitted(self, content: str, native: tuple[EmittedCall, ...]) -> tuple[EmittedCall, ...]:
        """The calls of a completion: the native ones, then those written as `<tool_call>` text outside its thinking."""
        written = []
        for tagged in _tagged(_without_thinking(content)):
            text = tagged.strip()
            if (fence := _FENCE_OPEN.match(text)) is not None:
                text = text[fence.end() :].lstrip()
            text = text.removesuffix(_FENCE).rstrip()
            for value in _values(text):
                for item in value if isinstance(value, list) else [value]:
                    if (call := _as_call(item)) is not None and all(map(_is_unicode, call)):
                        written.append(call)
        return native + tuple(
            EmittedCall(call_id=f"text-{index}", name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(written, start=1)
        )

    def standing_in(self, message: Mapping[str, object]) -> StandingCall:
        """The calls that are in a chat message: in its text, and as native calls."""
        keys: set[CallKey] = set()
        menus: set[CallMenu] = set()
        calls = message.get("tool_calls")
        for call in objects_in(calls if _is_flat(calls) else None):
            if (read := _as_call(call)) is not None:
                keys.add(self.key(*read))
        try:
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            for text in (part.get("text") for part in parts if isinstance(part, dict)):
                if not isinstance(text, str):
                    continue
                self._read_text(text, keys, menus, _Effort(_EFFORT_MIN + _EFFORT_PER_CHARACTER * len(text)))
        except _CrowdedError:
            keys.add(EVERY_CALL)
        return StandingCall(frozenset(keys), frozenset(menus))

    def _read_text(self, text: str, keys: set[CallKey], menus: set[CallMenu], effort: _Effort) -> None:
        for _ in range(_UNESCAPES + 1):
            if self._mention is None:
                return
            mentions = [match.span() for match in self._mention.finditer(text)]
            if len(mentions) > _MENTIONS_MAX:
                keys.add(EVERY_CALL)
                return
            tried: set[int] = set()
            for start, end in mentions:
                opening = start
                for _ in range(_OPENINGS_MAX):  # an object that opens further away is not read to here
                    opening = text.rfind("{", max(0, start - _WINDOW_CHARS), opening)
                    if opening < 0:
                        break
                    if opening not in tried:
                        tried.add(opening)
                        self._read_object(text, opening, keys, menus, effort)
                keys |= {key for key in self._after_name(text, start, end, effort) if key is not None}
            if '\\"' not in text:
                return
            text = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1]) or chr(int(found[1][1:], 16)), text)

    def _read_object(self, text: str, opening: int, keys: set[CallKey], menus: set[CallMenu], effort: _Effort) -> None:
        for item in objects_in(_decoded_at(text, opening, effort)):
            if (menu := _as_menu(item, is_first=self._is_first)) is not None:
                effort.spend(_EXPRESSION_EFFORT * sum(len(one) for _, choices in menu.choices for one in choices))
                menus.add(menu)
            if (call := _as_call(item)) is not None:
                effort.spend(_EXPRESSION_EFFORT * len(call[1]))
                keys.add(self.key(*call))

    def _after_name(self, text: str, start: int, end: int, effort: _Effort) -> Iterator[CallKey | None]:
        """Keys of the forms in which arguments follow the tool's name. Without any argument a name is just prose."""
        name = text[start:end]
        if text[end : end + 1] == "(":
            yield self._key_of_expression(name, text, end, effort)
        opening = text.find("{", end, end + _GAP_CHARS)
        decoded = _decoded_at(text, opening, effort) if opening >= 0 else None
        if isinstance(decoded, dict):
            yield self._key_with_arguments(name, decoded)
        if text[start - 1 : start] in ("<", "=", '"', "'"):
            yield self._key_with_arguments(name, self._tagged_arguments(name, text[end : end + _TAGS_CHARS]))

    def _tagged_arguments(self, name: str, text: str) -> dict[str, object]:
        """`<parameter=q>..</parameter>`, `<parameter name="q">..</parameter>` or `<q>..</q>`, up to the next name."""
        following = self._mention.search(text) if self._mention is not None else None
        text = text[: following.start()] if following else text
        arguments: dict[str, object] = {}
        for parameter in self._parameters[name]:
            for opening, closing in (
                (f"<{parameter}>", f"</{parameter}>"),
                (f"<parameter={parameter}>", "</parameter>"),
                (f'<parameter name="{parameter}">', "</parameter>"),
            ):
                _, is_open, rest = text.partition(opening)
                value, is_closed, _ = rest.partition(closing)
                if is_open and is_closed:
                    arguments[parameter] = value
        return arguments

    def _key_with_arguments(self, name: str, arguments: dict[str, object]) -> CallKey | None:
        key = decoded_call_key(name, arguments, self._defaults[name], is_first=self._is_first)
        return key if key.arguments else None

    def _key_of_expression(self, name: str, text: str, opening: int, effort: _Effort) -> CallKey | None:
        """The key of `name(...)` as Python would read it; positional values take the schema's order."""
        source = _balanced(text, opening, effort)
        if source is None:
            return None
        effort.spend(_EXPRESSION_EFFORT * len(source))
        try:
            tree = ast.parse(f"f{source}", mode="eval").body
            if not isinstance(tree, ast.Call) or not (tree.args or tree.keywords):
                return None
            arguments = {
                key: ast.literal_eval(node) for key, node in zip(self._parameters[name], tree.args, strict=False)
            }
            arguments |= {word.arg: ast.literal_eval(word.value) for word in tree.keywords if word.arg is not None}
            decoded = json.loads(json.dumps(arguments))
            return decoded_call_key(name, decoded, self._defaults[name], is_first=self._is_first)
        # A parser that meets its own bounds says so by any of these, and the source is at most a window long.
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None


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
            # A JSON schema's `parameters` describes a call and is none.
            if isinstance(arguments, dict) and arguments.get("type") == "object" and "properties" in arguments:
                return None
            return name, arguments if isinstance(arguments, str) else json.dumps(arguments)
    return None


def _without_thinking(content: str) -> str:
    """The content less its closed thoughts."""
    kept, position = [], 0
    while (opening := content.find(_THINK_OPEN, position)) >= 0:
        closing = content.find(_THINK_CLOSE, opening)
        if closing < 0:
            break
        kept.append(content[position:opening])
        position = closing + len(_THINK_CLOSE)
    return "".join((*kept, content[position:]))


def _tagged(content: str) -> Iterator[str]:
    """What is in each `<tool_call>`, closed or not."""
    position = 0
    while (opening := content.find(_TAG_OPEN, position)) >= 0:
        opening += len(_TAG_OPEN)
        closing = content.find(_TAG_CLOSE, opening)
        yield content[opening : closing if closing >= 0 else len(content)]
        if closing < 0:
            return
        position = closing + len(_TAG_CLOSE)


def _is_unicode(text: str) -> bool:
    """Whether the text can be written down: JSON can escape half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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


def _as_menu(value: dict[str, object], *, is_first: bool) -> CallMenu | None:
    """The choices of a tool's schema that leaves the model a list to pick from, or a single value."""
    name = value.get("name")
    schema = next((value[word] for word in ("parameters", "input_schema", "inputSchema") if word in value), None)
    if not isinstance(name, str) or not isinstance(schema, dict):
        return None
    properties = schema.get("properties", schema)
    choices = {}
    for parameter, described in properties.items() if isinstance(properties, dict) else ():
        if isinstance(described, dict):
            allowed = described.get("enum", [described["const"]] if "const" in described else None)
            if isinstance(allowed, list):
                choices[parameter] = frozenset(spell_argument(parameter, one, is_first=is_first) for one in allowed)
    return CallMenu(name.strip(), tuple(sorted(choices.items()))) if choices else None


def _decoded_at(text: str, opening: int, effort: _Effort) -> object:
    """The JSON value that begins at `opening`; None when there is none within the window."""
    window = text[opening : opening + _WINDOW_CHARS]
    try:
        value, end = _DECODER.raw_decode(window)
    except json.JSONDecodeError as error:
        value, end = None, error.pos
    except (ValueError, RecursionError):
        value, end = None, len(window)
    effort.spend(end)
    return value if _is_flat(value) else None


def _values(text: str) -> Iterator[object]:
    """The JSON values that stand one after another in `text`, up to the first thing that is none."""
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


def _balanced(text: str, start: int, effort: _Effort) -> str | None:
    """The parenthesised text that opens at `start`; None when it does not close within the window or nests too deep."""
    depth, quote, passed = 0, "", start
    end = min(len(text), start + _WINDOW_CHARS)
    for found in _BRACKET.finditer(text, start, end):
        position, character = found.start(), found[0]
        effort.spend(_EXPRESSION_EFFORT + position - passed)
        if position < passed:  # escaped
            continue
        passed = position + 1
        if quote:
            if character == "\\":
                passed += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
            if depth > _BRACKETS_MAX:
                return None
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                return text[start : position + 1]
    effort.spend(end - passed)
    return None
