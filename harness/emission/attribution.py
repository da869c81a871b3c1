"""Who wrote a tool call: the model, the prompt, or the Python around them. A published rule over recorded bytes.

For each dispatched call, in this order:
  echoed  the program had written the call, or what is new in it, into a request before the model wrote it;
  llm     the tool reads of it what it reads of one call of the latest completion that no earlier dispatch has used up;
  code    otherwise.
What counts as written by the program, and what this rule cannot see, is published in `harness/EMISSION.md`. A body
names the version it was attributed by; `emitters_of` attributes its calls again by that version. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from foundation.errors import ArenaError
from harness.emission.call_identity import CallKey
from harness.emission.call_reader import CallReader
from harness.emission.dictation import Dictation
from harness.emission.execution import ToolReading
from harness.emission.first_version import FirstRule
from harness.trace import Completion, EmittedCall, Emitter, EvaluationBody, ToolCall

FIRST_EMISSION, EMISSION = "emission/1", "emission/4"  # a body without a version is of the first
_BY_KEY = (FIRST_EMISSION, "emission/2")  # compared calls as they are compared with prompts
EMISSIONS = (*_BY_KEY, "emission/3", EMISSION)


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one dispatched call. `call_id` names the matched call of the completion when `llm`."""

    emitter: Emitter
    call_id: str = ""


class EchoRule(Protocol):
    """What one version of the rule says of echoes, told of everything in the order in which it happened."""

    def complete(
        self, messages: Sequence[str], calls: Sequence[EmittedCall], content: str = "", reasoning: str = ""
    ) -> None:
        """Take a completion: its request's messages (JSON texts), the calls it wrote and its words."""

    def returned(self, name: str, arguments: str, result: str, emitter: Emitter) -> None:
        """Take an executed call with its result."""

    def is_echoed(self, key: CallKey) -> bool:
        """Whether the call is an echo now."""


class Emission:
    """Attributes the dispatched calls of one episode, fed with its completions and results in order."""

    def __init__(self, reader: CallReader, query: str = "", *, version: str = EMISSION) -> None:
        """Raises ArenaError V2050 for a version of the rule that is not known here."""
        if version not in EMISSIONS:
            raise ArenaError("V2050", f"emission rule {version!r}; known are {', '.join(EMISSIONS)}")
        self._reader = reader.first() if version in _BY_KEY else reader
        self._reading = None if version in _BY_KEY else ToolReading(reader.schemas)
        self._is_every_spelling_read = version == EMISSION
        is_first = version == FIRST_EMISSION
        self._rule: EchoRule = FirstRule(self._reader) if is_first else Dictation(self._reader, query)
        # what may be executed as each call of the latest completion, and that call
        self._unconsumed: list[tuple[Collection[CallKey], EmittedCall]] = []

    def complete(
        self, messages: Sequence[str], calls: Sequence[EmittedCall], content: str = "", reasoning: str = ""
    ) -> None:
        """Take a completion: its request's messages (JSON texts), the calls it wrote and its words."""
        self._rule.complete(messages, calls, content, reasoning)
        read = self._reading.accepted if self._reading else lambda *call: (self._reader.key(*call),)
        self._unconsumed = [(read(call.name, call.arguments), call) for call in calls]

    def attribute(self, name: str, arguments: str) -> Attribution:
        """The emitter of one dispatched call. `arguments` is JSON text."""
        key = self._reader.key(name, arguments)
        sent = self._reading.executed(name, arguments) if self._reading else key
        written = next((index for index, (accepted, _) in enumerate(self._unconsumed) if sent in accepted), None)
        call = None if written is None else self._unconsumed.pop(written)[1]
        if any(map(self._rule.is_echoed, self._spellings(key, name, arguments, call))):
            return Attribution(emitter="echoed")
        if call is not None:
            return Attribution(emitter="llm", call_id=call.call_id)
        return Attribution(emitter="code")

    def _spellings(self, key: CallKey, name: str, arguments: str, written: EmittedCall | None) -> Collection[CallKey]:
        """The call as it was sent, as it is searched for, and as the model wrote it: a tool reads the same of all, so
        whoever dictated one may send another."""
        if self._reading is None or not self._is_every_spelling_read:
            return (key,)
        keys = [key, self._reader.key(name, self._reading.searched(arguments))]
        if written is not None:
            keys.append(self._reader.key(written.name, written.arguments))
        return dict.fromkeys(keys)

    def returned(self, name: str, arguments: str, result: str, emitter: Emitter) -> None:
        """Take what an attributed call returned."""
        self._rule.returned(name, arguments, result, emitter)


def version_of(body: EvaluationBody) -> str:
    """The version of the rule that a body was attributed by."""
    return FIRST_EMISSION if body.emission is msgspec.UNSET else body.emission


def emitters_of(body: EvaluationBody, reader: CallReader) -> tuple[Emitter, ...]:
    """The emitters of a body's calls, attributed again by the version it names. `reader` knows the run's tools.

    Raises ArenaError V2050 for a version that is not known here.
    """
    emission = Emission(reader, body.query, version=version_of(body))
    told: list[Emitter] = []
    for event in body.events:
        if isinstance(event, Completion):
            messages = [body.messages[index] for index in event.request]
            emission.complete(messages, event.calls, event.content, event.reasoning)
        elif isinstance(event, ToolCall):
            told.append(emission.attribute(event.name, event.arguments).emitter)
            emission.returned(event.name, event.arguments, event.result, told[-1])
    return tuple(told)


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
