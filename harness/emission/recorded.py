"""Passages that an episode's record holds, ready to be found again in the texts of its requests.

Linear in what is kept and in what is read. A run counts from `RECORDED_MIN` letters and digits on, whatever
words it begins and ends with.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.emission.wording import Passage, Words

RECORDED_MIN = 40  # letters and digits in a row that a message repeats of something recorded

_ANCHOR = RECORDED_MIN // 2
_PLACES_MAX = 4  # of one anchor: a phrase that comes again and again


class Recorded:
    """Passages that the record holds, ready to be found again in a message."""

    def __init__(self) -> None:
        self._waiting: list[Words] = []
        self._text = ""
        self._places: dict[str, list[int]] = {}

    def add(self, words: Words) -> None:
        """Keep a passage."""
        self._waiting.append(words)

    def runs_in(self, words: Words) -> Iterator[tuple[int, int]]:
        """The words (first, and the one after the last) of every long enough run that was recorded, in order."""
        if sum(map(len, words)) < RECORDED_MIN:
            return
        self._index()
        passage = Passage(words)
        text, offsets = passage.text, passage.offsets
        number = kept = 0  # words before `kept` belong to no later run
        while number < len(words):
            at, floor = offsets[number], offsets[kept]
            start, end = at, at  # of the longest recorded run around `at`
            for place in self._places.get(text[at : at + _ANCHOR], ()):
                ends = at + _run(text, at, self._text, place, 1)
                begins = max(floor, at - _run(text, at, self._text, place, -1))
                if ends - begins > end - start:
                    start, end = begins, ends
            first, last = number, number
            while first > kept and offsets[first - 1] >= start:
                first -= 1
            while last < len(words) and offsets[last + 1] <= end:
                last += 1
            if offsets[last] - offsets[first] < RECORDED_MIN:
                number += 1
                continue
            yield first, last
            number = kept = last

    def _index(self) -> None:
        if not self._waiting:
            return
        parts, base = [self._text], len(self._text)
        for words in self._waiting:
            passage = Passage(words)
            for offset in passage.offsets[:-1]:
                anchor = passage.text[offset : offset + _ANCHOR]
                places = self._places.setdefault(anchor, [])
                if len(anchor) == _ANCHOR and len(places) < _PLACES_MAX:
                    places.append(base + offset)
            parts += (passage.text, Passage.BREAK)
            base += len(passage.text) + 1
        self._text = "".join(parts)
        self._waiting.clear()


def _run(left: str, i: int, right: str, j: int, step: int) -> int:
    """How many characters agree from `left[i]` and `right[j]` on, or before them where `step` is -1."""
    most = min(len(left) - i, len(right) - j) if step > 0 else min(i, j)
    done, chunk = 0, 64
    while done < most:
        size = min(chunk, most - done)
        if step > 0:
            same = left[i + done : i + done + size] == right[j + done : j + done + size]
        else:
            same = left[i - done - size : i - done] == right[j - done - size : j - done]
        if same:
            done += size
            chunk *= 2
        elif size == 1:
            break
        else:
            chunk = max(1, size // 4)
    return done
