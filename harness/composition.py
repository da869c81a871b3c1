"""Unicode composition of foreign text in linear time.

The standard library sorts a run of combining marks by insertion: forty thousand of them take seconds, and a text may be
made of nothing else. Real text has a few marks in a row; of a run longer than the thirty of UAX #15 (stream-safe text)
the rest is left out. Five characters are no marks and decompose to nothing else; they count as marks.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

_MARKS_MAX = 30
_MARKS_INSIDE = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")


def compose(form: Literal["NFC", "NFKC"], text: str) -> str:
    """`text` normalised to `form`, without the marks that no real text has."""
    if text.isascii():
        return text
    kept, run = [], 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) or character in _MARKS_INSIDE else 0
        if run <= _MARKS_MAX:
            kept.append(character)
    return unicodedata.normalize(form, "".join(kept))
