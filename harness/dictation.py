"""Whether the program had written a call into a request before the model wrote it: the echoes of `emission/2`.

Promise: pure, and bounded: searches of one episode have a budget, and a text that asks for more than it counts as
holding every call. Where a call stands in the program's text, and which of its values are new, is published in
`harness/EMISSION.md`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache

import msgspec

from harness.callkey import CallKey
from harness.callreader import CallReader
from harness.emission_first import StandingCalls
from harness.program_text import PASSAGE, ProgramText
from harness.trace import EmittedCall, Emitter
from harness.wording import Passage, Words, words_of

_SEPARATOR = re.compile(r"[,;|\n\x1c-\x1e]")  # of lists, and of the members that `harness.callkey` spells
_KEY = "\x1f"
_STRUCTURE = frozenset(
    ("action", "args", "argument", "arguments", "call", "function", "id", "input", "invoke", "json", "key", "name",
     "param", "parameter", "parameters", "string", "tool", "type", "value", "values", "yaml")
)  # fmt: skip
_VERBS = {"find": ("find", "search", "query"), "recommend": ("recommend", "choose", "pick"), "view": ("view", "open")}

_LEAVES_MAX = 64  # of one call; the longest are looked for
_PLACES_MAX = 1_000  # of one value in one request, beyond which it counts as standing everywhere
_BREAK_CHARS = 16  # what a break counts for among foreign words
_LOOSE, _TIGHT, _NONE = 16, 6, 2  # letters of foreign words for the call and for each value; in all, in no order
_ALONE = 100  # letters around a call without a value of its own
_SPLIT_CHARS = 4  # of foreign words for each word of a value that markup tore apart
_BYTES_MIN, _DIGITS_MIN = 3, 3  # of a value that may be new
_TELLING_BYTES, _TELLING_DIGITS, _TELLING_PAIR = 10, 6, 6  # of a value that by itself shows whose a call is
_TELLING_TOGETHER = 12  # letters and digits of several values that only together show it
_BUDGET = 1 << 29  # characters searched in one episode; a place counts for many
_PLACE_COST = 4_096
_WORD_COST = 256  # of a stretch that is read word by word

Places = tuple[int, ...]


class _SpentError(Exception):
    """The episode's texts ask for more searching than any honest ones."""


class Leaf(msgspec.Struct, frozen=True):
    """One value in a call's arguments, as words and run together."""

    words: Words
    text: str

    @property
    def is_number(self) -> bool:
        """Digits alone."""
        return self.text.isdecimal()

    @property
    def may_be_new(self) -> bool:
        """Long enough to stem from somebody."""
        return len(self.text) >= _DIGITS_MIN if self.is_number else len(self.text.encode()) >= _BYTES_MIN

    @property
    def is_telling(self) -> bool:
        """So long that nobody writes it by chance."""
        if self.is_number:
            return len(self.text) >= _TELLING_DIGITS
        return len(self.text.encode()) >= (_TELLING_PAIR if len(self.words) > 1 else _TELLING_BYTES)


class Spoken(msgspec.Struct, frozen=True):
    """A call as prose would hold it: its tool's name and the words for it, its values, and the words between them."""

    name: str
    verbs: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    parameters: tuple[Words, ...]
    expected: frozenset[str]

    @property
    def letters(self) -> int:
        """Letters and digits of the values."""
        return sum(len(leaf.text) for leaf in self.leaves)


class Dictation:
    """`emission/2` for one episode."""

    def __init__(self, reader: CallReader, query: str) -> None:
        self._reader = reader
        self._program = ProgramText(query)
        self._schemas = _passage(reader.schemas)
        self._query = Passage(words_of(query))
        self._wished = frozenset(map(_stem, self._query.words))
        self._requests: list[Passage] = []
        self._completions: list[Passage] = []
        self._results: list[Passage] = []
        self._written = StandingCalls(reader)
        self._messages: dict[str, int] = {}  # those with text of the program's: how much of it
        self._found: dict[tuple[int, str], Places | None] = {}
        self._budget = _BUDGET

    def complete(
        self, messages: Sequence[str], calls: Sequence[EmittedCall], content: str = "", reasoning: str = ""
    ) -> None:
        """Take a completion: its request's messages (JSON texts), the calls it wrote and its words."""
        self._requests.append(self._program.request(messages))
        self._messages |= {message: letters for message in messages if (letters := self._program.wrote_in(message))}
        self._written.complete(tuple(self._messages), calls)
        self._completions.append(self._program.completed(content, reasoning, calls))

    def returned(self, name: str, arguments: str, result: str, emitter: Emitter) -> None:
        """Take an executed call with its result."""
        is_programs = emitter != "llm"
        self._results.append(self._program.returned(name, arguments, result, is_programs=is_programs))

    def is_echoed(self, key: CallKey) -> bool:
        """Whether the program had written the call, or all that is new in it, before the model did."""
        known = frozenset(self._reader.parameters(key.name))
        if known:  # what the tool does not take makes no other call of it
            key = CallKey(key.name, tuple(pair for pair in key.arguments if pair[0] in known))
        spoken = self._spoken(key)
        if all(self._schemas.holds(leaf.text) for leaf in spoken.leaves):
            # it says nothing of its own, so it is an echo only of a message that is little else: prompts show examples
            most = len(spoken.name) + spoken.letters + _ALONE
            alone = [message for message, letters in self._messages.items() if letters <= most]
            return self._written.holds_alone(key, alone)
        try:
            return self._written.holds(key) or self._is_spelled(spoken) or self._is_dictated(spoken.leaves)
        except _SpentError:
            return True

    # -- name and arguments together

    def _is_spelled(self, spoken: Spoken) -> bool:
        if not spoken.leaves:
            return False
        is_free = any(map(self._is_new, spoken.leaves))
        has_verbs = is_free or any(leaf.is_number and leaf.is_telling for leaf in spoken.leaves)
        return self._is_programs(
            lambda passage: (
                self._spells(passage, spoken, is_free=is_free)
                or (
                    has_verbs
                    and (is_free or not _offers_others(passage, spoken))
                    and any(self._spells_verb(passage, spoken, verb) for verb in spoken.verbs)
                )
            ),
            lambda passage: (
                self._spells(passage, spoken, is_free=True)
                or any(self._spells_verb(passage, spoken, verb) for verb in spoken.verbs)
            ),
        )

    def _spells(self, passage: Passage, spoken: Spoken, *, is_free: bool) -> bool:
        count = 1 + len(spoken.leaves)
        for start, words in self._hulls(passage, spoken, spoken.name):
            foreign = _foreign(words, spoken.expected, spoken.letters + len(spoken.name))
            is_named = is_free or all(set(parameter) <= set(words) for parameter in spoken.parameters)
            is_first = passage.text.startswith(spoken.name, start)
            if foreign <= (_LOOSE * count if is_named else _TIGHT * count if is_first else _NONE):
                return True
        return False

    def _spells_verb(self, passage: Passage, spoken: Spoken, verb: str) -> bool:
        expected = spoken.expected | {verb}
        return any(
            passage.text.startswith(verb, start)
            and _foreign(words, expected, spoken.letters + len(verb)) <= _TIGHT * (1 + len(spoken.leaves))
            for start, words in self._hulls(passage, spoken, verb)
        )

    def _hulls(self, passage: Passage, spoken: Spoken, name: str) -> Iterator[tuple[int, Words]]:
        """Every shortest stretch that holds the name and all values: where it begins, and its words."""
        named = self._find(passage, name)
        if not named:
            return
        stood = [(named, len(name))]
        for leaf in spoken.leaves:
            places = self._places(passage, leaf)
            if places == ():
                return
            if places is not None:
                stood.append((places, len(leaf.text)))
        for start, end in self._windows(stood, PASSAGE):
            first, last = bisect_left(passage.offsets, start), bisect_left(passage.offsets, end)
            self._spend(_PLACE_COST + _WORD_COST * (last - first))
            yield start, passage.words[first:last]

    # -- values alone

    def _is_dictated(self, leaves: Collection[Leaf]) -> bool:
        new = [leaf for leaf in leaves if self._is_new(leaf)]
        is_much = len(new) > 1 and sum(len(leaf.text) for leaf in new) >= _TELLING_TOGETHER
        if not is_much and not any(leaf.is_telling for leaf in new):
            return False
        return any(self._stand_together(passage, new) for passage in self._requests)

    def _stand_together(self, passage: Passage, leaves: Sequence[Leaf]) -> bool:
        stood = []
        for leaf in leaves:
            places = self._places(passage, leaf)
            if places == ():
                return False
            if places is not None:
                stood.append((places, len(leaf.text)))
        return not stood or any(True for _ in self._windows(stood, PASSAGE))

    def _is_new(self, leaf: Leaf) -> bool:
        """Whether the program wrote the value first, and neither the query nor a result nor the schemas gave it."""
        if not leaf.may_be_new or self._wished.issuperset(map(_stem, leaf.words)) or self._query.holds(leaf.text):
            return False

        def holds(passage: Passage) -> bool:
            return self._places(passage, leaf) != ()

        return (
            self._is_programs(holds, holds)
            and not self._schemas.holds(leaf.text)
            and not any(self._stems(leaf, result) for result in self._results)
        )

    def _stems(self, leaf: Leaf, result: Passage) -> bool:
        if all(word in result.vocabulary or _stem(word) in self._wished for word in leaf.words):
            return True
        return self._find(result, leaf.text) != ()

    # -- searching

    def _is_programs(self, sent: Callable[[Passage], bool], said: Callable[[Passage], bool]) -> bool:
        """Whether a request held it, as `sent` tells, and no completion before that request, as `said` tells."""
        first = next((number for number, passage in enumerate(self._requests) if sent(passage)), None)
        return first is not None and not any(map(said, self._completions[:first]))

    def _places(self, passage: Passage, leaf: Leaf) -> Places | None:
        """Where the value stands, also torn apart by a little markup; None when everywhere."""
        found = self._find(passage, leaf.text)
        if found != () or len(leaf.words) < 2:
            return found
        stood = []
        for word in set(leaf.words):
            places = self._find(passage, word)
            if not places:
                return ()
            stood.append((places, len(word)))
        longest = len(leaf.text) + _SPLIT_CHARS * len(leaf.words)
        return tuple(start for start, _ in self._windows(stood, longest))

    def _find(self, passage: Passage, needle: str) -> Places | None:
        key = (id(passage), needle)
        if key not in self._found:
            self._spend(len(passage.text))
            self._found[key] = passage.find(needle, _PLACES_MAX)
        return self._found[key]

    def _windows(self, stood: Sequence[tuple[Places, int]], longest: int) -> Iterator[tuple[int, int]]:
        """Every shortest stretch of at most `longest` that holds a place of each."""
        self._spend(_PLACE_COST * sum(len(places) for places, _ in stood))
        rows = sorted(
            (place + length, place, index) for index, (places, length) in enumerate(stood) for place in places
        )
        latest: dict[int, int] = {}
        for end, place, index in rows:
            latest[index] = max(place, latest.get(index, place))
            if len(latest) == len(stood) and end - (start := min(latest.values())) <= longest:
                yield start, end

    def _spend(self, characters: int) -> None:
        self._budget -= characters
        if self._budget < 0:
            raise _SpentError

    def _spoken(self, key: CallKey) -> Spoken:
        leaves: dict[str, Leaf] = {}
        expected = set(_STRUCTURE)
        for parameter, spelled in key.arguments:
            expected.update(words_of(parameter))
            for part in _SEPARATOR.split(spelled):
                name, is_member, value = part.rpartition(_KEY)
                expected.update(words_of(name) if is_member else ())
                leaves |= {leaf.text: leaf for leaf in _leaves(words_of(value))}
        kept = sorted(leaves.values(), key=lambda leaf: (-len(leaf.text), leaf.text))[:_LEAVES_MAX]
        name = words_of(key.name)
        expected.update(name, *(leaf.words for leaf in kept), *map(words_of, self._reader.parameters(key.name)))
        verb = name[0] if name else ""
        return Spoken(
            name="".join(name),
            verbs=_VERBS.get(verb, (verb,) if verb else ()),
            leaves=tuple(kept),
            parameters=tuple(words_of(parameter) for parameter, _ in key.arguments),
            expected=frozenset(expected),
        )


@lru_cache(maxsize=8)
def _passage(text: str) -> Passage:
    """The words of a profile's schemas, which every episode asks for."""
    return Passage(words_of(text))


def _leaves(words: Words) -> Iterator[Leaf]:
    """A value as one leaf; numbers in a row, such as a range, one by one."""
    if len(words) > 1 and all(word.isdecimal() for word in words):
        yield from (Leaf((word,), word) for word in words)
    elif words:
        yield Leaf(words, "".join(words))


def _offers_others(passage: Passage, spoken: Spoken) -> bool:
    """Whether ids beside the call's own stand there: a list to choose from dictates none of them."""
    own = {word for leaf in spoken.leaves for word in leaf.words}
    ids = (word for word in passage.vocabulary if word.isdecimal() and len(word) >= _TELLING_DIGITS)
    return any(word not in own for word in ids)


def _foreign(words: Words, expected: Collection[str], letters: int) -> int:
    """How many letters of a stretch belong neither to the call, which has `letters`, nor to how calls are written."""
    lengths = [_BREAK_CHARS if word == Passage.BREAK else len(word) for word in words]
    unexpected = sum(length for word, length in zip(words, lengths, strict=True) if word not in expected)
    return min(unexpected, sum(lengths) - letters)  # letters set apart are no expected words


def _stem(word: str) -> str:
    return word.removesuffix("s") if len(word) > 3 else word
