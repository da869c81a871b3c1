"""The program's text of an episode: what its requests hold beyond the shopper's query, completions and tool results.

Promise: pure, and linear in the bytes sent; a message sent again costs nothing. Text is the program's whatever role it
claims, unless it repeats at least `RECORDED_MIN` letters and digits in a row of what had been recorded before the
message was first sent. The query is also taken out whole. What a result repeats of the arguments of a call that the
program wrote is no recorded passage. The rule is published in `harness/EMISSION.md`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import orjson

from harness.trace import EmittedCall
from harness.wording import Passage, Words, words_of

RECORDED_MIN = 40  # letters and digits in a row that a message repeats of something recorded
PASSAGE = 600  # letters and digits of program text that are read as one passage

_ANCHOR = RECORDED_MIN // 2
_PLACES_MAX = 4  # of one anchor: a phrase that comes again and again
_LEAVES_MAX = 64  # of a call's arguments
_FOUND_MAX = 1_000  # places of one value
_NO_TEXT = ("role", "type")
_TWO_BREAKS = (Passage.BREAK, Passage.BREAK)


class Recorded:
    """Passages that the record holds, ready to be found again in a message."""

    def __init__(self) -> None:
        self._waiting: list[Words] = []
        self._text = ""
        self._places: dict[str, list[int]] = {}

    def add(self, words: Words) -> None:
        """Keep a passage."""
        self._waiting.append(words)

    def without(self, words: Words) -> Iterator[str]:
        """`words` less those of which a long enough run was recorded, with a break in the place of each run."""
        if sum(map(len, words)) < RECORDED_MIN:
            yield from words
            return
        self._index()
        passage = Passage(words)
        text, offsets = passage.text, passage.offsets
        number = kept = 0  # words before `kept` are told already
        while number < len(words):
            start, end = self._match(text, offsets[number], offsets[kept])
            first, last = number, number
            while first > kept and offsets[first - 1] >= start:
                first -= 1
            while last < len(words) and offsets[last + 1] <= end:
                last += 1
            if offsets[last] - offsets[first] < RECORDED_MIN:
                number += 1
                continue
            yield from words[kept:first]
            yield Passage.BREAK
            number = kept = last
        yield from words[kept:]

    def _match(self, text: str, at: int, floor: int) -> tuple[int, int]:
        """The longest recorded run around `at`, not before `floor`; empty when there is none."""
        best = (at, at)
        for place in self._places.get(text[at : at + _ANCHOR], ()):
            end = at + _run(text, at, self._text, place, 1)
            start = max(floor, at - _run(text, at, self._text, place, -1))
            if end - start > best[1] - best[0]:
                best = (start, end)
        return best

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


class ProgramText:
    """The program's text of one episode, request by request. Feed it in the order in which things happened."""

    def __init__(self, query: str) -> None:
        words = words_of(query)
        self._query = "".join(words)
        self._recorded = Recorded()
        self._recorded.add(words)
        self._said: set[str] = set()  # contents of completions and results that a turn of the history may carry whole
        self._calls: set[tuple[str, str]] = set()  # names and arguments that completions wrote
        self._left: dict[str, Words] = {}  # by message: its program text when it was first sent
        self._sent: tuple[str, ...] = ()

    def request(self, messages: Sequence[str]) -> Passage:
        """The program's text that is new in a request (JSON texts of its messages), after the passage before it."""
        same = 0
        for old, new in zip(self._sent, messages, strict=False):
            if old != new:
                break
            same += 1
        self._sent = tuple(messages)
        fresh = [word for message in messages[same:] for word in (*self._words_left(message), Passage.BREAK)]
        if all(word == Passage.BREAK for word in fresh):
            return Passage(())
        words = (*self._tail(messages[:same]), *fresh)
        return Passage(word for before, word in pairwise((Passage.BREAK, *words)) if (before, word) != _TWO_BREAKS)

    def wrote_in(self, message: str) -> int:
        """How many letters and digits of a message that was sent are the program's."""
        return sum(len(word) for word in self._left[message] if word != Passage.BREAK)

    def completed(self, content: str, reasoning: str, calls: Sequence[EmittedCall]) -> Passage:
        """Record a completion; its words."""
        said = [f"{reasoning}\n{content}", *(f"{call.name} {call.arguments}" for call in calls)]
        words = words_of("\n".join(said))
        self._recorded.add(words)
        self._said |= {content, reasoning, *(call.call_id for call in calls)} - {""}
        self._calls |= {(call.name, call.arguments) for call in calls}
        return Passage(words)

    def returned(self, name: str, arguments: str, result: str, *, is_programs: bool) -> Passage:
        """Record a tool's result; its words, less what it repeats of its call: of a call by the program any value, of
        one by the model (which may have been told it) those so long that they would count as recorded."""
        whole = Passage(words_of(result))
        values = (name, *leaves_of(arguments)) if is_programs else _long(leaves_of(arguments))
        words = _without(whole, values) or ()
        self._recorded.add(words)
        if not is_programs:
            self._said.add(result)
            return Passage(words)
        given = set(words_of(f"{name} {arguments}"))
        return Passage(word for word in words if word not in given)

    def _tail(self, messages: Sequence[str]) -> Words:
        """The last passage of messages that were sent before."""
        tail: list[str] = []
        left = PASSAGE
        for message in reversed(messages):
            for word in reversed((*self._words_left(message), Passage.BREAK)):
                tail.append(word)
                left -= len(word)
                if left < 0:
                    return tuple(reversed(tail))
        return tuple(reversed(tail))

    def _words_left(self, message: str) -> Words:
        if message not in self._left:
            self._left[message] = tuple(self._read(message))
        return self._left[message]

    def _read(self, message: str) -> Iterator[str]:
        try:
            decoded = orjson.loads(message)
        except orjson.JSONDecodeError:
            decoded = message
        turn = decoded if isinstance(decoded, dict) else {"content": decoded}
        is_carried = turn.get("role") in ("assistant", "tool")
        for text in self._texts(turn):
            if is_carried and text in self._said:
                yield Passage.BREAK
                continue
            words = words_of(text)
            yield from self._recorded.without(_without(Passage(words), (self._query,)) or words)

    def _texts(self, turn: dict[str, object]) -> Iterator[str]:
        """Every text of a message, in its order; recorded calls are left out whole."""
        stack: list[object] = [turn]
        while stack:
            value = stack.pop()
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                stack.extend(reversed(value))
            elif isinstance(value, dict) and not self._is_recorded_call(value):
                stack.extend(item for key, item in reversed(value.items()) if key not in _NO_TEXT)

    def _is_recorded_call(self, value: dict[str, object]) -> bool:
        name, arguments = value.get("name"), value.get("arguments")
        is_call = len(value) == 2 and isinstance(name, str) and isinstance(arguments, str)
        return is_call and (name, arguments) in self._calls


def leaves_of(arguments: str) -> tuple[str, ...]:
    """The values in the arguments of a call (JSON text), run together; nested keys are values too."""
    try:
        stack: list[object] = [orjson.loads(arguments)]
    except orjson.JSONDecodeError:
        stack = [arguments]
    found: dict[str, None] = {}
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend((*value.keys(), *value.values()))
        elif isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, str) and value.lstrip()[:1] in ("[", "{") and (inner := _decoded(value)) is not None:
            stack.append(inner)
        elif value is not None:
            found["".join(words_of(str(value)))] = None
    return tuple(found)


def _decoded(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _long(values: Sequence[str]) -> tuple[str, ...]:
    """Those that count as recorded wherever they stand."""
    return tuple(value for value in values if len(value) >= RECORDED_MIN)[:_LEAVES_MAX]


def _without(passage: Passage, values: Sequence[str]) -> Words | None:
    """The words of a passage with a break in the place of each value; None when these are too many to look for."""
    if len(values) > _LEAVES_MAX:
        return None
    cut: list[tuple[int, int]] = []
    for value in values:
        places = passage.find(value, _FOUND_MAX)
        if places is None:
            return None
        cut += ((place, place + len(value)) for place in places)
    if not cut:
        return passage.words
    cut.sort()
    ends = list(accumulate((end for _, end in cut), max))
    starts = [start for start, _ in cut]

    def is_cut(offset: int) -> bool:
        before = bisect_right(starts, offset)
        return before > 0 and offset < ends[before - 1]

    return tuple(
        Passage.BREAK if is_cut(offset) else word for word, offset in zip(passage.words, passage.offsets, strict=False)
    )
