"""Who wrote a tool call: the model, the prompt, or the Python around them. A published rule over recorded bytes.

For each dispatched call, in this order:
  echoed  the program had written the call, or what is new in it, into a request before the model wrote it;
  llm     the tool reads of it what it reads of one call of the latest completion that no earlier dispatch has used up;
  code    otherwise.
What counts as written by the program, and what this rule cannot see, is published in `harness/EMISSION.md`. Pure, and
bounded: beyond a budget of searching every call counts as an echo.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import chain

import msgspec
import orjson

from harness.emission.call_reader import CallKey, CallReader, searched
from harness.emission.wording import Passage, Words, words_of
from harness.trace import Completion, EmittedCall, Emitter, EvaluationBody, ToolCall

PASSAGE = 600  # letters and digits that are read as one passage

_STRUCTURE = frozenset(
    ("action", "args", "argument", "arguments", "call", "const", "enum", "function", "id", "input", "invoke", "json",
     "key", "name", "param", "parameter", "parameters", "properties", "string", "tool", "type", "value", "values",
     "yaml")
)  # fmt: skip
_COPULAS = frozenset(("as", "be", "being", "equal", "equals", "is", "of", "on", "one", "set", "to", "with"))
_LOOSE, _TIGHT = 16, 6  # letters of foreign words for the name and for each value
_SEPARATOR = re.compile(r"[,;|\n]")  # of values in a list
_END = re.compile(r"\n\s*\n|(?<=[.!?;)])[^\S\n]*+\n")  # of a paragraph; or of a line that ends a sentence
_LABEL = re.compile(r"^([^\S\n]*)Q(?=\s?[:.)])", re.MULTILINE)  # as in "Q: ... A: ...", which names no parameter
_LEAVES_MAX = 64  # of one call; the longest are looked for
_PLACES_MAX = 1_000  # of one value in one text
_NEW_MIN = 3  # bytes of a value that may be new
_TELLING, _TELLING_WORD = 6, 10  # bytes of a value that by itself shows whose a call is; of one that is one word
_TELLING_TOGETHER = 12  # letters and digits of several values that only together show it
_ROWS_MIN, _GAP_CHARS = 3, 60  # words of a value that stands word by word in rows; characters between two of them
_BUDGET = 1 << 29  # characters searched in one episode; a place counts for many
_PLACE_COST, _WORD_COST = 4_096, 256


class _SpentError(Exception):
    """The episode's texts ask for more searching than any honest ones."""


class Leaf(msgspec.Struct, frozen=True):
    """One value in a call's arguments, as words and run together."""

    words: Words
    text: str

    @property
    def may_be_new(self) -> bool:
        """Long enough to stem from somebody."""
        return len(self.text.encode()) >= _NEW_MIN

    @property
    def is_telling(self) -> bool:
        """So long that nobody writes it by chance."""
        is_word = len(self.words) == 1 and not self.text.isdecimal()
        return len(self.text.encode()) >= (_TELLING_WORD if is_word else _TELLING)


class CallText(msgspec.Struct, frozen=True):
    """A call as prose, markup or code would hold it: its tool's name, its values, and the words between them."""

    name: Leaf
    leaves: tuple[Leaf, ...]
    announcing: tuple[str, ...]  # what a value follows: its tool's or parameter's name, or another value
    fill: frozenset[str]  # words that may stand between
    expected: frozenset[str]


class RequestText(Passage):
    """What a request was the first to send; `ends` are places of words that begin a paragraph, or follow a sentence."""

    def __init__(self, words: Sequence[str], ends: frozenset[int]) -> None:
        super().__init__(words)
        self.ends = ends

    @cached_property
    def bare(self) -> str:
        """The words with spaces between, without digits."""
        return " ".join(bare for word in self.words if (bare := word.strip("0123456789\n")))


class ProgramText:
    """The text of an episode's requests, each message once; linear in what is sent."""

    def __init__(self) -> None:
        self._read: dict[str, RequestText] = {}  # by message
        self._known: dict[str, Words] = {}  # of results, which messages repeat

    def request(self, messages: Sequence[str]) -> RequestText:
        """What is new in a request (JSON texts of its messages), each message with the passage before it."""
        words: list[str] = []
        ends: list[int] = []
        parts: list[tuple[RequestText, int]] = []  # each with its first word
        used: set[str] = set()  # a message that was read stands before a new one once, however often it is sent
        was_read = False
        for place, message in enumerate(messages):
            is_read = message in self._read
            if was_read and not is_read and (before := messages[place - 1]) not in used:
                used.add(before)
                tail = self._words_in(before)
                parts.append((tail, bisect_left(tail.offsets, len(tail.text) - PASSAGE)))
            if not is_read:
                parts.append((self._words_in(message), 0))
            was_read = is_read
        for part, first in parts:
            ends.extend(len(words) + end - first for end in part.ends if end >= first)
            words.extend((*part.words[first:], Passage.BREAK))
        return RequestText(words, frozenset(ends))

    def _words_in(self, message: str) -> RequestText:
        """Every text of a message, in its order."""
        if message not in self._read:
            words: list[str] = []
            ends: set[int] = set()
            try:
                stack: list[object] = [orjson.loads(message)]
            except orjson.JSONDecodeError:
                stack = [message]
            while stack:
                value = stack.pop()
                if isinstance(value, str):
                    said = _LABEL.sub(r"\1Question", value) if "Q" in value else value
                    for paragraph in _END.split(said) if "\n" in said else [said]:
                        words += self._known.get(paragraph) or words_of(paragraph)
                        ends.add(len(words))
                elif isinstance(value, list):
                    stack.extend(reversed(value))
                elif isinstance(value, dict):
                    stack.extend(item for key, item in reversed(value.items()) if key not in ("role", "type"))
            self._read[message] = RequestText(words, frozenset(ends))
        return self._read[message]

    def result_words(self, name: str, arguments: str, result: str, emitter: Emitter) -> Words:
        """The words of a tool's result, without those of its call where the model did not write it."""
        words = self._known[result] = words_of(result)
        given = set(words_of(f"{name} {arguments}")) if emitter != "llm" else ()
        return tuple(word for word in words if word not in given) if given else words


def completion_words(content: str, reasoning: str, calls: Sequence[EmittedCall]) -> Words:
    """The words of a completion and of the calls that it wrote."""
    return words_of("\n".join((reasoning, content, *(f"{call.name} {call.arguments}" for call in calls))))


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one dispatched call. `call_id` names the matched call of the completion when `llm`."""

    emitter: Emitter
    call_id: str = ""


class Emission:
    """Attributes the dispatched calls of one episode, fed with its completions and results in order."""

    def __init__(self, reader: CallReader, query: str = "") -> None:
        self._reader = reader
        # what may be executed as each call of the latest completion, and that call
        self._unconsumed: list[tuple[frozenset[CallKey], EmittedCall]] = []
        self._program = ProgramText()
        self._schemas = _said(reader.schemas)
        self._query = Passage(words_of(query))
        self._wished = frozenset(map(_stem, self._query.words))
        self._requests: list[RequestText] = []
        self._completions: list[Passage] = []
        self._results: list[Passage] = []
        self._found: dict[tuple[int, str], tuple[int, ...]] = {}
        self._budget = _BUDGET

    def complete(
        self, messages: Sequence[str], calls: Sequence[EmittedCall], content: str = "", reasoning: str = ""
    ) -> None:
        """Take a completion: its request's messages (JSON texts), the calls it wrote and its words."""
        self._requests.append(self._program.request(messages))
        self._completions.append(Passage(completion_words(content, reasoning, calls)))
        self._unconsumed = [(self._reader.accepted(call.name, call.arguments), call) for call in calls]

    def attribute(self, name: str, arguments: str) -> Attribution:
        """The emitter of one dispatched call. `arguments` is JSON text."""
        key = self._reader.key(name, arguments)
        place = next((index for index, (accepted, _) in enumerate(self._unconsumed) if key in accepted), None)
        call = None if place is None else self._unconsumed.pop(place)[1]
        # as it was sent, as it is searched for and as the model wrote it: a tool reads the same of all
        spellings = {(name, arguments), (name, searched(arguments))}
        if call is not None:
            spellings.add((call.name, call.arguments))
        if any(self._is_echoed(*spelling) for spelling in sorted(spellings)):
            return Attribution(emitter="echoed")
        if call is not None:
            return Attribution(emitter="llm", call_id=call.call_id)
        return Attribution(emitter="code")

    def returned(self, name: str, arguments: str, result: str, emitter: Emitter) -> None:
        """Take what an attributed call returned."""
        self._results.append(Passage(self._program.result_words(name, arguments, result, emitter)))

    def _is_echoed(self, name: str, arguments: str) -> bool:
        """Whether the program had written the call (JSON text of its arguments), or all that is new in it, before the
        model did."""
        spoken = self._spoken(name, arguments)
        try:
            return any(not self._schemas.holds(leaf.text) for leaf in spoken.leaves) and (
                self._is_dictated(spoken.leaves) or self._is_spelled(spoken)
            )
        except _SpentError:
            return True

    def _spoken(self, name: str, arguments: str) -> CallText:
        given = self._reader.said(name, arguments)
        leaves: dict[str, Leaf] = {}
        parameters = list(map(words_of, given))
        expected = set(chain(_STRUCTURE, words_of(name), *map(words_of, self._reader.parameters(name)), *parameters))
        for value in given.values():
            for part in chain.from_iterable(map(_SEPARATOR.split, _texts_in(value, expected))):
                words = words_of(part)
                # numbers in a row, such as a range, are values one by one
                for one in [(word,) for word in words] if all(map(str.isdecimal, words)) else [words]:
                    leaves["".join(one)] = Leaf(one, "".join(one))
        kept = sorted(leaves.values(), key=lambda leaf: (-len(leaf.text), leaf.text))[:_LEAVES_MAX]
        text = "".join(words_of(name))
        return CallText(
            name=Leaf(words_of(name), text),
            leaves=tuple(kept),
            announcing=(text, *map("".join, parameters), *(leaf.text for leaf in kept)),
            fill=_STRUCTURE.union(_COPULAS, words_of(name), *parameters),
            expected=frozenset(expected.union(*(leaf.words for leaf in kept))),
        )

    # -- values alone

    def _is_dictated(self, leaves: Collection[Leaf]) -> bool:
        new = [leaf for leaf in leaves if self._is_new(leaf)]
        return any(leaf.is_telling for leaf in new) or (
            len(new) > 1
            and sum(len(leaf.text) for leaf in new) >= _TELLING_TOGETHER
            and any(True for sent in self._requests for _ in self._hulls(sent, new))
        )

    def _is_new(self, leaf: Leaf) -> bool:
        """Whether the program wrote the value first, and neither the query nor a result nor the schemas gave it."""
        if not leaf.may_be_new or self._wished.issuperset(map(_stem, leaf.words)) or self._query.holds(leaf.text):
            return False
        unwished = {word for word in leaf.words if _stem(word) not in self._wished}
        return (
            self._is_programs(
                lambda sent: bool(self._find(sent, leaf.text)) or self._stands_in_rows(sent, leaf),
                lambda said: bool(self._find(said, leaf.text)),
            )
            and not self._schemas.holds(leaf.text)
            and not any(unwished <= result.vocabulary or self._find(result, leaf.text) for result in self._results)
        )

    def _stands_in_rows(self, sent: RequestText, leaf: Leaf) -> bool:
        """Whether the words of a value stand in their order with the same words between each two, numbers aside."""
        words = list(map(re.escape, leaf.words))
        if len(words) < _ROWS_MIN or not sent.vocabulary.issuperset(leaf.words):
            return False
        self._spend(len(sent.bare))
        between = rf"( (?:.{{0,{_GAP_CHARS}}} )??)"
        return re.search(rf"(?<!\S){words[0]}{between}" + r"(?:\1)".join(words[1:]) + r"(?!\S)", sent.bare) is not None

    # -- name and values together

    def _is_spelled(self, spoken: CallText) -> bool:
        new = frozenset(leaf.text for leaf in spoken.leaves if self._is_new(leaf))
        # the next page of a search that the model wrote is no other call
        weighty = tuple(leaf for leaf in spoken.leaves if leaf.may_be_new) or spoken.leaves
        parts, most = (spoken.name, *weighty), _LOOSE * (1 + len(weighty))
        return self._is_programs(
            lambda sent: any(
                self._spells(sent, spoken, new, *hull) for hull in self._hulls(sent, (spoken.name, *spoken.leaves))
            ),
            lambda said: any(
                _foreign(said.words[first:last], spoken, parts) <= most for first, last in self._hulls(said, parts)
            ),
        )

    def _spells(self, sent: RequestText, spoken: CallText, new: Collection[str], first: int, last: int) -> bool:
        """Whether a stretch that holds the name and all values is the call: every value that is not new stands right
        after what announces it, and few words belong to no call. A tool's name beside another's stands in a list."""
        most = _LOOSE * (1 + len(spoken.leaves)) if new else _TIGHT
        if _foreign(sent.words[first:last], spoken, (spoken.name, *spoken.leaves)) > most:
            return False
        start, end = sent.offsets[first], sent.offsets[last]
        name = spoken.name.text
        if sent.text.startswith(name, start):
            others = tuple(other for tool in self._reader.names if (other := "".join(words_of(tool))) != name)
            if sent.text.endswith(others, 0, start) or sent.text.startswith(others, start + len(name)):
                return False
        return all(
            leaf.text in new
            or any(
                start <= place < end and _is_announced(sent, spoken, bisect_left(sent.offsets, place))
                for place in self._find(sent, leaf.text)
            )
            for leaf in spoken.leaves
        )

    # -- searching

    def _is_programs(self, sent: Callable[[RequestText], bool], said: Callable[[Passage], bool]) -> bool:
        """Whether a request held it, as `sent` decides, and no completion before that request, as `said` decides."""
        first = next((number for number, request in enumerate(self._requests) if sent(request)), None)
        return first is not None and not any(map(said, self._completions[:first]))

    def _find(self, passage: Passage, needle: str) -> tuple[int, ...]:
        """Where it stands as whole words."""
        key = (id(passage), needle)
        if (found := self._found.get(key)) is None:
            self._spend(len(passage.text))
            if (found := passage.find(needle, _PLACES_MAX)) is None:
                raise _SpentError
            self._found[key] = found
        return found

    def _hulls(self, passage: Passage, parts: Sequence[Leaf]) -> Iterator[tuple[int, int]]:
        """Every shortest stretch of a passage that holds each part: its first word, and the one after its last."""
        rows = []
        for index, part in enumerate(parts):
            places = self._find(passage, part.text)
            if not places:
                return
            rows += [(place + len(part.text), place, index) for place in places]
        self._spend(_PLACE_COST * len(rows))
        latest: dict[int, int] = {}
        longest = PASSAGE + sum(len(part.text) for part in parts)
        for end, place, index in sorted(rows):
            latest[index] = max(place, latest.get(index, place))
            if len(latest) == len(parts) and end - (start := min(latest.values())) <= longest:
                first, last = bisect_left(passage.offsets, start), bisect_left(passage.offsets, end)
                self._spend(_PLACE_COST + _WORD_COST * (last - first))
                yield first, last

    def _spend(self, characters: int) -> None:
        self._budget -= characters
        if self._budget < 0:
            raise _SpentError


def _texts_in(value: object, names: set[str]) -> Iterator[str]:
    """The texts of a decoded argument, also of JSON in its text; words of the names of its members go to `names`."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str) and one.lstrip()[:1] in ("[", "{"):
            with suppress(orjson.JSONDecodeError):
                one = orjson.loads(one)
        if isinstance(one, dict):
            names.update(chain.from_iterable(map(words_of, one)))
            stack.extend(inner or name for name, inner in one.items())  # of an empty member the name is all it says
        elif isinstance(one, list):
            stack.extend(one)
        elif one is not None:
            yield str(one)


def _foreign(words: Words, spoken: CallText, parts: Sequence[Leaf]) -> int:
    """How many letters of a stretch that holds the parts belong neither to the call nor to how calls are written."""
    unexpected = sum(len(word) for word in words if word not in spoken.expected and word not in _COPULAS)
    return min(unexpected, sum(map(len, words)) - sum(len(part.text) for part in parts))  # letters may be set apart


def _is_announced(sent: RequestText, spoken: CallText, place: int) -> bool:
    """Whether a word follows what announces a value, in one paragraph and with only words of calls between."""
    while place and place not in sent.ends:
        if sent.text.endswith(spoken.announcing, 0, sent.offsets[place]):
            return True
        place -= 1
        if sent.words[place] not in spoken.fill:
            break
    return False


def _stem(word: str) -> str:
    return word.removesuffix("s") if len(word) > 3 else word


reader_of = lru_cache(maxsize=16)(CallReader)  # of a profile's schemas, once a process
_said = lru_cache(maxsize=16)(lambda text: Passage(words_of(text)))  # these schemas' words
EMISSION = "emission/1"  # the version of the rule, which a body names


def emitters_of(body: EvaluationBody, reader: CallReader) -> tuple[Emitter, ...]:
    """The emitters of a body's calls, attributed again. `reader` knows the run's tools."""
    emission = Emission(reader, body.query)
    emitters: list[Emitter] = []
    for event in body.events:
        if isinstance(event, Completion):
            messages = [body.messages[index] for index in event.request]
            emission.complete(messages, event.calls, event.content, event.reasoning)
        elif isinstance(event, ToolCall):
            emitters.append(emission.attribute(event.name, event.arguments).emitter)
            emission.returned(event.name, event.arguments, event.result, emitters[-1])
    return tuple(emitters)


def is_agentic(
    calls: Sequence[ToolCall], recommended: tuple[str, ...] | None, recommending: int | None, *, minimum_e4: int
) -> bool:
    """True when the model wrote at least `minimum_e4` of all calls, and those that surfaced and recommended the answer.

    `recommending` is the index of the call whose ids count: a later one that the tools could not read changed nothing.
    An episode without calls is not agentic; one that recommended nothing is judged by the share alone; a recommended id
    that no call surfaced did not come from the model's own search.
    """
    by_model = sum(call.emitter == "llm" for call in calls)
    if not calls or by_model * 10_000 < minimum_e4 * len(calls):
        return False
    if recommended is None:
        return True
    surfacing = {surfaced.product_id: call for call in calls for surfaced in call.surfaced}
    deciding = [call for call in calls if call.index == recommending]
    deciding += [surfacing[i] for i in recommended if i in surfacing]
    return all(i in surfacing for i in recommended) and all(call.emitter == "llm" for call in deciding)
