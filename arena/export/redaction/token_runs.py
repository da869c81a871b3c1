"""Where a text may hold long runs of token characters, found by whole words of four bytes.

Promise: every run of at least `LONG_BYTES` of `A-Z a-z 0-9 _ - + /` lies whole in exactly one of the stretches, which
stand in order. They may hold other text too, so the caller checks them; most texts have few. This takes a third of the
time of looking at every character.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

LONG_BYTES = 20

_WORD = 4
_WORDS = 4  # that a run of 20 fills, wherever it begins
_FULL = np.uint32(0x01010101)  # a word of four truth values, all true
_FIRST, _SPAN = np.uint8(ord("+")), np.uint8(ord("z") - ord("+"))


def long_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """First byte and end of each stretch. What is looked for are runs of `+` to `z`: neither spaces, quotes, brackets
    nor anything beyond ASCII lie between those two, so text and JSON have few that are long."""
    size = len(data) // _WORD * _WORD
    if size < LONG_BYTES:
        yield 0, len(data)
        return
    is_near = (np.frombuffer(data, np.uint8, size) - _FIRST) <= _SPAN  # unsigned: what stands below wraps around
    is_full = is_near.view(np.uint32) == _FULL
    pairs = is_full[:-1] & is_full[1:]
    marks = (pairs[:-2] & pairs[2:]).tobytes()  # 1 where four full words begin
    beside = _WORD - 1  # a run goes on into the words before and behind, and fills neither
    first = marks.find(1)
    while first >= 0:
        past = marks.find(0, first)
        past = len(marks) if past < 0 else past
        yield max(0, first * _WORD - beside), min(len(data), (past - 1 + _WORDS) * _WORD + beside)
        first = marks.find(1, past)
