"""The program's text of an episode: what its requests hold beyond the shopper's query, completions and tool results.

Pure, and linear in the bytes sent; a message sent again costs nothing. Text is the program's whatever role it
claims, unless it repeats at least `RECORDED_MIN` letters and digits in a row of what had been recorded before the
message was first sent. The query is also taken out whole. What a result repeats of the arguments of a call that the
program wrote is no recorded passage. Where recorded passages meet other words, `seams` keeps both, since a program may
quote a value right after a tool's name. The rule is published in `harness/EMISSION.md`.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, groupby, pairwise

import msgspec
import orjson

from harness.emission.recorded import RECORDED_MIN, Recorded
from harness.emission.wording import Passage, Words, words_of
from harness.trace import EmittedCall

PASSAGE = 600  # letters and digits of program text that are read as one passage

_LEAVES_MAX = 64  # of a call's arguments
_FOUND_MAX = 1_000  # places of one value
_WORDS_BEFORE = 16  # of a message, that may announce how the next begins
_NO_TEXT = ("role", "type")
_TWO_BREAKS = (Passage.BREAK, Passage.BREAK)
_END = re.compile(r"(\n\s*\n)|(?<=[.!?;)])[^\S\n]*+\n(?!\s*\n)")  # of a paragraph; or of a line that ends a sentence
_LABEL = re.compile(r"^([^\S\n]*)Q(?=\s?[:.)])", re.MULTILINE)  # as in "Q: ... A: ...", which names no parameter
_Word = tuple[str, int]  # a word and the number of the recorded run it is quoted from, 0 where it is the program's


class Seams(Passage):
    """Passages in which a program joined recorded runs with words of its own or with each other, nothing taken out.

    Outside a run a break stands where a paragraph ends, and a pause where a line ends with a sentence. A break also
    stands where the inner part of a long run, or of long text between two, is left out.
    """

    PAUSE = "\v"

    def __init__(self, words: Sequence[_Word]) -> None:
        super().__init__(word for word, _ in words)
        self.runs = tuple(run for _, run in words)

    def is_joined(self, first: int, last: int) -> bool:
        """Whether the words from `first` up to `last` are neither all the program's nor all of one recorded run."""
        return len(set(self.runs[first:last])) > 1


class _ReadText(msgspec.Struct, frozen=True):
    """One message: the program's words with breaks in the place of recorded runs; the seams between these; and how the
    message begins, where it begins with a recorded run or soon comes to one."""

    own: Words
    letters: int  # and digits of these
    seams: tuple[tuple[_Word, ...], ...] = ()
    opening: tuple[_Word, ...] = ()


class ProgramText:
    """The program's text of one episode, request by request. Feed it in the order in which things happened."""

    def __init__(self, query: str) -> None:
        words = words_of(query)
        self._query = "".join(words)
        self._recorded = Recorded()
        self._recorded.add(words)
        self._said: set[str] = set()  # contents of completions and results that a turn of the history may carry whole
        self._calls: set[tuple[str, str]] = set()  # names and arguments that completions wrote
        self._left: dict[str, _ReadText] = {}  # by message: its program text when it was first sent
        self._sent: tuple[str, ...] = ()
        self._seams = Seams(())
        self._seen: set[tuple[_Word, ...]] = set()  # seams of all requests so far

    def request(self, messages: Sequence[str]) -> Passage:
        """The program's text that is new in a request (JSON texts of its messages), after the passage before it."""
        same = 0
        for old, new in zip(self._sent, messages, strict=False):
            if old != new:
                break
            same += 1
        self._sent = tuple(messages)
        unread = [place for place, message in enumerate(messages) if message not in self._left]
        met = dict.fromkeys(seam for place in unread for seam in self._seams_at(messages, place))
        seams = [seam for seam in met if seam not in self._seen]
        self._seen.update(seams)
        self._seams = Seams([word for seam in seams for word in (*seam, (Passage.BREAK, 0))])
        fresh = [word for message in messages[same:] for word in (*self._left_of(message).own, Passage.BREAK)]
        if all(word == Passage.BREAK for word in fresh):
            return Passage(())
        words = (*self._tail(messages[:same]), *fresh)
        return Passage(word for before, word in pairwise((Passage.BREAK, *words)) if (before, word) != _TWO_BREAKS)

    def seams(self) -> Seams:
        """What the latest request was the first to join."""
        return self._seams

    def wrote_in(self, message: str) -> int:
        """How many letters and digits of a message that was sent are the program's."""
        return self._left[message].letters

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
        values = leaves_of(arguments)
        long = tuple(value for value in values if len(value) >= RECORDED_MIN)[:_LEAVES_MAX]
        words = _without(whole, (name, *values) if is_programs else long) or ()
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
            for word in reversed((*self._left_of(message).own, Passage.BREAK)):
                tail.append(word)
                left -= len(word)
                if left < 0:
                    return tuple(reversed(tail))
        return tuple(reversed(tail))

    def _seams_at(self, messages: Sequence[str], place: int) -> Iterator[tuple[_Word, ...]]:
        """The seams of a message, and that of its beginning with the end of the message before it."""
        reading = self._left_of(messages[place])
        yield from reading.seams
        if place and reading.opening:
            before = [(word, 0) for word in self._left_of(messages[place - 1]).own[-_WORDS_BEFORE:]]
            yield from _joined((*before, (Passage.BREAK, 0), *reading.opening))

    def _left_of(self, message: str) -> _ReadText:
        if message not in self._left:
            self._left[message] = self._read(message)
        return self._left[message]

    def _read(self, message: str) -> _ReadText:
        try:
            decoded = orjson.loads(message)
        except orjson.JSONDecodeError:
            decoded = message
        turn = decoded if isinstance(decoded, dict) else {"content": decoded}
        is_carried = turn.get("role") in ("assistant", "tool")
        own: list[str] = []
        read: list[tuple[Words, Sequence[int], Sequence[str | None], Sequence[int]]] = []
        for text in self._texts(turn):
            if is_carried and text in self._said:
                own.append(Passage.BREAK)
                read.append(((Passage.BREAK,), (0,), (), ()))
                continue
            pieces = _END.split(_LABEL.sub(r"\1Question", text))
            parts = [words_of(piece) for piece in pieces[::2]]
            words = tuple(chain.from_iterable(parts))
            runs = self._runs(words)
            if any(runs):
                for run, group in groupby(zip(words, runs, strict=True), key=lambda pair: pair[1]):
                    own += [Passage.BREAK] if run else [word for word, _ in group]
            else:
                own += words
            read.append((words, runs, pieces[1::2], tuple(accumulate(map(len, parts)))))
        letters = sum(len(word) for word in own if word != Passage.BREAK)
        if not any(any(runs) for _, runs, _, _ in read):
            return _ReadText(tuple(own), letters)
        signed = tuple(chain.from_iterable(_signed(*text) for text in read))
        opening = signed[1 : bisect_left(list(accumulate(len(word) for word, _ in signed)), 2 * PASSAGE)]
        is_opened = any(run for _, run in opening)
        return _ReadText(tuple(own), letters, tuple(_seams(signed)), opening if is_opened else ())

    def _runs(self, words: Words) -> list[int]:
        """For each word the number of the recorded run it is quoted from, 0 where it is the program's."""
        bare = _without(Passage(words), (self._query,)) or words
        runs, number = [0] * len(words), 0
        for place in (place for place, word in enumerate(bare) if word == Passage.BREAK) if bare != words else ():
            number += not (place and runs[place - 1])
            runs[place] = number
        for first, last in self._recorded.runs_in(bare):
            number += 1
            runs[first:last] = [number] * (last - first)
        return runs

    def _texts(self, turn: dict[str, object]) -> Iterator[str]:
        """Every text of a message, in its order; recorded calls are left out whole."""
        stack: list[object] = [turn]
        while stack:
            value = stack.pop()
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                stack.extend(reversed(value))
            elif isinstance(value, dict):
                name, arguments = value.get("name"), value.get("arguments")
                is_call = len(value) == 2 and isinstance(name, str) and isinstance(arguments, str)
                if not (is_call and (name, arguments) in self._calls):
                    stack.extend(item for key, item in reversed(value.items()) if key not in _NO_TEXT)


def _signed(words: Words, runs: Sequence[int], blanks: Sequence[str | None], ends: Sequence[int]) -> Iterator[_Word]:
    """A text's words with their runs, a break before all; where something ends outside a run, its sign. `ends` are the
    places of the words after it, `blanks` the blank lines that end it, None for a line that ends with a sentence."""
    yield Passage.BREAK, 0
    signs = {end: Seams.PAUSE if blank is None else Passage.BREAK for end, blank in zip(ends, blanks, strict=False)}
    for place, (word, run) in enumerate(zip(words, runs, strict=True)):
        if place in signs and (not run or not place or runs[place - 1] != run):
            yield signs[place], 0
        yield word, run


def _seams(read: Sequence[_Word]) -> Iterator[tuple[_Word, ...]]:
    """The stretches in which runs meet other words or other runs; of a run, or of words between two, that is longer
    than two passages, the inner part is left out."""
    seam: list[_Word] = []
    for _, words in groupby(read, key=lambda pair: pair[1]):
        group = tuple(words)
        offsets = (0, *accumulate(len(word) for word, _ in group))
        if offsets[-1] > 2 * PASSAGE:
            yield from _joined((*seam, *group[: bisect_left(offsets, PASSAGE)]))
            seam = list(group[bisect_right(offsets, offsets[-1] - PASSAGE) - 1 :])
        else:
            seam += group
    yield from _joined(seam)


def _joined(seam: Sequence[_Word]) -> Iterator[tuple[_Word, ...]]:
    """The seam with its runs numbered from 1, so that it equals itself wherever it stands; none where nothing meets."""
    numbers = {0: 0}
    numbered = tuple((word, numbers.setdefault(run, len(numbers))) for word, run in seam)
    if len({run for _, run in seam}) > 1:
        yield numbered


def leaves_of(arguments: str) -> tuple[str, ...]:
    """The values in the arguments of a call (JSON text), run together; nested keys are values too."""
    try:
        stack: list[object] = [orjson.loads(arguments)]
    except orjson.JSONDecodeError:
        stack = [arguments]
    found: dict[str, None] = {}
    while stack:
        value = stack.pop()
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            with contextlib.suppress(orjson.JSONDecodeError):
                value = orjson.loads(value)
        if isinstance(value, dict):
            stack.extend((*value.keys(), *value.values()))
        elif isinstance(value, list):
            stack.extend(value)
        elif value is not None:
            found["".join(words_of(str(value)))] = None
    return tuple(found)


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
