"""How much of a completion was already in the program's text: repetition is not inference.

The share is counted by code from recorded bytes: runs of words of the completion (its prose and the arguments of its
calls) that the program had put into a request before the model wrote them, whatever role the message claimed. Runs that
stand in the shopper's query or that a tool result held before count neither as echoed nor as the model's, since quoting
data is what a reasoner does; neither do rows of a program's own table, whose words are those of one returned object. A
run that joins a quotation with other words is the program's where the program joined them. Runs are compared again
without numbers, single letters and the ends of messages, so that numbered lines, tables and blanks for ids hide none.
What is the program's text is decided where emitters are (`harness.emission.program_text`, `harness/EMISSION.md`). A
completion without prose is as much an echo as the calls that came out of it (`harness.trace.Emitter`). Bodies of the
first version of the emission rule are counted as they were then: by the roles of the latest request's messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache, lru_cache

import msgspec

from harness.emission.attribution import FIRST_EMISSION, version_of
from harness.emission.call_reader import CallReader
from harness.emission.program_text import ProgramText
from harness.emission.wording import Words, words_of
from harness.tools.registry import profile_schemas
from harness.trace import Completion, Emitter, EvaluationBody, ToolCall

_WORD = re.compile(r"[^\W_]+")
_TOKEN = re.compile(r"\s+|\S+")
_RUN = 8
_SPAN = 64  # words that a run without numbers may span
_BARE_OWN = 3  # words of a run without numbers that stand in no query and in no row
_ROW_WORDS = 64  # of an object that a table shows in a row; longer ones are texts of their own
_ROWS_MAX = 256  # objects that a word of a run is looked for in


class Echo(msgspec.Struct, frozen=True):
    """What of a completion was echoed: the share of its word runs (or calls, without prose) in ten-thousandths, and
    the runs themselves (none are kept of bodies of the first version)."""

    share_e4: int
    runs: frozenset[Words] = frozenset()


NO_ECHO = Echo(0)


def echoes_of(body: EvaluationBody) -> dict[int, Echo]:
    """Step -> what of its completion was echoed."""
    found = _first_shares(body) if version_of(body) == FIRST_EMISSION else _echoes(body)
    emitters: dict[int, list[Emitter]] = {}
    for event in body.events:
        if isinstance(event, ToolCall):
            emitters.setdefault(event.step, []).append(event.emitter)
    for event in body.events:
        if isinstance(event, Completion) and not (event.reasoning + event.content).strip():
            written = [emitter for emitter in emitters.get(event.step, ()) if emitter != "code"]
            if written:
                share_e4 = max(found[event.step].share_e4, 10_000 * written.count("echoed") // len(written))
                found[event.step] = Echo(share_e4, found[event.step].runs)
    return found


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


def _echoes(body: EvaluationBody) -> dict[int, Echo]:
    program = ProgramText(body.query)
    query = words_of(body.query)
    data = {*_runs_of(query), *(run for run, _, _ in _bare_runs(query))}
    rows = _ShownRows()
    said = {event.step: words_of(_said(event)) for event in body.events if isinstance(event, Completion)}
    bare = {step: tuple(_bare_runs(words)) for step, words in said.items()}
    wanted = {run for words in said.values() for run in _runs_of(words)}
    bare_wanted = {run for runs in bare.values() for run, _, _ in runs}
    sizes = _sizes(wanted)
    by_program: set[Words] = set()
    by_model: set[Words] = set()
    found: dict[int, Echo] = {}
    for event in body.events:
        if isinstance(event, ToolCall):
            is_programs = event.emitter != "llm"
            result = program.returned(event.name, event.arguments, event.result, is_programs=is_programs)
            data.update(run for size in sizes for run in _runs(result.words, size) if run in wanted)
            data.update(run for run, _, _ in _bare_runs(result.words) if run in bare_wanted)
            rows.add(event.result, result.vocabulary)
        elif isinstance(event, Completion):
            own = program.request([body.messages[index] for index in event.request if index < len(body.messages)])
            seams = program.seams()
            fresh = {run for size in sizes for run in _runs(own.words, size) if run in wanted}
            fresh |= {  # quotations, with what the program joined to them
                run
                for size in sizes
                for first, run in enumerate(_runs(seams.words, size))
                if run in wanted and seams.is_joined(first, first + size)
            }
            fresh |= {run for run, _, _ in _bare_runs(own.words) if run in bare_wanted}
            by_program |= fresh - by_model
            known = {*rows.vocabulary, *query, *_tool_words()}
            spans = [
                (first, end)
                for run, first, end in bare[event.step]
                if run in by_program and run not in data and sum(word not in known for word in run) >= _BARE_OWN
            ]
            covered = {place for first, end in spans for place in range(first, end)}
            runs = [
                (run, run in by_program or covered.issuperset(range(first, first + len(run))))
                for first, run in enumerate(_runs_of(said[event.step]))
                if run not in data and not (run in by_program and rows.hold(run))
            ]
            echoed = [run for run, is_programs in runs if is_programs]
            borrowed = frozenset((*echoed, *(said[event.step][first:end] for first, end in spans)))
            found[event.step] = Echo(10_000 * len(echoed) // len(runs) if runs else 0, borrowed)
            model_runs = (*_runs_of(said[event.step]), *(run for run, _, _ in bare[event.step]))
            by_model.update(run for run in model_runs if run not in by_program)
            program.completed(event.content, event.reasoning, event.calls)
    return found


@cache
def _tool_words() -> frozenset[str]:
    """Words of the tools' and parameters' names, in which a call and a list of signatures are alike."""
    reader = CallReader(profile_schemas("extended"))
    names = (name for tool in reader.names for name in (tool, *reader.parameters(tool)))
    return frozenset(word for name in names for word in words_of(name))


def _bare_runs(words: Words) -> Iterator[tuple[Words, int, int]]:
    """Runs of words without numbers, single letters and ends of messages: each with the places that it spans."""
    places = [place for place, word in enumerate(words) if word.isalpha() and (len(word) > 1 or word > "z")]
    runs = _runs(tuple(words[place] for place in places), _RUN)
    for run, first, last in zip(runs, places, places[_RUN - 1 :], strict=False):
        if last - first < _SPAN:
            yield run, first, last + 1


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

    @property
    def vocabulary(self) -> Collection[str]:
        """Every word of an object that is kept."""
        return self._by_word.keys()

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
        stack: list[object] = [msgspec.json.decode(result)]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, dict):
            inner = [item for item in value.values() if isinstance(item, dict)]
            inner += [
                item for items in value.values() if isinstance(items, list) for item in items if isinstance(item, dict)
            ]
            if inner:
                stack.extend(inner)
            else:
                yield msgspec.json.encode(value).decode()


def _said(completion: Completion) -> str:
    calls = " ".join(f"{call.name} {call.arguments}" for call in completion.calls)
    return f"{completion.reasoning} {completion.content} {calls}"


def _sizes(runs: Iterable[Words]) -> tuple[int, ...]:
    return tuple({len(run) for run in runs})


def _runs_of(words: Words) -> list[Words]:
    size = min(_RUN, len(words))
    return list(_runs(words, size)) if size else []


def _runs(words: Words, size: int) -> Iterable[Words]:
    return zip(*(words[offset:] for offset in range(size)), strict=False)


# -- bodies of the first version


def _first_shares(body: EvaluationBody) -> dict[int, Echo]:
    program = [_first_program_words(message) for message in body.messages]
    data = [_first_words(body.query)]
    shares: dict[int, Echo] = {}
    for event in body.events:
        if isinstance(event, ToolCall):
            data.append(_first_words(event.result))
        elif isinstance(event, Completion):
            runs = _runs_of(_first_words(_said(event)))
            size, wanted = len(runs[0]) if runs else 0, set(runs)
            sent = [program[index] for index in event.request if index < len(program)]
            echoed = {run for text in sent for run in _runs(text, size) if run in wanted} if runs else set()
            if echoed:
                echoed -= {run for text in data for run in _runs(text, size) if run in echoed}
            shares[event.step] = Echo(10_000 * sum(run in echoed for run in runs) // max(1, len(runs)))
    return shares


def _first_program_words(message: str) -> Words:
    try:
        decoded = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _first_words(message)
    if not isinstance(decoded, dict) or decoded.get("role") in ("assistant", "tool"):
        return ()
    return _first_words(" ".join(_first_texts(decoded.get("content"))))


def _first_texts(content: object) -> Iterable[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            yield from _first_texts(part.get("text") if isinstance(part, dict) else part)


def _first_words(text: str) -> Words:
    return tuple(_WORD.findall(text.lower()))
