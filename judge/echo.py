"""How much of a completion was already in the program's text: repetition is not inference.

The share is counted by code from recorded bytes: runs of words of the completion (its prose and the arguments of its
calls) that the program had put into a request before the model wrote them, whatever role the message claimed. Runs are
compared again without numbers, single letters and the ends of messages, so that numbered lines, tables and blanks for
ids hide nothing; runs of eight also with the program's text decoded (`_decoded`). Runs that stand in the shopper's
query or that a tool result held before count neither as echoed nor as the model's, since quoting data is what a
reasoner does; neither do rows of a program's own table, whose words are those of one returned object. A completion
without prose is as much an echo as its calls (`harness.trace.Emitter`).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterator
from functools import lru_cache

import msgspec

from foundation.canonical import objects_in
from harness.emission.attribution import ProgramText, completion_words
from harness.emission.wording import Words, words_of
from harness.trace import Completion, EvaluationBody, ToolCall

_TOKEN = re.compile(r"\s+|\S+")
_RUN = 8
_PACKED = re.compile(r"[A-Za-z0-9+/_-]{16,}+={0,2}")
_URL_SAFE = str.maketrans("+/", "-_")
_ROT13 = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
_ROW_WORDS = 64  # of an object that a table shows in a row; longer ones are texts of their own
_ROWS_MAX = 256  # objects that a word of a run is looked for in


class Echo(msgspec.Struct, frozen=True):
    """What of a completion was echoed: the share of its word runs (or calls, without prose) in ten-thousandths, and
    the runs themselves, with what was left out of them."""

    share_e4: int
    runs: frozenset[Words] = frozenset()


NO_ECHO = Echo(0)


@lru_cache(maxsize=256)
def own_words(text: str, echoed: frozenset[Words]) -> str:
    """`text`, as long as it was, with line breaks in the place of every word that belongs to an echoed run."""
    if not echoed:
        return text
    tokens = _TOKEN.findall(text)
    placed = [(word, place) for place, token in enumerate(tokens) for word in words_of(token)]
    words = tuple(word for word, _ in placed)
    sizes: dict[str, set[int]] = {}  # of the runs that begin with a word
    for run in echoed:
        sizes.setdefault(run[0], set()).add(len(run))
    borrowed: set[int] = set()
    for start, word in enumerate(words):
        for size in sizes.get(word, ()):
            if words[start : start + size] in echoed:
                borrowed.update(place for _, place in placed[start : start + size])
    return "".join("\n" * len(token) if place in borrowed else token for place, token in enumerate(tokens))


def echoes_of(body: EvaluationBody) -> dict[int, Echo]:
    """Step -> what of its completion was echoed."""
    program, rows = ProgramText(), _ShownRows()
    completions = [event for event in body.events if isinstance(event, Completion)]
    calls = [event for event in body.events if isinstance(event, ToolCall)]
    said = {one.step: completion_words(one.content, one.reasoning, one.calls) for one in completions}
    wanted = {run for words in said.values() for run, _, _ in _runs(words)}
    sizes = {len(run) for run in wanted}
    vocabulary = frozenset(word for words in said.values() for word in words if word != word[::-1])
    read: set[int] = set()  # messages whose packed texts are known

    def held(words: Words) -> set[Words]:
        return {run for size in sizes for run, _, _ in _runs(words, size)} & wanted

    data = held(words_of(body.query))
    by_program: set[Words] = set()
    by_model: set[Words] = set()
    found: dict[int, Echo] = {}
    for event in body.events:
        if isinstance(event, ToolCall):
            words = program.result_words(event.name, event.arguments, event.result, event.emitter)
            data |= held(words)
            rows.add(event.result, frozenset(words))
        elif isinstance(event, Completion):
            request = [index for index in event.request if index < len(body.messages)]
            sent = program.request([body.messages[index] for index in request]).words
            by_program |= held(sent) - by_model
            fresh = [body.messages[index] for index in request if index not in read]
            read.update(request)
            for coded in _decoded(sent, fresh, vocabulary):
                by_program |= {run for run in held(coded) if len(run) == _RUN} - by_model
            words = said[event.step]
            runs = {
                (first, end): run
                for run, first, end in _runs(words)
                if run not in data and not (run in by_program and rows.hold(run))
            }
            spans = [span for span, run in runs.items() if run in by_program]
            borrowed = {place for first, end in spans for place in range(first, end)}
            whole = [(first, end) for (first, end), run in runs.items() if end - first == len(run)]
            echoed = sum(borrowed.issuperset(range(first, end)) for first, end in whole)
            share_e4 = 10_000 * echoed // len(whole) if whole else 0
            written = [one.emitter for one in calls if one.step == event.step and one.emitter != "code"]
            if written and not (event.reasoning + event.content).strip():
                share_e4 = max(share_e4, 10_000 * written.count("echoed") // len(written))
            found[event.step] = Echo(share_e4, frozenset(words[first:end] for first, end in spans))
            by_model.update(run for run in runs.values() if run not in by_program)
    return found


def _runs(words: Words, size: int = _RUN) -> Iterator[tuple[Words, int, int]]:
    """Runs of `size` words, or of all where there are fewer, as they stand and without numbers and single letters: each
    with the places that it spans."""
    bare = [place for place, word in enumerate(words) if not word.isdecimal() and (len(word) > 1 or word > "z")]
    for places in (range(len(words)), bare):
        length = min(size, len(places))
        for start in range(len(places) - length + 1 if length else 0):
            run = places[start : start + length]
            yield tuple(words[place] for place in run), run[0], run[-1] + 1


def _decoded(words: Words, messages: Collection[str], vocabulary: frozenset[str]) -> Iterator[Words]:
    """What the program's text says in rot13, with letters reversed, as hex and as base64, if it shares words with
    `vocabulary`."""
    line = " ".join(words)
    turned, mirrored = tuple(line.translate(_ROT13).split(" ")), tuple(line[::-1].split(" "))
    packed = " ".join(_unpacked(found[0]) for text in messages for found in _PACKED.finditer(text.replace(r"\n", " ")))
    for coded in (turned, mirrored, mirrored[::-1], words_of(packed)):
        if len(vocabulary.intersection(coded)) >= _RUN // 2:
            yield coded


def _unpacked(text: str) -> str:
    try:
        return bytes.fromhex(text).decode()
    except ValueError:
        pass
    try:
        return urlsafe_b64decode(text.translate(_URL_SAFE).rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)).decode()
    except ValueError:
        return ""


class _ShownRows:
    """The objects that tools returned, as the words of each: what a program's table shows of one."""

    def __init__(self) -> None:
        self._rows: list[frozenset[str]] = []
        self._by_word: dict[str, list[int]] = {}

    def add(self, result: str, vocabulary: Collection[str]) -> None:
        """Keep the objects of a result, as far as their words are in `vocabulary`."""
        for row in _objects(result):
            words = frozenset(words_of(row)).intersection(vocabulary)
            if len(words) <= _ROW_WORDS:
                for word in words:
                    self._by_word.setdefault(word, []).append(len(self._rows))
                self._rows.append(words)

    def hold(self, run: Words) -> bool:
        """Whether all words of a run, of a long one all but one, are of one object."""
        rarest = sorted((self._by_word.get(word, []) for word in set(run)), key=len)[:2]
        return any(
            sum(word not in self._rows[number] for word in run) <= (len(run) == _RUN)
            for numbers in rarest
            for number in numbers[:_ROWS_MAX]
        )


def _objects(result: str) -> Iterator[str]:
    """Every object of a result that holds no other, as JSON text."""
    try:
        value = msgspec.json.decode(result)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    for one in objects_in(value):
        parts = [part for item in one.values() for part in (item if isinstance(item, list) else [item])]
        if not any(isinstance(part, dict) for part in parts):
            yield msgspec.json.encode(one).decode()
