"""An export of the log as traces: verified whole, signed by the validator whose log it is, then read by shards.

An export that does not verify is never opened, whatever is asked for. One that nobody signed is opened only with
`trust_unsigned`, and its traces say that they are not verified.

Every trajectory comes out of the Parquet view once, in the order of the log, as a trace or as a quarantined row. A
shard is a picklable value that can be read in any process, and again. Who emitted a call is what the host recorded;
calls that the agent's Python made are in no message, and so in no verbatim trace.

Where no request holds the whole episode, its conversation is made from events (`_EventConversation`): what the model
wrote, which calls ran and what they returned, in their order; an agent's own account of them is never read. Its
requests decide two things: how the dialogue opened, and whether each completion was shown what stands before it; what
it was not shown is named in `Rebuilt.lacks`. A call that never ran has no result, and the pairing rule says so.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from arena.chain.port import Verifier
from arena.export.files import MANIFEST, VIEWS, ExportFiles, read_manifest, signer_of
from arena.export.forms import CONVERSATION, conversation_of, read_values
from arena.export.model import Manifest
from arena.export.row import TEXT_CALL, Conversation, ExecutedCall, Turn, tools_of
from foundation.errors import ArenaError
from foundation.executors import HERE, Executor
from foundation.long_work import PhaseProgress
from harness.chat import ROLE_OF, Call, ChatMessage, Message, message_of
from harness.emission.attribution import reader_of
from harness.emission.wording import words_of
from training.corpus import model
from training.corpus.formats import ModelTurn, lift, name_calls, read_turn, split_thinking

_FACTS = (*model.EXPORTED_FACTS, "recommended", "validator", "seq", "content_sha256", "query")  # read of a row
_ENDING = frozenset({"recommend_product", "terminate"})  # their results tell a model nothing it did not write
_VALUES_MAX = 2_000  # of one result that are looked for one by one
_LETTERS_MAX = 2_000_000_000  # of one episode; a second or so


class _OwedItem(msgspec.Struct, frozen=True):
    """Something the conversation shows, which later completions ought to have been shown too."""

    lack: model.Lack
    text: str
    is_json: bool = False


class _EventConversation:
    """One episode while its conversation is put together. `query` and `tools` (an OpenAI `tools` array, JSON text) are
    the record's."""

    def __init__(self, talk: Conversation, query: str, tools: str) -> None:
        self._all = (*talk.messages, *talk.other_messages)
        self._turns, self._query, self._tools, self._reader = talk.completions, query, tools, reader_of(tools)
        self._results = {
            call.index: (self._all[call.message].content if call.message is not None else call.result) or ""
            for call in talk.calls
        }
        steps = [turn.step for turn in self._turns]
        self._calls_of: dict[int, list[ExecutedCall]] = {}  # by the completion before them, 0 before the first
        for call in talk.calls:
            before = bisect.bisect_right(steps, call.step)
            self._calls_of.setdefault(steps[before - 1] if before else 0, []).append(call)
        self._how: set[model.How] = set()
        self._lacks: set[model.Lack] = set()
        self._taken: set[str] = set()
        self._shown = [_ShownText(message) for message in self._all]
        self._where: dict[int, int] = {}  # an item that has to be shown -> the message where it was found last
        self._letters = _LETTERS_MAX  # that may still be looked through: a hostile episode must not hold up a corpus

    def _spend(self, letters: int) -> bool:
        """Whether there were so many left."""
        self._letters -= letters
        return self._letters >= 0

    def conversation(self) -> tuple[tuple[Message, ...], model.Rebuilt] | None:
        """The messages of the episode's dialogue, with every call and result of the episode, and how they came about;
        None where no single conversation holds its calls."""
        turns = self._dialogue()
        if turns is None:
            return None
        messages, items = self._opening(turns)
        messages += self._by_agent(self._calls_of.get(0, ()))
        following = {turn.step: after for turn, after in itertools.zip_longest(turns, turns[1:])}
        for turn in self._turns:
            if turn.step in following:
                self._note_unshown(turn, items)
                messages += self._turn(turn, items, following[turn.step])
            else:
                messages += self._by_agent(self._calls_of.get(turn.step, ()))
        return tuple(messages), model.Rebuilt(
            how=tuple(sorted({*self._how, "events"})), lacks=tuple(sorted(self._lacks))
        )

    def _dialogue(self) -> list[Turn] | None:
        """The turns of the one dialogue that made the episode's calls. Dialogues are distinguished by how they open: a
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
        and results is left out, and so is what it said to the model for one turn alone."""
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
        said, is_broken = self._said(
            self._all[turn.reply], {call.call_id for call in executed if call.emitter == "llm"}
        )
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
            if is_broken or not (pairs or is_told):
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
        """Whether the agent showed its model a call that never ran: name and values are in sight more often than the
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

    def _said(self, reply: ChatMessage, executed: Set[str]) -> tuple[ModelTurn, bool]:
        """What a completion wrote, its calls under the record's ids, and whether it holds a call that nobody can read.
        Calls in its text are those that the host read there (beside native calls: those that ran); their arguments are
        in the very words that the model wrote, where these are known."""
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
            return ModelTurn(reasoning, content, native), is_broken
        self._how.add("text_calls")
        try:
            written = read_turn(text)
        except ArenaError:
            content = rest.partition("<tool_call>")[0].strip() if read else text
            return ModelTurn(reasoning, content, (*native, *read)), True
        if [call.name for call in written.calls] == [call.name for call in read]:
            read = [
                msgspec.structs.replace(call, arguments=one.arguments)
                for call, one in zip(read, written.calls, strict=True)
            ]
        is_broken = not all(_members(call.arguments) is not None for call in read) or not read
        return ModelTurn(reasoning, written.content, (*native, *read)), is_broken

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

    def _note_unshown(self, turn: Turn, items: Sequence[_OwedItem]) -> None:
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


def _decoded(text: str) -> list[object]:
    """The one value that JSON text says; nothing for other text."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return []


@lru_cache(maxsize=256)  # each is looked for in every later request
def _forms(text: str) -> tuple[str, ...]:
    """A text as agents send it on: as it is, or as Python writes its JSON."""
    written = [json.dumps(value, ensure_ascii=is_plain) for value in _decoded(text) for is_plain in (True, False)]
    return tuple({_squeezed(one) for one in (text, *written)})


@lru_cache(maxsize=256)
def _spelled(text: str, *, is_json: bool) -> tuple[str, ...]:
    """The values of JSON, or the whole of a text, each as words between spaces."""
    said = _decoded(text) if is_json else []
    values = list(_values(said[0])) if said else [text]
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
def _parameters(tools: str) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Of each tool the names of the parameters that a call must have, and of those it can have."""
    functions = [tool["function"] for tool in json.loads(tools)]
    schemas = {one["name"]: one.get("parameters", {}) for one in functions}
    return {
        name: (frozenset(schema.get("required", ())), frozenset(schema.get("properties", ())))
        for name, schema in schemas.items()
    }


def _members(text: str) -> frozenset[str] | None:
    """The names in a JSON object; None for other text."""
    return next((frozenset(value) for value in _decoded(text) if isinstance(value, dict)), None)


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """An export that may be read. `signer` is "" where `trust_unsigned` waived the signature."""

    folder: str
    manifest: Manifest
    manifest_sha256: str
    signer: str
    location: str = ""  # where machines without the folder find its files; "": nowhere

    def files(self, *names: str) -> ExportFiles:
        """Those of these files that it has, to be read on any machine."""
        sha256s = {file.path: file.sha256 for file in self.manifest.files if file.path in names}
        return ExportFiles(self.folder, self.location, tuple(sorted(sha256s.items())))

    @property
    def is_verified(self) -> bool:
        """Whether the validator's own signature vouches for the whole of it."""
        return self.signer == self.manifest.log.validator


def open_export(
    folder: Path,
    verify_signature: Verifier,
    *,
    trust_unsigned: bool = False,
    executor: Executor = HERE,
    progress: PhaseProgress | None = None,
    location: str = "",
) -> Export:
    """The export in `folder`, verified whole. `location`: the object store it was brought from, "" for none.

    `executor` is where verification looks at rows (`verify_export`), with a `verify_signature` that other processes can
    import. Raises ArenaError V2095 without a readable manifest, when its validator did not sign it and when the export
    does not verify, V2052 when processes died.
    """
    from arena.export.verification import verify_export  # which no process that reads shards needs

    manifest = read_manifest(folder)
    signer, validator = signer_of(folder, verify_signature), manifest.log.validator
    if signer != validator and not trust_unsigned:
        whose = f"signed by {signer}" if signer else "not signed"
        raise ArenaError(
            "V2095",
            f"nobody vouches for {folder}: {whose}; the log is that of {validator}",
            fix="take one signed by its validator, or repeat with --trust-unsigned: the lineage then says so",
        )
    wrong = verify_export(folder, verify_signature, executor=executor, progress=progress).wrong
    if wrong:
        raise ArenaError("V2095", f"{folder}: {wrong[0].place}: {wrong[0].detail} ({len(wrong)} in all)")
    return Export(
        folder=str(folder),
        manifest=manifest,
        manifest_sha256=hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest(),
        signer=signer if signer == validator else "",
        location=location,
    )


def trace_of_row(told: Mapping[str, Any], talk: Conversation, tools: str, *, is_verified: bool) -> model.Trace:
    """The trace of an export's row, with its `_FACTS` by column (FORMATS.md says what they mean). Raises ArenaError
    V2097 when its conversation holds what is no message."""
    messages, made = _conversation(talk, told["query"], tools)
    facts = {fact: told[name] for name, fact in model.EXPORTED_FACTS.items()}
    for name in ("cluster_id", "suite"):
        facts[name] = facts[name] or None
    facts["recommended"] = told["recommended"].split(",") if told["recommended"] else ()
    facts["surfaced"] = tuple(dict.fromkeys(found.product_id for call in talk.calls for found in call.surfaced))
    return model.assemble_trace(
        model.TraceSource(kind="arena", place=_place(told), sha256=told["content_sha256"], is_verified=is_verified),
        messages,
        tools=tools,
        query=told["query"],
        facts=msgspec.convert(facts, model.TraceFacts),
        rebuilt=made,
    )


def _place(told: Mapping[str, Any]) -> str:
    return f"{told['validator']}:{told['seq']}"


def _conversation(talk: Conversation, query: str, tools: str) -> tuple[Sequence[Message], model.Rebuilt | None]:
    """The messages of a row: what the model was sent and wrote, where that is the whole episode in order and no call
    stands in its text; else the episode rebuilt from its events, where that is one conversation."""
    sent = [message_of(chat, "llm") for chat in talk.messages]
    if talk.is_linear and not any("<tool_call>" in one.content for one in sent if one.role == "assistant"):
        return lift(sent), None
    return _EventConversation(talk, query, tools).conversation() or (sent, None)


class ViewShard(msgspec.Struct, frozen=True, kw_only=True):
    """One row group of the Parquet view. Calling it reads it."""

    files: ExportFiles
    name: str
    group: int
    is_verified: bool
    keeps_calls: bool = False  # its traces are `ExecutedTrace`

    def __call__(self) -> Iterator[model.Trace | model.Quarantined]:
        """Its rows, in order. Raises ArenaError V2050 for a file that changed since it was verified."""
        with self.files.here() as folder:
            for row in read_values(folder / self.name, [*_FACTS, "tools_sha256", *CONVERSATION], self.group):
                talk, tools = conversation_of(row), tools_of(row["tool_profile"], row["tools_sha256"])
                try:
                    trace = trace_of_row(row, talk, tools, is_verified=self.is_verified)
                except ArenaError as error:
                    yield model.Quarantined(place=_place(row), code=error.failure.code, detail=error.failure.detail)
                else:
                    yield _with_calls(trace, talk) if self.keeps_calls else trace


def export_shards(export: Export) -> tuple[ViewShard, ...]:
    """An export in pieces, in the order of its log. Raises ArenaError V2030 for one without the Parquet view."""
    if "parquet" not in export.manifest.request.forms:
        raise ArenaError("V2030", f"{export.folder} has no Parquet view; export it again with --format parquet")
    names = sorted(file.path for file in export.manifest.files if file.path.startswith(f"{VIEWS}/parquet/"))
    return tuple(
        ViewShard(files=export.files(name), name=name, group=group, is_verified=export.is_verified)
        for name in names
        for group in range(pq.read_metadata(Path(export.folder) / name).num_row_groups)
    )


def _with_calls(trace: model.Trace, talk: Conversation) -> model.ExecutedTrace:
    results = (call.result if call.message is None else talk.messages[call.message].content for call in talk.calls)
    executed = tuple((call.name, call.arguments, result) for call, result in zip(talk.calls, results, strict=True))
    return model.ExecutedTrace(
        executed=executed, **{name: getattr(trace, name) for name in model.Trace.__struct_fields__}
    )
