"""A tool call as prose, markup or code would hold it: the words of its name and values, and the words around these.

Pure. Which values may be new, and which tell whose a call is, is published in `harness/EMISSION.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from harness.emission.call_identity import CallKey
from harness.emission.wording import Words, words_of

STRUCTURE = frozenset(
    ("action", "args", "argument", "arguments", "call", "function", "id", "input", "invoke", "json", "key", "name",
     "param", "parameter", "parameters", "string", "tool", "type", "value", "values", "yaml")
)  # fmt: skip
TELLING_DIGITS = 6  # of a number that by itself shows whose a call is

_SEPARATOR = re.compile(
    r"[,;|\n\x1c-\x1e]"
)  # of lists, and of the members that `harness.emission.call_identity` spells
_KEY = "\x1f"
_VERBS = {"find": ("find", "search", "query"), "recommend": ("recommend", "choose", "pick"), "view": ("view", "open")}
_LEAVES_MAX = 64  # of one call; the longest are looked for
_BYTES_MIN, _DIGITS_MIN = 3, 3  # of a value that may be new
_TELLING_BYTES, _TELLING_PAIR = 10, 6  # of a value that by itself shows whose a call is


class Leaf(msgspec.Struct, frozen=True):
    """One value in a call's arguments, as words and run together."""

    words: Words
    text: str

    @property
    def is_number(self) -> bool:
        """Digits alone."""
        return self.text.isdecimal()

    @property
    def may_be_new(self) -> bool:
        """Long enough to stem from somebody."""
        return len(self.text) >= _DIGITS_MIN if self.is_number else len(self.text.encode()) >= _BYTES_MIN

    @property
    def is_telling(self) -> bool:
        """So long that nobody writes it by chance."""
        if self.is_number:
            return len(self.text) >= TELLING_DIGITS
        return len(self.text.encode()) >= (_TELLING_PAIR if len(self.words) > 1 else _TELLING_BYTES)


class Spoken(msgspec.Struct, frozen=True):
    """A call as prose would hold it: its tool's name and the words for it, its values, and the words between them."""

    name: str
    verbs: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    parameters: tuple[Words, ...]
    expected: frozenset[str]

    @property
    def letters(self) -> int:
        """Letters and digits of the values."""
        return sum(len(leaf.text) for leaf in self.leaves)


def spoken_of(key: CallKey, parameters: Iterable[str]) -> Spoken:
    """How prose would hold a call. `parameters` are all that its tool takes."""
    leaves: dict[str, Leaf] = {}
    expected = set(STRUCTURE)
    for parameter, spelled in key.arguments:
        expected.update(words_of(parameter))
        for part in _SEPARATOR.split(spelled):
            name, is_member, value = part.rpartition(_KEY)
            expected.update(words_of(name) if is_member else ())
            words = words_of(value)
            # numbers in a row, such as a range, are values one by one
            values = [(word,) for word in words] if all(map(str.isdecimal, words)) else [words]
            leaves |= {"".join(value): Leaf(value, "".join(value)) for value in values if value}
    kept = sorted(leaves.values(), key=lambda leaf: (-len(leaf.text), leaf.text))[:_LEAVES_MAX]
    name = words_of(key.name)
    expected.update(name, *(leaf.words for leaf in kept), *map(words_of, parameters))
    verb = name[0] if name else ""
    return Spoken(
        name="".join(name),
        verbs=_VERBS.get(verb, (verb,) if verb else ()),
        leaves=tuple(kept),
        parameters=tuple(words_of(parameter) for parameter, _ in key.arguments),
        expected=frozenset(expected),
    )
