"""Lucene's StandardTokenizer: the longest token at every place, as its scanner cuts it.

UAX #29 word breaks with emoji sequences. A code point counts only by its class, and the classes are data:
`unicode_classes.json` holds those of Lucene 9.9 (Unicode 12.1), so neither Python's nor any package's Unicode version
matters. Patterns match a text in which every code point is replaced by the letter of its class; each match ends within
TOKEN_UNITS_MAX, so time is linear in the text.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from importlib import resources
from itertools import accumulate

import msgspec

TOKEN_UNITS_MAX = 255  # UTF-16 units; the scanner's buffer holds no more, so a longer run is cut there
_OTHER = "."  # the class of a code point that is in no token


class ClassTable(msgspec.Struct, frozen=True):
    """Inclusive code point ranges of every class; what is in none is in no token."""

    classes: dict[str, tuple[tuple[int, int], ...]]


def tokens(text: str) -> list[str]:
    """Tokens as StandardTokenizer emits them."""
    if text.isascii():
        return _ascii_tokens(text)
    out: list[str] = []
    for piece in text.split(" "):  # no token holds a space
        out += _ascii_tokens(piece) if piece.isascii() else scan(piece)
    return out


def scan(text: str) -> list[str]:
    """Tokens of any text by its classes alone."""
    classes, out, place = text.translate(_classes()), [], 0
    units = [0, *accumulate(1 + (letter > "\uffff") for letter in text)]
    while place < len(text):
        stop = bisect_right(units, units[place] + TOKEN_UNITS_MAX) - 1
        found = (pattern.match(classes, place, stop) for pattern in (_WORD, _EMOJI))
        end = max(one.end() if one else place for one in found)
        if end > place:
            out.append(text[place:end])
        place = max(end, place + 1)
    return out


def _ascii_tokens(text: str) -> list[str]:
    """One pattern finds what those of the classes find, several times faster, but does not cut long runs."""
    found: list[str] = _ASCII.findall(text)
    if "_" in text:
        found = [token for token in found if token.strip("_")]
    is_cut = len(text) > TOKEN_UNITS_MAX and any(len(token) > TOKEN_UNITS_MAX for token in found)
    return scan(text) if is_cut else found


def classes_json() -> bytes:
    """The shipped class table, as stored; part of the identity of the analysis."""
    return resources.files("harness.catalogue").joinpath("unicode_classes.json").read_bytes()


class _Lookup(dict[int, str]):
    """Code point -> class, looked up in the ranges on first sight; made for `str.translate`."""

    def __init__(self, table: ClassTable) -> None:
        super().__init__()
        ranges = sorted((low, high, name) for name, spans in table.classes.items() for low, high in spans)
        self._lows, self._ranges = [low for low, _, _ in ranges], ranges

    def __missing__(self, point: int) -> str:
        place = bisect_right(self._lows, point) - 1
        _, high, name = self._ranges[place] if place >= 0 else (0, -1, _OTHER)
        self[point] = found = name if point <= high else _OTHER
        return found


@functools.cache
def _classes() -> _Lookup:
    return _Lookup(msgspec.json.decode(classes_json(), type=ClassTable))


# A class is one letter. Ignorable ones stick to the character before them (WB4); those with a part in emoji are apart.
# In order: joiner U+200D, skin tone, keycap U+20E3, South-East Asian mark, tag, end of tag, any other; U+FE0F, U+FE0E.
_IN_EMOJI = "[ZmkctuX]*"
_IGNORABLE = "[ZmkctuXFT]*+"


def _one(classes: str) -> str:
    return f"[{classes}]{_IGNORABLE}"


# A word, WB5 to WB13b: runs glued by underscores and kin, which may also lead and trail. In a run letters (`a` is an
# emoji too) meet around a colon, full stop or single quote and kin, numbers around a comma, full stop or single quote.
_GLUE, _HEBREW, _NUMBER, _LETTER, _KATAKANA = map(_one, ("_", "H", "N", "AaH", "K"))
_RUN = (
    f"(?:{_HEBREW}(?:{_one('Q')}|{_one('U')}{_HEBREW})"
    f"|{_NUMBER}(?:{_one('PBQ')}{_NUMBER})*+|{_LETTER}(?:{_one('MBQ')}{_LETTER})*+)"
)
_BODY = f"(?:{_KATAKANA}(?:(?:{_GLUE})*{_KATAKANA})*+|{_RUN}++)"
_WORD = re.compile(  # or a South-East Asian run, or an ideograph
    f"(?:{_GLUE})*+{_BODY}(?:(?:{_GLUE})++{_BODY})*+(?:{_GLUE})*+|(?:{_one('Cc')})++|{_one('I')}"
)
# Emoji, joined or tagged (UTS #51), a skin tone alone; keycaps of # and * (of a digit it is a number); flags.
_ELEMENT = f"(?:Z*+[Ea]{_IN_EMOJI}+F?+|m{_IN_EMOJI}+)"
_EMOJI = re.compile(
    f"{_ELEMENT}(?:t++u|(?:(?:Z|(?<=Z)){_ELEMENT})*+)|#{_IN_EMOJI}F?k{_IN_EMOJI}|{_one('R')}{_one('R')}"
)

# A run of underscores that opens no token is matched alone, and no run is given back (`*+`): otherwise a run would be
# read again from each of its places.
_ASCII_RUN = r"(?:[0-9](?:(?:_*+|[,;.'])[0-9])*|[A-Za-z](?:(?:_*+|[:.'])[A-Za-z])*)+"
_ASCII_TOKEN = f"{_ASCII_RUN}(?:_++{_ASCII_RUN})*_*+"
_ASCII = re.compile(f"_++(?:{_ASCII_TOKEN})?|{_ASCII_TOKEN}")
