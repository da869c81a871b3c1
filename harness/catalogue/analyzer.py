"""Text to index terms, the same terms as Anserini's default English analyzer.

Chain (search notes, section 2.2): Lucene's StandardTokenizer (UAX #29 with the Unicode tables of Lucene 9.9) ->
English possessive -> lower case -> 33 stop words -> Porter. The `regex` package follows a newer Unicode version, so
`unicode_pins.json` holds the code points where the two differ; the pins belong to the pinned `regex` release.
Left different: 22 code points and rare sequences (ZWJ or keycap beside an emoji), listed in the search notes.
"""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources

import msgspec
import regex

from harness.catalogue.stemmer import stem

TOKEN_LENGTH_MAX = 255  # StandardTokenizer cuts longer runs into pieces
_CACHE_MAX = 1_000_000  # words remembered before the cache starts again

STOP_WORDS = frozenset(
    {
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "for",
        "if",
        "in",
        "into",
        "is",
        "it",
        "no",
        "not",
        "of",
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "will",
        "with",
    }
)
_APOSTROPHES = "'’＇"


class UnicodePins(msgspec.Struct, frozen=True):
    """Inclusive code point ranges where Lucene's tables differ from those of the pinned `regex` release."""

    symbols: tuple[tuple[int, int], ...] = ()  # a token each in Lucene
    breaks: tuple[tuple[int, int], ...] = ()  # never part of a token in Lucene


class Analyzer:
    """Turns text into terms. Thread-safe; remembers words it has seen."""

    def __init__(self, pins: UnicodePins) -> None:
        self._unicode = regex.compile(_unicode_pattern(pins))
        self._blank_breaks = {point: " " for low, high in pins.breaks for point in range(low, high + 1)}
        self._terms: dict[str, str | None] = {}

    def tokens(self, text: str) -> list[str]:
        """Tokens as StandardTokenizer emits them, before any filter."""
        # the ASCII pattern finds the same words as the Unicode one, several times faster
        is_ascii = text.isascii()
        found = _ASCII.findall(text) if is_ascii else self._unicode.findall(text.translate(self._blank_breaks))
        if all(len(token) <= TOKEN_LENGTH_MAX for token in found):
            return found
        step = TOKEN_LENGTH_MAX
        return [token[start : start + step] for token in found for start in range(0, len(token), step)]

    def terms(self, text: str) -> list[str]:
        """Index terms of `text` in order, repeats kept, stop words left out."""
        known, out = self._terms, []
        for token in self.tokens(text):
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
def default_analyzer() -> Analyzer:
    """The analyzer with the shipped pins, made on first use and shared."""
    return Analyzer(msgspec.json.decode(_pins_json(), type=UnicodePins))


@functools.cache
def analyzer_sha256() -> str:
    """Identity of the analysis: hash of the pin table and the `regex` release that is installed."""
    return hashlib.sha256(f"regex {regex.__version__}\n".encode() + _pins_json()).hexdigest()


def _pins_json() -> bytes:
    return resources.files("harness.catalogue").joinpath("unicode_pins.json").read_bytes()


def _filter(token: str) -> str | None:
    if len(token) >= 2 and token[-1] in "sS" and token[-2] in _APOSTROPHES:
        token = token[:-2]
    token = _lower(token)
    return None if token in STOP_WORDS else stem(token)


def _lower(token: str) -> str:
    """Java lower-cases character by character, so U+0130 must not become two."""
    if token.isascii():
        return token.lower()
    return "".join("i" if letter == "İ" else letter.lower() for letter in token)


def _runs(letter: str, number: str, joiner: str, letter_mid: str, number_mid: str) -> str:
    """Alternation of number runs and letter runs, each with what may stand inside it (UAX #29 WB6, 7, 11, 12, 13)."""
    numbers = f"{number}(?:(?:(?:{joiner})*|{number_mid}){number})*"
    letters = f"{letter}(?:(?:(?:{joiner})*|{letter_mid}){letter})*"
    return f"{numbers}|{letters}"


def _word(body: str, joiner: str) -> str:
    """Runs glued by joiners (underscores and their kin), which may also lead and trail."""
    return f"(?:{joiner})*{body}(?:(?:{joiner})+{body})*(?:{joiner})*"


def _ascii_pattern() -> str:
    return _word(f"(?:{_runs('[A-Za-z]', '[0-9]', '_', '[:.' + chr(39) + ']', '[,;.' + chr(39) + ']')})+", "_")


def _unicode_pattern(pins: UnicodePins) -> str:
    ignorable = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*"  # sticks to the character before it
    joiner = r"\p{WB=ExtendNumLet}" + ignorable
    runs = _runs(
        r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}]" + ignorable,
        r"[\p{WB=Numeric}０-９]" + ignorable,
        joiner,
        r"[\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}]" + ignorable,
        r"[\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}]" + ignorable,
    )
    katakana = r"\p{WB=Katakana}" + ignorable
    hebrew = r"\p{WB=Hebrew_Letter}" + ignorable
    hebrew_quoted = f"{hebrew}(?:'{ignorable}|\"{ignorable}{hebrew})"
    word = _word(f"(?:{katakana}(?:(?:{joiner})*{katakana})*|(?:{hebrew_quoted}|{runs})+)", joiner)
    complex_script = rf"(?:\p{{LB=Complex_Context}}{ignorable})+"  # Thai, Lao, Khmer, Myanmar: one token a run
    ideograph = rf"\p{{Script=Han}}{ignorable}|\p{{Script=Hiragana}}{ignorable}"  # one token a character
    pattern = f"(?:{_emoji(ignorable)})|{word}|{complex_script}|{ideograph}"
    if pins.symbols:
        symbols = "".join(rf"\U{low:08x}-\U{high:08x}" for low, high in pins.symbols)
        pattern = f"[{symbols}]{ignorable}|{pattern}"
    return pattern


def _emoji(ignorable: str) -> str:
    pictograph = r"\p{Extended_Pictographic}"
    modifier = "(?:\ufe0f|[\U0001f3fb-\U0001f3ff])?"
    return (
        "(?:[\U0001f1e6-\U0001f1ff]\\p{WB=ZWJ}?){2}"  # flags
        "|[0-9#*]\ufe0f?\u20e3"  # keycaps
        f"|{pictograph}{modifier}[\U000e0020-\U000e007f]*(?:\u200d{pictograph}{modifier})*{ignorable}"
        f"|[\U0001f3fb-\U0001f3ff]{ignorable}"
    )


_ASCII = re.compile(_ascii_pattern())
