"""Words and numbers of any text, so that a title quoted in part, in the plural or in another notation is still found.

Pure and linear in the text. Case, accents, compatibility forms and simple endings (plural, -ing, -ed, a last
vowel) are undone. Scripts that set no space between words give overlapping runs of characters instead: two of Han,
four of Thai, Lao, Burmese, Khmer and kana. What is said of two texts is asked of both in the same way, so a stem need
not be a word.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from harness.emission.wording import compose
from judge.evidence.ordinary import NO_DATA, ORDINARY

_HAN = "\u3400-\u9fff\uf900-\ufaff"
_UNSPACED = "\u0e00-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u1050-\u109f\u1780-\u17df\u3040-\u30ff"
_TOKEN = re.compile(rf"\d+(?:[.,]\d+)*|[{_HAN}]+|[{_UNSPACED}]+|[^\W\d_{_HAN}{_UNSPACED}]+")
_ASCII_TOKEN = re.compile(r"[0-9]+(?:[.,][0-9]+)*|[a-z]+")
_RUN = re.compile(rf"[{_HAN}{_UNSPACED}]")
_HAN_SIZE, _UNSPACED_SIZE = 2, 4
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NO_GAPS = str.maketrans("", "", " '’")
_ACCENT = re.compile("[\u0300-\u036f]")
_CONTINENTAL = re.compile(r"\d{1,3}(?:\.\d{3})*,\d{1,2}|\d{1,3}(?:\.\d{3}){2,}|\d+,\d{1,2}")
_GROUPED = re.compile(r",(?=\d{3}\b)")
_GROUPED_BY_POINT = re.compile(r"(?<![\d.,])\d{1,3}\.\d{3}(?![\d.,]*\d)")
_GROUPED_BY_SPACE = re.compile(r"(?<![\d.,])\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d{1,2})?(?![\d.,]*\d)")
_SCALED = re.compile(r"(?<![\d.,])(\d+(?:[.,]\d+)*)\s?(k|nghin|ngan|mil|thousand|万|trieu)(?![a-z])")
_SCALES = {"万": 10_000, "trieu": 1_000_000}
_VOWELS = frozenset("aeiouy")
_WORD_MIN, _NUMBER_DIGITS = 4, 3


def fold(text: str) -> str:
    """`text` in lower case, without accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    bare = _ACCENT.sub("", unicodedata.normalize("NFD", compose("NFKC", text).casefold()))
    return unicodedata.normalize("NFC", bare).replace("đ", "d")


def tokenise(text: str) -> tuple[str, ...]:
    """Words and numbers in order. Numbers lose thousands separators and zero decimals, in either notation: `1,299.00`
    and `1.299,00` are `1299`."""
    return _tokens_of(fold(text))


def spoken_in(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The tokens of `text` in order, and every number that it may mean."""
    folded = fold(text)
    return _tokens_of(folded), numbers_in(folded)


def _tokens_of(folded: str) -> tuple[str, ...]:
    if folded.isascii():
        return tuple([_stem(one) if one[0] > "9" else plain_number(one) for one in _ASCII_TOKEN.findall(folded)])
    tokens: list[str] = []
    for found in _TOKEN.findall(folded):
        first = found[0]
        if first.isdecimal():
            tokens.append(plain_number(found))
        elif first.isascii() or not _RUN.match(first):
            tokens.append(_stem(found))
        else:
            size = _HAN_SIZE if first >= "\u3400" else _UNSPACED_SIZE
            tokens += [found[start : start + size] for start in range(max(1, len(found) - size + 1))]
    return tuple(tokens)


def numbers_in(folded: str) -> frozenset[str]:
    """Every number that folded text may mean: `1.299` is also `1299`, so are `1 299` and `1'299`; `12k` is `12000`."""
    found = {plain_number(token) for token in set(_NUMBER.findall(folded))}
    found |= {token.replace(".", "") for token in _GROUPED_BY_POINT.findall(folded)}
    found |= {plain_number(token.translate(_NO_GAPS)) for token in set(_GROUPED_BY_SPACE.findall(folded))}
    for token, scale in _SCALED.findall(folded):
        number = plain_number(token)
        if number.count(".") <= 1 and len(number) < 16:
            found.add(f"{round(float(number) * _SCALES.get(scale, 1_000), 2):.15g}")
    return frozenset(found)


def is_exact(number: str) -> bool:
    """True for a number that nobody says by the way: three significant digits or more."""
    return len(number.replace(".", "").strip("0")) >= _NUMBER_DIGITS


def is_gram(token: str) -> bool:
    """True for a run of characters of a script without spaces."""
    return _RUN.match(token) is not None


def is_telling(token: str) -> bool:
    """True for a word or run that can mean a thing by itself: long enough, or the short name of a brand (no vowel in
    it), and nobody's everyday word."""
    if token in _EVERYDAY or token[0].isdecimal():
        return False
    if is_gram(token):
        return len(token) >= (_HAN_SIZE if token[0] >= "\u3400" else _UNSPACED_SIZE)
    return len(token) >= _WORD_MIN or (len(token) == _WORD_MIN - 1 and _VOWELS.isdisjoint(token))


def says_nothing(token: str) -> bool:
    """True for glue, field names and single letters: a pair with one of these is no datum."""
    return token in _NOTHING or (len(token) == 1 and not token.isdigit())


def is_everyday(token: str) -> bool:
    """True for a word that anybody says."""
    return token in _EVERYDAY


def plain_number(token: str) -> str:
    """A number as its plain ASCII digits, a point before decimals."""
    if token.isascii() and token.isdigit():
        return token
    if not token.isascii():
        token = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else "" if c not in ".," else c for c in token)
    if ("," in token or token.count(".") > 1) and _CONTINENTAL.fullmatch(token):
        token = token.replace(".", "").replace(",", ".")
    plain = _GROUPED.sub("", token) if "," in token else token
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


@functools.lru_cache(1 << 16)
def _stem(word: str) -> str:
    """A word without its simple endings: the same for `scarf` and `scarves`, `clip` and `clipped`."""
    if len(word) <= _WORD_MIN or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("ses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) >= len(ending) + 4:
            word = word[: -len(ending)]
            word = word[:-1] if word[-1] == word[-2] else word
            break
    if word[-1] in "aeo" and len(word) > _WORD_MIN:
        word = word[:-1]
    return word[:-1] + "v" if word[-1] == "f" else word


_NOTHING = frozenset(tokenise(NO_DATA))
_EVERYDAY = _NOTHING | frozenset(tokenise(ORDINARY))
