"""Whether the program had written a call into a request before the model wrote it: the echoes since `emission/2`.

Pure, and bounded: searches of one episode have a budget, and a text that asks for more than it counts as
holding every call. Where a call stands in the program's text, and which of its values are new, is published in
`harness/EMISSION.md`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache

import msgspec

from harness.emission.call_identity import CallKey
from harness.emission.call_reader import CallReader
from harness.emission.first_version import StandingCalls
from harness.emission.program_text import PASSAGE, ProgramText, Seams
from harness.emission.spoken import STRUCTURE, TELLING_DIGITS, Leaf, Spoken, spoken_of
from harness.emission.wording import Passage, Words, words_of
from harness.trace import EmittedCall, Emitter

_PLACES_MAX = 1_000  # of one value in one request, beyond which it counts as standing everywhere
_BREAK_CHARS = 16  # what a break counts for among foreign words
_LOOSE, _TIGHT, _NONE = 16, 6, 2  # letters of foreign words for the call and for each value; in all, in no order
_ALONE = 100  # letters around a call without a value of its own
_SPLIT_CHARS = 2  # of foreign words for each word of a value that markup tore apart
_ROWS_MIN, _GAP_CHARS = 3, 60  # words of a value that stands word by word in rows; letters between two of them
_TELLING_TOGETHER = 12  # letters and digits of several values that only together show it
_COPULAS = frozenset(("as", "be", "being", "equal", "equals", "is", "of", "on", "one", "set", "to", "with"))
_LINKS = frozenset(("and", "for", "or"))  # before a value of the program's own
_BUDGET = 1 << 29  # characters searched in one episode; a place counts for many
_PLACE_COST = 4_096
_WORD_COST = 256  # of a stretch that is read word by word

Places = tuple[int, ...]


class _SpentError(Exception):
    """The episode's texts ask for more searching than any honest ones."""


class Dictation:
    """The echoes of one episode."""

    def __init__(self, reader: CallReader, query: str) -> None:
        self._reader = reader
        self._program = ProgramText(query)
        self._schemas = _schemas_of(reader.schemas)
        self._query = Passage(words_of(query))
        self._wished = frozenset(map(_stem, self._query.words))
        self._requests: list[tuple[Passage, Seams]] = []
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
        own = self._program.request(messages)
        self._requests.append((own, self._program.seams()))
        self._messages |= {message: letters for message in messages if (letters := self._program.wrote_in(message))}
        self._written.complete(tuple(self._messages), calls)
        self._completions.append(self._program.completed(content, reasoning, calls))

    def returned(self, name: str, arguments: str, result: str, emitter: Emitter) -> None:
        """Take an executed call with its result."""
        is_programs = emitter != "llm"
        self._results.append(self._program.returned(name, arguments, result, is_programs=is_programs))

    def is_echoed(self, key: CallKey) -> bool:
        """Whether the program had written the call, or all that is new in it, before the model did."""
        known = self._reader.parameters(key.name)
        if known:  # what the tool does not take makes no other call of it
            key = CallKey(key.name, tuple(pair for pair in key.arguments if pair[0] in known))
        spoken = spoken_of(key, known)
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
        # the next page of a search that the model wrote is no other call
        weighty = tuple(leaf for leaf in spoken.leaves if leaf.may_be_new)
        original = msgspec.structs.replace(spoken, leaves=weighty or spoken.leaves)
        said = {word for leaf in spoken.leaves for word in leaf.words}
        has_verbs = is_free or any(leaf.is_number and leaf.is_telling for leaf in spoken.leaves)
        return self._is_programs(
            lambda own, seams: (
                self._spells(own, spoken, is_free=is_free)
                or (
                    has_verbs
                    # a list of ids to choose from dictates none of them
                    and (
                        is_free
                        or all(
                            word in said or not word.isdecimal() or len(word) < TELLING_DIGITS
                            for word in own.vocabulary
                        )
                    )
                    and any(self._spells_verb(own, spoken, verb) for verb in spoken.verbs)
                )
                or self._quotes(seams, spoken)
            ),
            lambda completion: (
                self._spells(completion, original, is_free=True)
                or any(self._spells_verb(completion, original, verb) for verb in spoken.verbs)
            ),
        )

    def _spells(self, passage: Passage, spoken: Spoken, *, is_free: bool) -> bool:
        count = 1 + len(spoken.leaves)
        for first, last in self._hulls(passage, spoken, spoken.name):
            words = passage.words[first:last]
            foreign = _foreign(words, spoken.expected, spoken.letters + len(spoken.name))
            if foreign <= (_LOOSE * count if is_free else _NONE):
                return True
            if all(set(parameter) <= set(words) for parameter in spoken.parameters):
                # a signature beside the shopper's words also holds the parameters' names, before none of their values
                is_call = self._are_announced(passage, spoken, _announcing(spoken, spoken.name), (first, last))
                most = _LOOSE * count if is_call else _TIGHT
            else:
                most = _TIGHT * count if passage.text.startswith(spoken.name, passage.offsets[first]) else _NONE
            if foreign <= most:
                return True
        return False

    def _spells_verb(self, passage: Passage, spoken: Spoken, verb: str) -> bool:
        expected = spoken.expected | {verb}
        return any(
            passage.text.startswith(verb, passage.offsets[first])
            and _foreign(passage.words[first:last], expected, spoken.letters + len(verb))
            <= _TIGHT * (1 + len(spoken.leaves))
            for first, last in self._hulls(passage, spoken, verb)
        )

    def _quotes(self, seams: Seams, spoken: Spoken) -> bool:
        """Whether the call is spelled with values that the program quoted, each right after what announces it: its
        parameter's name, even in another paragraph than the tool's; else, in one paragraph, the tool's or a value.
        A tool's name with another right before or after it stands in a list and announces nothing."""
        others = tuple(name for tool in self._reader.names if (name := "".join(words_of(tool))) != spoken.name)
        for first, last in self._hulls(seams, spoken, spoken.name):
            start = seams.offsets[first]
            is_first = seams.text.startswith(spoken.name, start)
            is_listed = is_first and (
                seams.text.endswith(others, 0, start) or seams.text.startswith(others, start + len(spoken.name))
            )
            if is_listed or not seams.is_joined(first, last):
                continue
            words = seams.words[first:last]
            foreign = _foreign(words, spoken.expected | _COPULAS, spoken.letters + len(spoken.name))
            most = _TIGHT if is_first else _NONE
            if foreign <= most and self._are_announced(seams, spoken, _announcing(spoken, spoken.name), (first, last)):
                return True
            foreign -= _BREAK_CHARS * (Passage.BREAK in words)
            if foreign <= most and self._are_announced(seams, spoken, _announcing(spoken), (first, last)):
                return True
        return False

    def _are_announced(
        self, passage: Passage, spoken: Spoken, announcing: tuple[str, ...], hull: tuple[int, int]
    ) -> bool:
        """Whether every value in the hull, of seams every quoted one, follows one of the words that announce it."""
        fill = STRUCTURE.union(_COPULAS, words_of(spoken.name), *spoken.parameters)
        if not isinstance(passage, Seams):
            fill |= _LINKS

        def is_announced(start: int, end: int) -> bool:
            if isinstance(passage, Seams) and not any(passage.runs[start:end]):
                return True
            while not passage.text.endswith(announcing, 0, passage.offsets[start]):
                start -= 1
                if start < 0 or passage.words[start] not in fill:
                    return False
            return True

        return all(
            any(is_announced(*stretch) for stretch in self._stretches(passage, leaf, *hull)) for leaf in spoken.leaves
        )

    def _stretches(self, passage: Passage, leaf: Leaf, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The value's places, as words, between two words."""
        places = self._places(passage, leaf) or ()
        begin, end = passage.offsets[first], passage.offsets[last]
        for place in places[bisect_left(places, begin) : bisect_left(places, end)]:
            self._spend(_PLACE_COST)
            after = place + len(leaf.text)
            if after <= end:
                yield bisect_left(passage.offsets, place), bisect_left(passage.offsets, after)

    def _hulls(self, passage: Passage, spoken: Spoken, name: str) -> Iterator[tuple[int, int]]:
        """Every shortest stretch that holds the name and all values: its first word, and the one after its last."""
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
        for start, end in self._windows(stood, PASSAGE + spoken.letters):
            end = min(end, len(passage.text))  # a value that says a word twice may stand torn apart with it said once
            first, last = bisect_left(passage.offsets, start), bisect_left(passage.offsets, end)
            self._spend(_PLACE_COST + _WORD_COST * (last - first))
            yield first, last

    # -- values alone

    def _is_dictated(self, leaves: Collection[Leaf]) -> bool:
        new = [leaf for leaf in leaves if self._is_new(leaf)]
        letters = sum(len(leaf.text) for leaf in new)
        if any(leaf.is_telling and 2 * len(leaf.text) >= letters for leaf in new):
            return True
        is_much = len(new) > 1 and letters >= _TELLING_TOGETHER
        if not is_much and not any(leaf.is_telling for leaf in new):
            return False
        return any(self._stand_together(own, new) for own, _ in self._requests)

    def _stand_together(self, passage: Passage, leaves: Sequence[Leaf]) -> bool:
        stood = []
        for leaf in leaves:
            places = self._places(passage, leaf)
            if places == ():
                return False
            if places is not None:
                stood.append((places, len(leaf.text)))
        return not stood or any(True for _ in self._windows(stood, PASSAGE + sum(len(leaf.text) for leaf in leaves)))

    def _is_new(self, leaf: Leaf) -> bool:
        """Whether the program wrote the value first, and neither the query nor a result nor the schemas gave it."""
        if not leaf.may_be_new or self._wished.issuperset(map(_stem, leaf.words)) or self._query.holds(leaf.text):
            return False

        def holds(passage: Passage) -> bool:
            return self._places(passage, leaf) != ()

        def is_joined(seams: Seams) -> bool:
            """Put together from a recorded passage and other words."""
            return any(seams.is_joined(*stretch) for stretch in self._stretches(seams, leaf, 0, len(seams.words)))

        unwished = {word for word in leaf.words if _stem(word) not in self._wished}
        return (
            self._is_programs(lambda own, seams: holds(own) or is_joined(seams), holds)
            and not self._schemas.holds(leaf.text)
            and not any(
                unwished <= result.vocabulary or self._find(result, leaf.text) != () for result in self._results
            )
        )

    # -- searching

    def _is_programs(self, sent: Callable[[Passage, Seams], bool], said: Callable[[Passage], bool]) -> bool:
        """Whether a request held it, as `sent` tells, and no completion before that request, as `said` tells."""
        first = next((number for number, texts in enumerate(self._requests) if sent(*texts)), None)
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
        return tuple(start for start, _ in self._windows(stood, longest)) or self._rows(passage, leaf)

    def _rows(self, passage: Passage, leaf: Leaf) -> Places:
        """Where the words of a value stand in their order with the same words between each two, numbers aside: one in
        each row, cell or clause."""
        if len(leaf.words) < _ROWS_MIN:
            return ()
        stood = [self._find(passage, word) or () for word in leaf.words]
        self._spend(_PLACE_COST * sum(map(len, stood)))
        found = []
        for start in stood[0]:
            place, between = start, set[Words]()
            for word, places in zip(leaf.words, stood[1:], strict=False):
                end = place + len(word)
                following = bisect_left(places, end)
                if following == len(places) or places[following] - end > _GAP_CHARS:
                    break
                place = places[following]
                between.add(_without_numbers(passage, end, place))
                if len(between) > 1:
                    break
            else:
                found.append(start)
        return tuple(found)

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


@lru_cache(maxsize=8)
def _schemas_of(text: str) -> Passage:
    """The words of a profile's schemas, which every episode asks for."""
    return Passage(words_of(text))


def _announcing(spoken: Spoken, *names: str) -> tuple[str, ...]:
    """What announces a value: its parameter's name, the value before it in a list, and `names`."""
    return (*names, *map("".join, spoken.parameters), *(leaf.text for leaf in spoken.leaves))


def _foreign(words: Words, expected: Collection[str], letters: int) -> int:
    """How many letters of a stretch belong neither to the call, which has `letters`, nor to how calls are written."""
    lengths = [_BREAK_CHARS if word == Passage.BREAK else len(word) for word in words]
    unexpected = sum(length for word, length in zip(words, lengths, strict=True) if word not in expected)
    return min(unexpected, sum(lengths) - letters)  # letters set apart are no expected words


def _without_numbers(passage: Passage, start: int, end: int) -> Words:
    """The words from one offset to another, without digits."""
    first, last = bisect_left(passage.offsets, start), bisect_left(passage.offsets, end)
    return tuple(bare for word in passage.words[first:last] if (bare := word.strip("0123456789")))


def _stem(word: str) -> str:
    return word.removesuffix("s") if len(word) > 3 else word
