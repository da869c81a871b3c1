"""Text to index terms, the same terms as Anserini's default English analyzer.

Chain: StandardTokenizer (`tokenizer.py`) -> English possessive -> lower case -> 33 stop words -> Porter (`stemmer.py`).
Known differences: none; what was compared is in the README.
"""

from __future__ import annotations

import functools
import hashlib

from harness.catalogue import tokenizer

ANALYZER = "anserini-1.7.1/1"  # raise the last number when a change of code changes a term
_CACHE_MAX = 300_000  # words remembered before the cache starts again

_STOP_TEXT = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
_APOSTROPHES = "'’＇"


class Analyzer:
    """Turns text into terms. Thread-safe; remembers words it has seen."""

    def __init__(self) -> None:
        self._terms: dict[str, str | None] = {}

    def terms(self, text: str) -> list[str]:
        """Index terms of `text` in order, repeats kept, stop words left out."""
        known, out = self._terms, []
        for token in tokenizer.tokens(text):
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
    """The analyzer, made on first use and shared."""
    return Analyzer()


@functools.cache
def analyzer_sha256() -> str:
    """Identity of the analysis: its version and the class table."""
    return hashlib.sha256(f"{ANALYZER}\n".encode() + tokenizer.classes_json()).hexdigest()


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


_VOWELS = frozenset("aeiou")

# Suffix -> replacement, grouped by the letter the Java program switches on: the last but one in steps 2 and 4, the
# last in step 3. Within a group the first suffix that fits decides, even when its condition then fails.
_STEP_2 = {
    "a": (("ational", "ate"), ("tional", "tion")),
    "c": (("enci", "ence"), ("anci", "ance")),
    "e": (("izer", "ize"),),
    "g": (("logi", "log"),),
    "l": (("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")),
    "o": (("ization", "ize"), ("ation", "ate"), ("ator", "ate")),
    "s": (("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")),
    "t": (("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
}
_STEP_3 = {
    "e": (("icate", "ic"), ("ative", ""), ("alize", "al")),
    "i": (("iciti", "ic"),),
    "l": (("ical", "ic"), ("ful", "")),
    "s": (("ness", ""),),
}
_STEP_4 = {
    "a": ("al",),
    "c": ("ance", "ence"),
    "e": ("er",),
    "i": ("ic",),
    "l": ("able", "ible"),
    "n": ("ant", "ement", "ment", "ent"),
    "o": ("ion", "ou"),
    "s": ("ism",),
    "t": ("ate", "iti"),
    "u": ("ous",),
    "v": ("ive",),
    "z": ("ize",),
}


def stem(word: str) -> str:
    """The stem of a lower-case word. Words of one or two letters come back unchanged."""
    if len(word) <= 2:
        return word
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and word[-2] != "s":
        word = word[:-1]
    word = _strip_past_and_gerund(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace_suffix(word, _STEP_2, word[-2] if len(word) >= 2 else "")
    word = _replace_suffix(word, _STEP_3, word[-1:])
    word = _strip_suffix(word)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    if word.endswith("l") and _ends_doubled(word) and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _is_consonant(word: str, index: int) -> bool:
    letter = word[index]
    if letter != "y":
        return letter not in _VOWELS
    start = len(word[: index + 1].rstrip("y"))  # of the run of y: a consonant first or after a vowel, then in turns
    return (index - start) % 2 == (start > 0 and word[start - 1] not in _VOWELS)


def _measure(word: str) -> int:
    """How many times a vowel run is followed by a consonant run."""
    count, was_vowel = 0, True  # so that a y that comes first is a consonant
    for index, letter in enumerate(word):
        is_consonant = was_vowel if letter == "y" else letter not in _VOWELS
        count += was_vowel and is_consonant and index > 0
        was_vowel = not is_consonant
    return count


def _has_vowel(word: str) -> bool:
    return not _VOWELS.isdisjoint(word) or "y" in word[1:]


def _ends_doubled(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1)


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last not w, x or y."""
    last = len(word) - 1
    return (
        last >= 2
        and _is_consonant(word, last)
        and not _is_consonant(word, last - 1)
        and _is_consonant(word, last - 2)
        and word[last] not in "wxy"
    )


def _strip_past_and_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    if word.endswith("ed") and _has_vowel(word[:-2]):
        word = word[:-2]
    elif word.endswith("ing") and _has_vowel(word[:-3]):
        word = word[:-3]
    else:
        return word
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_doubled(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _replace_suffix(word: str, table: dict[str, tuple[tuple[str, str], ...]], key: str) -> str:
    for suffix, replacement in table.get(key, ()):
        if word.endswith(suffix):
            kept = word[: len(word) - len(suffix)]
            return kept + replacement if _measure(kept) > 0 else word
    return word


def _strip_suffix(word: str) -> str:
    for suffix in _STEP_4.get(word[-2] if len(word) >= 2 else "", ()):
        if word.endswith(suffix):
            kept = word[: len(word) - len(suffix)]
            if suffix == "ion" and not kept.endswith(("s", "t")):
                continue
            return kept if _measure(kept) > 1 else word
    return word
