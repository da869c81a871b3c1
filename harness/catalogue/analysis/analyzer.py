"""Text to index terms, the same terms as Anserini's default English analyzer.

Chain: StandardTokenizer (`tokenizer.py`) -> English possessive -> lower case -> 33 stop words -> Porter (`stemmer.py`).
Known differences: none; what was compared is in the README.
"""

from __future__ import annotations

import functools
import hashlib

from harness.catalogue.analysis import tokenizer
from harness.catalogue.analysis.stemmer import stem

ANALYZER = "anserini-1.7.1/2"  # raise the last number when a change of code changes a term
_CACHE_MAX = 300_000  # words remembered before the cache starts again

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
