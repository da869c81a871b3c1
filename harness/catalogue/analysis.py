"""Text to index terms, the same terms as Anserini's default English analyzer.

Chain: StandardTokenizer -> English possessive -> lower case -> 33 stop words -> Porter. Known differences: none; what
was compared is in the README.

StandardTokenizer takes the longest token at every place: UAX #29 word breaks with emoji sequences. A code point counts
only by its class, and the classes are data: `unicode_classes.json` holds those of Lucene 9.9 (Unicode 12.1), so neither
Python's nor any package's Unicode version matters. Patterns match a text in which every code point is replaced by the
letter of its class; each match ends within TOKEN_UNITS_MAX, so time is linear in the text.
"""

from __future__ import annotations

import functools
import hashlib
import re
from bisect import bisect_right
from importlib import resources
from itertools import accumulate

import msgspec

TOKEN_UNITS_MAX = 255  # UTF-16 units; the scanner's buffer holds no more, so a longer run is cut there
_OTHER = "."  # the class of a code point that is in no token


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
    """Code point -> class, looked up on first sight in a table of inclusive ranges by class; made for
    `str.translate`. What is in no range is in no token."""

    def __init__(self, table: dict[str, list[tuple[int, int]]]) -> None:
        super().__init__()
        ranges = sorted((low, high, name) for name, spans in table.items() for low, high in spans)
        self._lows, self._ranges = [low for low, _, _ in ranges], ranges

    def __missing__(self, point: int) -> str:
        place = bisect_right(self._lows, point) - 1
        _, high, name = self._ranges[place] if place >= 0 else (0, -1, _OTHER)
        self[point] = found = name if point <= high else _OTHER
        return found


@functools.cache
def _classes() -> _Lookup:
    return _Lookup(msgspec.json.decode(classes_json())["classes"])


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


ANALYZER = "anserini-1.7.1/1"  # raise the last number when a change of code changes a term
_CACHE_MAX = 300_000  # words remembered before the cache starts again

_STOP_TEXT = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
_APOSTROPHES = "'’＇"
_TERMS: dict[str, str | None] = {}  # of the words seen so far; None: a stop word


def terms_of(text: str) -> list[str]:
    """Index terms of `text` in order, repeats kept, stop words left out. Thread-safe; remembers words it has seen."""
    known, out = _TERMS, []
    for token in tokens(text):
        try:
            term = known[token]
        except KeyError:
            if len(known) >= _CACHE_MAX:
                known.clear()
            term = known[token] = _filter(token)
        if term is not None:
            out.append(term)
    return out


@functools.cache
def analyzer_sha256() -> str:
    """Identity of the analysis: its version and the class table."""
    return hashlib.sha256(f"{ANALYZER}\n".encode() + classes_json()).hexdigest()


def _filter(token: str) -> str | None:
    if len(token) >= 2 and token[-1] in "sS" and token[-2] in _APOSTROPHES:
        token = token[:-2]
    # Java lower-cases character by character, so U+0130 must not become two
    token = token.lower() if token.isascii() else "".join("i" if one == "İ" else one.lower() for one in token)
    if token in STOP_WORDS:
        return None
    if token.isascii() or max(token) <= "\uffff":
        return stem(token)
    # Java's stemmer counts UTF-16 units, so a letter outside the basic plane has the length of two
    units = memoryview(token.encode("utf-16-le")).cast("H")
    return stem("".join(map(chr, units))).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


# Suffixes of Porter's steps 2 to 4 and what stands for them. The longest that fits decides, also where its condition
# then fails.
_STEP_2 = """
ational:ate tional:tion enci:ence anci:ance izer:ize logi:log bli:ble alli:al entli:ent eli:e ousli:ous
ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble
"""
_STEP_3 = "icate:ic ative: alize:al iciti:ic ical:ic ful: ness:"
_STEP_4 = """
al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: (?<=[st])ion: ou: ism: ate: iti: ous: ive: ize:
"""


class _Suffixes:
    """Suffixes that are replaced where more than `least` runs of vowels before them are followed by a consonant."""

    def __init__(self, text: str, least: int) -> None:
        pairs = [pair.split(":") for pair in text.split()]
        self._pattern = re.compile(f"(?:{'|'.join(suffix for suffix, _ in pairs)})$")
        self._replacement, self._least = {suffix.rpartition(")")[2]: new for suffix, new in pairs}, least

    def replaced(self, word: str) -> str:
        found = self._pattern.search(word)
        if found is None or _measure(word[: found.start()]) <= self._least:
            return word
        return word[: found.start()] + self._replacement[found.group()]


_STEPS = (_Suffixes(_STEP_2, 0), _Suffixes(_STEP_3, 0), _Suffixes(_STEP_4, 1))


def stem(word: str) -> str:
    """The stem of a lower-case word. Words of one or two letters come back unchanged."""
    if len(word) <= 2:
        return word
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and word[-2] != "s":
        word = word[:-1]
    word = _strip_past_and_gerund(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    for suffixes in _STEPS:
        word = suffixes.replaced(word)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _strip_past_and_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    kept = word[: -2 if word.endswith("ed") else -3 if word.endswith("ing") else 0]
    if "v" not in _shape(kept):
        return word
    if kept.endswith(("at", "bl", "iz")):
        return kept + "e"
    if kept[-2:-1] == kept[-1] and _shape(kept).endswith("c"):
        return kept if kept[-1] in "lsz" else kept[:-1]
    return kept + "e" if _measure(kept) == 1 and _ends_short(kept) else kept


def _shape(word: str) -> str:
    """`v` for each vowel, among them a y after a consonant; `c` for every other letter."""
    shape = ""
    for letter in word:
        shape += "v" if letter in "aeiou" or (letter == "y" and shape[-1:] == "c") else "c"
    return shape


def _measure(word: str) -> int:
    """How many times a vowel run is followed by a consonant run."""
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last not w, x or y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"
