"""The conversation of an episode from what the host recorded: completions, calls with their emitter, and results.

Pure. What the model wrote, which calls ran and what they returned is taken from events alone, in their order;
an agent's own account of them is never read. Its requests decide two things: how the dialogue opened, and whether each
completion was shown what the conversation shows before it. What it was not shown is named in `Rebuilt.lacks`. Nothing
is made up: a call that the host never ran has no result here, and the filter's pairing rule says so.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Callable, Iterator, Sequence, Set
from functools import cached_property, lru_cache

import msgspec

from arena.export.conversation import TEXT_CALL, Conversation, ExecutedCall, Turn
from foundation.errors import ArenaError
from harness.chat import ROLE_OF, Call, ChatMessage, Message, message_of
from harness.emission.call_reader import CallReader
from harness.emission.wording import words_of
from training.corpus.formats import name_calls, read_turn, split_thinking
from training.corpus.model import How, Lack, Rebuilt

_ENDING = frozenset({"recommend_product", "terminate"})  # their results tell a model nothing it did not write
_VALUES_MAX = 2_000  # of one result that are looked for one by one
_LETTERS_MAX = 2_000_000_000  # of one episode; a second or so


class _ReadCompletion(msgspec.Struct, frozen=True):
    """A completion taken apart. `calls` keep the record's ids; `is_broken`: it holds a call that nobody can read."""

    reasoning: str
    content: str
    calls: tuple[Call, ...]
    is_broken: bool


class _OwedItem(msgspec.Struct, frozen=True):
    """Something the conversation shows, which later completions ought to have been shown too."""

    lack: Lack
    text: str
    is_json: bool = False


def rebuild(talk: Conversation, query: str, tools: str) -> tuple[tuple[Message, ...], Rebuilt] | None:
    """The conversation of an episode and how it came about; None where no single conversation holds its calls.

    `query` and `tools` (an OpenAI `tools` array, JSON text) are the record's.
    """
    episode = _Rebuilding(talk, query, tools)
    chosen = episode.dialogue()
    return None if chosen is None else episode.rebuilt(chosen)


class _Rebuilding:
    """One episode while its conversation is put together."""

    def __init__(self, talk: Conversation, query: str, tools: str) -> None:
        self._all = (*talk.messages, *talk.other_messages)
        self._turns, self._query, self._tools, self._reader = talk.completions, query, tools, _reader(tools)
        self._results = {
            call.index: (self._all[call.message].content if call.message is not None else call.result) or ""
            for call in talk.calls
        }
        steps = [turn.step for turn in self._turns]
        self._calls_of: dict[int, list[ExecutedCall]] = {}  # by the completion before them, 0 before the first
        for call in talk.calls:
            before = bisect.bisect_right(steps, call.step)
            self._calls_of.setdefault(steps[before - 1] if before else 0, []).append(call)
        self._how: set[How] = set()
        self._lacks: set[Lack] = set()
        self._taken: set[str] = set()
        self._shown = [_ShownText(message) for message in self._all]
        self._where: dict[int, int] = {}  # an item that has to be shown -> the message where it was found last
        self._letters = _LETTERS_MAX  # that may still be looked through: a hostile episode must not hold up a corpus

    def _spend(self, letters: int) -> bool:
        """Whether there were so many left."""
        self._letters -= letters
        return self._letters >= 0

    def dialogue(self) -> list[Turn] | None:
        """The turns of the one dialogue that made the episode's calls. Dialogues are told apart by how they open: a
        planner and a worker have different instructions; a request that was cut or summarised keeps its own."""
        dialogues: list[list[Turn]] = []
        for turn in self._turns:
            own = next((one for one in reversed(dialogues) if self._opens_alike(one[0], turn)), None)
            if own is None:
                dialogues.append([turn])
            else:
                own.append(turn)
        calling = [
            one for one in dialogues
            if any(call.emitter != "code" for turn in one for call in self._calls_of.get(turn.step, ()))
        ]  # fmt: skip
        if len(dialogues) == 1:
            return dialogues[0]
        if len(calling) != 1:
            return None
        self._how.add("sub_dialogue")
        return calling[0]

    def rebuilt(self, turns: Sequence[Turn]) -> tuple[tuple[Message, ...], Rebuilt]:
        """The messages of the chosen turns, in order, with every call and result of the episode."""
        messages, items = self._opening(turns)
        messages += self._by_agent(self._calls_of.get(0, ()))
        following = {turn.step: after for turn, after in itertools.zip_longest(turns, turns[1:])}
        for turn in self._turns:
            if turn.step in following:
                self._look(turn, items)
                messages += self._turn(turn, items, following[turn.step])
            else:
                messages += self._by_agent(self._calls_of.get(turn.step, ()))
        return tuple(messages), Rebuilt(how=tuple(sorted({*self._how, "events"})), lacks=tuple(sorted(self._lacks)))

    def _opens_alike(self, first: Turn, later: Turn) -> bool:
        """Whether the first messages of two requests begin with the same words, half of the shorter one at least."""
        if not first.request or not later.request:
            return first.request == later.request
        if first.request[0] == later.request[0]:
            return True
        one, other = self._all[first.request[0]], self._all[later.request[0]]
        half = (min(len(one.content), len(other.content)) + 1) // 2
        return one.role == other.role and one.content[:half] == other.content[:half]

    def _opening(self, turns: Sequence[Turn]) -> tuple[list[Message], list[_OwedItem]]:
        """The messages before the first turn, as they were sent; a transcript that is sent anew each time is the
        recorded query instead. And what of these has to be in sight of every turn. What the agent claims there of turns
        and results is left out, and so is what it told the model for one turn alone."""
        messages: list[Message] = []
        items: list[_OwedItem] = []
        asked = _OwedItem("query", self._query)
        for index in turns[0].request:
            sent = self._all[index]
            role = ROLE_OF.get(sent.role)
            is_kept = all(index in turn.request for turn in turns)
            if role in ("system", "user") and is_kept:
                messages.append(Message(role=role, content=sent.content))
            elif role in ("system", "user") and self._shown[index].holds(asked, self._spend):
                self._how.add("query")
                if asked not in items:
                    messages.append(Message(role="user", content=self._query))
                    items.append(asked)
            elif role == "system":
                messages.append(Message(role=role, content=sent.content))
                items.append(_OwedItem("prompt", sent.content))
            else:
                self._how.add("asides")
        return messages, items

    def _turn(self, turn: Turn, items: list[_OwedItem], following: Turn | None) -> Iterator[Message]:
        """A completion and what the host answered to its calls, which later turns ought to have been shown. What came
        to nothing is left out: calls that never ran and were not handed on, and turns without anything else."""
        executed = list(self._calls_of.get(turn.step, ()))
        said = self._said(self._all[turn.reply], {call.call_id for call in executed if call.emitter == "llm"})
        every = [(call, self._take(call, executed)) for call in said.calls]
        ran = [(call.name, call.arguments, self._results[one.index]) for call, one in every if one is not None]
        told = [said.reasoning, said.content, *itertools.chain.from_iterable(ran)]
        pairs = [pair for pair in every if pair[1] or self._is_handed_on(pair[0], told, turn, following)]
        is_idle = all(one is None for _, one in every) and all(call.emitter == "code" for call in executed)
        if is_idle and following is None:
            pairs = every  # the end of the dialogue, where nothing was tried again
        elif is_idle and following is not None:
            words = _OwedItem("words", said.content)
            is_told = any(self._shown[at].holds(words, self._spend) for at in following.request)
            is_told = is_told and bool(said.content.strip())
            if said.is_broken or not (pairs or is_told):
                self._how.add("retries")
                yield from self._by_agent(executed)
                return
        if len(pairs) < len(every):
            self._how.add("unrun_calls")
        named = name_calls(
            [
                msgspec.structs.replace(
                    call,
                    id="" if call.id.startswith(TEXT_CALL) else call.id,
                    emitter=one.emitter if one else call.emitter or "llm",
                )
                for call, one in pairs
            ],
            self._taken,
        )
        yield Message(role="assistant", content=said.content, reasoning=said.reasoning, calls=named)
        if said.content.strip():
            items.append(_OwedItem("remarks" if named else "words", said.content))
        for call, (_, one) in zip(named, pairs, strict=True):
            items += (_OwedItem("calls", call.name), _OwedItem("calls", call.arguments, is_json=True))
            if one is not None:
                yield self._answer(one, call.id)
                if call.name not in _ENDING:
                    items.append(_OwedItem("results", self._results[one.index], is_json=True))
        yield from self._by_agent(executed)

    def _is_handed_on(self, call: Call, told: Sequence[str], turn: Turn, following: Turn | None) -> bool:
        """Whether the agent told its model of a call that never ran: name and values are in sight more often than the
        turn's other texts (`told`) explain, and it is no call that its tool must refuse. Then it may have been
        answered, by what no record has."""
        if following is None:
            return False
        required, known = _parameters(self._tools).get(call.name, (frozenset(), None))
        given = _members(call.arguments)
        if given is not None and known is not None and not required <= given <= known:
            return False
        said = (*_spelled(call.name, is_json=False), *_spelled(call.arguments, is_json=True))
        before, after = (" ".join(self._shown[at].words for at in one.request) for one in (turn, following))
        before += "".join(f" {' '.join(words_of(text))} " for text in told)
        is_read = self._spend(len(said) * (len(before) + len(after)))
        return not is_read or all(after.count(one) > before.count(one) for one in said)

    def _said(self, reply: ChatMessage, executed: Set[str]) -> _ReadCompletion:
        """What a completion wrote. Calls in its text are those that the host read there (beside native calls: those
        that ran); their arguments are in the very words that the model wrote, where these can be told."""
        native = message_of(reply, "llm").calls
        text = reply.content
        if "<think>" in text and "</think>" not in text and any(one.startswith(TEXT_CALL) for one in executed):
            text = text.replace("<tool_call>", "</think><tool_call>", 1)  # a call that ran ended the thought
        thought, rest = split_thinking(text)
        reasoning = "\n\n".join(part for part in (reply.reasoning_content, thought) if part)
        read = [
            Call(id=call.call_id, name=call.name, arguments=call.arguments)
            for call in (self._reader.emitted(reply.content, ()) if "<tool_call>" in rest else ())
            if not native or call.call_id in executed
        ]
        if "<tool_call>" not in rest or (native and not read):
            is_broken = bool(native) and not all(_members(call.arguments) is not None for call in native)
            content = read_turn(rest).content if "<response>" in rest and not native else rest if thought else text
            return _ReadCompletion(reasoning, content, native, is_broken)
        self._how.add("text_calls")
        try:
            written = read_turn(text)
        except ArenaError:
            content = rest.partition("<tool_call>")[0].strip() if read else text
            return _ReadCompletion(reasoning, content, (*native, *read), is_broken=True)
        if [call.name for call in written.calls] == [call.name for call in read]:
            read = [
                msgspec.structs.replace(call, arguments=one.arguments)
                for call, one in zip(read, written.calls, strict=True)
            ]
        is_broken = not all(_members(call.arguments) is not None for call in read) or not read
        return _ReadCompletion(reasoning, written.content, (*native, *read), is_broken)

    def _take(self, call: Call, executed: list[ExecutedCall]) -> ExecutedCall | None:
        """The execution of a model's call: by the id under which the host matched it, else (the record has no id for an
        echoed one) the first that is the same call. It is used up."""
        accepted = self._reader.accepted(call.name, call.arguments)
        for one in executed:
            is_echo = one.emitter == "echoed" and self._reader.key(one.name, one.arguments) in accepted
            if is_echo or (one.emitter == "llm" and one.call_id == call.id):
                executed.remove(one)
                return one
        return None

    def _by_agent(self, calls: Sequence[ExecutedCall]) -> Iterator[Message]:
        """Calls that no completion wrote, with their results, as turns that are marked as not the model's."""
        for call in calls:
            self._how.add("agent_calls")
            (named,) = name_calls(
                [Call(id="", name=call.name, arguments=call.arguments, emitter=call.emitter)], self._taken
            )
            yield Message(role="assistant", calls=(named,), is_model=False)
            yield self._answer(call, named.id)

    def _answer(self, call: ExecutedCall, call_id: str) -> Message:
        return Message(role="tool", content=self._results[call.index], call_id=call_id)

    def _look(self, turn: Turn, items: Sequence[_OwedItem]) -> None:
        """Note what a completion was not shown. What stood in a message stands in every one that begins with it."""
        grown: dict[int, int | None] = {}  # a message of an earlier request -> one of this that goes on from it
        for number, item in enumerate(items):
            if item.lack in self._lacks:
                continue
            before = self._where.get(number)
            if before is not None and before not in grown:
                text = self._shown[before].text
                grown[before] = next((at for at in turn.request if self._shown[at].text.startswith(text)), None)
            place = grown[before] if before is not None else None
            if place is None:
                place = next((at for at in turn.request if self._shown[at].holds(item, self._spend)), None)
            if place is None:
                self._lacks.add(item.lack)
            else:
                self._where[number] = place


class _ShownText:
    """A message that was sent, as what can be found in it however it was laid out."""

    def __init__(self, message: ChatMessage) -> None:
        self._message = message

    @cached_property
    def text(self) -> str:
        """Content and native calls."""
        sent = self._message
        calls = (*sent.tool_calls, *sent.echoed_tool_calls, *sent.agent_tool_calls)
        return "\n".join((sent.content, *(f"{call.function.name} {call.function.arguments}" for call in calls)))

    @cached_property
    def _squeezed(self) -> str:
        return _squeezed(self.text)

    @cached_property
    def words(self) -> str:
        return f" {' '.join(words_of(self.text))} "

    def holds(self, item: _OwedItem, spend: Callable[[int], bool]) -> bool:
        """Whether the message holds a text, or of JSON every value: laid out anew, escaped or not, in any words around
        it. A text that was shortened is not held, nor is one that takes more than the effort that is left."""
        if any(form in self._squeezed for form in _forms(item.text)):
            return True
        values = _spelled(item.text, is_json=item.is_json)
        return spend(len(values) * len(self.words)) and all(one in self.words for one in values)


def _squeezed(text: str) -> str:
    """Text without layout and without backslashes, of which each layer of JSON adds its own."""
    return "".join(text.split()).replace("\\", "")


@lru_cache(maxsize=256)  # each is looked for in every later request
def _forms(text: str) -> tuple[str, ...]:
    """A text as agents send it on: as it is, or as Python writes its JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return (_squeezed(text),)
    return tuple({_squeezed(one) for one in (text, json.dumps(value), json.dumps(value, ensure_ascii=False))})


@lru_cache(maxsize=256)
def _spelled(text: str, *, is_json: bool) -> tuple[str, ...]:
    """The values of JSON, or the whole of a text, each as words between spaces."""
    try:
        values = list(_values(json.loads(text))) if is_json else [text]
    except (ValueError, RecursionError):
        values = [text]
    if len(values) > _VALUES_MAX:
        values = [text]
    return tuple(dict.fromkeys(f" {' '.join(words)} " for words in map(words_of, values) if words))


def _values(value: object) -> Iterator[str]:
    """Every text and number in a value. Truth values and null are written in too many ways to look for."""
    stack = [value]
    while stack:
        match stack.pop():
            case dict() as members:
                stack.extend(members.values())
            case list() as items:
                stack.extend(items)
            case bool() | None:
                pass
            case one:
                yield str(one)


@lru_cache(maxsize=16)
def _reader(tools: str) -> CallReader:
    return CallReader(tools)


@lru_cache(maxsize=16)
def _parameters(tools: str) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Of each tool the names of the parameters that a call must have, and of those it can have."""
    functions = [tool["function"] for tool in json.loads(tools)]
    schemas = {one["name"]: one.get("parameters", {}) for one in functions}
    return {
        name: (frozenset(schema.get("required", ())), frozenset(schema.get("properties", ())))
        for name, schema in schemas.items()
    }


def _members(text: str) -> frozenset[str] | None:
    """The names in a JSON object; None for what is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return frozenset(value) if isinstance(value, dict) else None
