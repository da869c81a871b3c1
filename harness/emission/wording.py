"""Words of any text, so that spellings of one passage compare equal: the canon of echoes (`harness/EMISSION.md`).

Pure, total, linear in the text. Undone are: escapes of JSON, Python, C and JavaScript, HTML entities, percent
encoding (each also twice), terminal colours, tags that only set letters apart, Unicode compatibility forms, letters
that look like Latin ones, accents, case, invisible characters, punctuation, white space, and zeros at the end of a
decimal fraction. What is left are words of letters and digits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from html.entities import html5
from importlib import resources
from itertools import accumulate
from typing import Literal
from urllib.parse import unquote

import confusable_homoglyphs  # here: missing, it must stop the host and not an agent's episode
import orjson

Words = tuple[str, ...]

_LAYERS = 2  # of escapes around escapes
# An octal escape has three digits and no fourth, so that a backslash cannot eat the beginning of a number.
_ESCAPE = re.compile(
    r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|[ux]\{0*+([0-9a-fA-F]{1,6})\}"
    r"|([0-3][0-7]{2})(?![0-9])|(e|33)(?=\[)|[nrt])"
)
_ENTITY = re.compile(r"&(?:#0*+([0-9]{1,7});?|#[xX]0*+([0-9a-fA-F]{1,6});?|([A-Za-z][A-Za-z0-9]{1,31})(;?))")
# Bytes of valid UTF-8 alone: the signs of `LIKE '%desk%'` are none.
_PERCENT = re.compile(
    "(?:%[0-7][0-9a-fA-F]|%[cdCD][0-9a-fA-F]%[89abAB][0-9a-fA-F]|%[eE][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){2}"
    "|%[fF][0-4](?:%[89abAB][0-9a-fA-F]){3})++"
)
_COLOUR = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]")
# Tags that only set letters apart: of formatting, and an end before a beginning of its name.
_TAG = re.compile(
    r"</?(?:b|i|u|s|em|strong|span|font|mark|small|big|sub|sup|tt|br|wbr|p|div)\s?/?>"
    r"|</([a-z]\w{0,15})>\s?<\1>",
    re.IGNORECASE,
)
# What isn't ASCII, to the end of its word, with what is ASCII between where that is short: pieces have a price, too.
_FOREIGN = re.compile(r"[^\x00-\x7f](?:[\x00-\x7f]{0,32}+[^\x00-\x7f])*+[^ ]*+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_HIDDEN = re.compile("[\U000e0020-\U000e007e]")  # ASCII as invisible tags, which models read
_ACCENT = re.compile("[\u0300-\u036f]")
# Words set together by capitals; of two parts it is more often a brand.
_HUMPS = re.compile(r"(?<![A-Za-z])[A-Z]?[a-z]++(?:[A-Z][a-z]++){2,}+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CASES = bytes(65 if 65 <= byte <= 90 else 97 if 97 <= byte <= 122 else 32 for byte in range(256))
# Scripts that set no space between words: each character is a word of its own.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
# The end of a decimal fraction; not of a version's number.
_ZERO_DECIMALS = re.compile(r"([0-9](?<![0-9.].)[0-9]*+)(?:\.0++|(\.[0-9]*[1-9])0++)(?![0-9]|\.[0-9])")
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_ASCII_WORDS = bytes(byte if 48 <= byte <= 57 or 97 <= byte <= 122 else 32 for byte in range(256))
_SHORT = 64  # characters of a text whose words are kept for the next time
_MARKS_MAX = 30
_MAY_BE_MARKS = re.compile(r"[^\x00-\x7f]{31,}")  # no mark is ASCII
# five characters that are no marks and decompose to nothing else
_MARKS_INSIDE = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")


def compose(form: Literal["NFC", "NFKC"], text: str) -> str:
    """`text` normalised to `form` in linear time, without the marks that no real text has.

    The standard library sorts a run of combining marks by insertion: forty thousand take seconds. Of a run longer than
    the thirty of UAX #15 (stream-safe text) the rest is left out.
    """
    return unicodedata.normalize(form, _MAY_BE_MARKS.sub(_without_long_runs, text))


def words_of(text: str) -> Words:
    """The words of `text`, in order."""
    return _words_of_short(text) if len(text) <= _SHORT else _words_of(text)


def _words_of(text: str) -> Words:
    for _ in range(_LAYERS):
        if "\\" in text:
            text = _ESCAPE.sub(_unescaped, text)
        if "&" in text:
            text = _ENTITY.sub(_character, text)
        if "%" in text:
            text = _PERCENT.sub(lambda found: unquote(found[0], errors="replace"), text)
    if "\x1b" in text:
        text = _COLOUR.sub(" ", text)
    if "<" in text:
        text = _TAG.sub(" ", text)
    if b"aAa" in text.encode("utf-8", "surrogatepass").translate(_CASES):
        text = _HUMPS.sub(lambda found: _HUMP.sub(" ", found[0]), text)
    text = text.lower() if text.isascii() else _plain(text)
    if "." in text:
        text = _ZERO_DECIMALS.sub(lambda found: found[1] + (found[2] or ""), text)
    found = text.encode().translate(_ASCII_WORDS).decode().split() if text.isascii() else _WORD.findall(text)
    # Python's, where JSON has null
    return tuple("null" if word == "none" else word for word in found) if "none" in text else tuple(found)


# names of tools and parameters, ids and queries come again and again
_words_of_short = lru_cache(maxsize=1 << 12)(_words_of)


class Passage:
    """Words run together without spaces, so that a value is found however it was split; its ends are ends of words.

    `BREAK` stands where words of another's were taken out or a message ends: no value reaches over it.
    """

    BREAK = "\n"

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    @cached_property
    def text(self) -> str:
        """All words, run together."""
        return "".join(self.words)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each word begins in `text`, and its end."""
        return (0, *accumulate(map(len, self.words)))

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """Each word once."""
        return frozenset(self.words)

    @cached_property
    def _edges(self) -> frozenset[int]:
        return frozenset(self.offsets)

    def find(self, needle: str, most: int) -> tuple[int, ...] | None:
        """Where `needle` begins and ends with a word; None when it stands, or begins, more than `most` times."""
        found: list[int] = []
        text, position, size = self.text, -1, len(needle)
        if not needle:
            return ()
        for _ in range(most + 1):
            position = text.find(needle, position + 1)
            if position < 0:
                return tuple(found)
            if position in self._edges and position + size in self._edges:
                found.append(position)
        return None

    def holds(self, needle: str, most: int = 1_000) -> bool:
        """Whether `needle` stands here as whole words."""
        return self.find(needle, most) != ()


def texts_in(arguments: str) -> Iterator[str]:
    """Every text in the arguments: as it stands, and decoded, also from JSON inside a string, where escapes could hide
    an id from the eye but not from the tool."""
    stack: list[object] = [arguments]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend((*value.keys(), *value.values()))
        elif isinstance(value, list):
            stack.extend(value)
        else:
            yield str(value)
            if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
                with suppress(orjson.JSONDecodeError):
                    stack.append(orjson.loads(value))


def _unescaped(found: re.Match[str]) -> str:
    digits = found[1] or found[2] or found[3] or found[4]
    if digits is not None:
        return _of_code(int(digits, 16))
    if found[5] is not None:
        return _of_code(int(found[5], 8))
    return "\x1b" if found[6] is not None else " "


def _character(found: re.Match[str]) -> str:
    """What an entity stands for; an unknown one may be a word, and stays."""
    if found[3] is not None:
        return html5.get(found[3] + found[4], found[0])
    return _of_code(int(found[1]) if found[1] is not None else int(found[2], 16))


def _of_code(code: int) -> str:
    return chr(code) if code <= 0x10FFFF else " "


def _plain(text: str) -> str:
    """Small letters, as Latin as they look. No rule of Unicode reaches over a space, so only pieces that hold more than
    ASCII need the rules; the rest is put into small letters."""
    parts, done = list[str](), 0
    for found in _FOREIGN.finditer(text):
        start = max(done, text.rfind(" ", done, found.start()) + 1)
        parts += (text[done:start].lower(), _plain_piece(text[start : found.end()]))
        done = found.end()
    return "".join((*parts, text[done:].lower()))


def _plain_piece(text: str) -> str:
    if _SURROGATE.search(text):  # halves that JSON escapes wrote apart
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _HIDDEN.sub(lambda found: chr(ord(found[0]) - 0xE0000), text)
    # before compatibility forms too: they make a lunate sigma, which looks like c, a sigma
    return _bare(_INVISIBLE.sub("", text).lower().translate(_latin())).translate(_latin())


def _bare(text: str) -> str:
    text = compose("NFKC", text).casefold()
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", text)))


@lru_cache(maxsize=1)
def _latin() -> dict[int, str]:
    """Small letters by the Latin letters that they, else their capitals, look like: Unicode's confusables."""
    known = orjson.loads((resources.files(confusable_homoglyphs) / "confusables.json").read_bytes())  # 35 ms, at need
    table: dict[int, str] = {}
    for letter in {one.lower() for one in known if not one.isascii() and one.isalpha()}:
        if len(letter) > 1 or _bare(letter).isascii() or re.match(f"[{_UNSPACED}]", letter):
            continue
        alike = [_bare(one["c"]) for key in (letter, letter.upper()) for one in known.get(key, ())]
        latin = next((one for one in alike if one.isascii() and one.isalpha()), None)
        if latin:
            table[ord(letter)] = latin
    return table | {ord("β"): "b", ord("ӏ"): "l"}  # Unicode has sharp s and i


def _without_long_runs(found: re.Match[str]) -> str:
    kept, run = [], 0
    for character in found[0]:
        run = run + 1 if unicodedata.combining(character) or character in _MARKS_INSIDE else 0
        if run <= _MARKS_MAX:
            kept.append(character)
    return "".join(kept)
