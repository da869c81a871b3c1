"""Unicode composition of foreign text in linear time.

The standard library sorts a run of combining marks by insertion: forty thousand of them take seconds, and a text may be
made of nothing else. Real text has a few marks in a row; of a run longer than the thirty of UAX #15 (stream-safe text)
the rest is left out. Five characters are no marks and decompose to nothing else; they count as marks.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

_MARKS_MAX = 30
_MAY_BE_MARKS = re.compile(rf"[^\x00-\x7f]{{{_MARKS_MAX + 1},}}")  # no mark is ASCII
_MARKS_INSIDE = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")


def compose(form: Literal["NFC", "NFKC"], text: str) -> str:
    """`text` normalised to `form`, without the marks that no real text has."""
    if text.isascii():
        return text
    return unicodedata.normalize(form, _MAY_BE_MARKS.sub(_without_long_runs, text))


def _without_long_runs(found: re.Match[str]) -> str:
    kept, run = [], 0
    for character in found[0]:
        run = run + 1 if unicodedata.combining(character) or character in _MARKS_INSIDE else 0
        if run <= _MARKS_MAX:
            kept.append(character)
    return "".join(kept)
