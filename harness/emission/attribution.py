"""Who wrote a tool call: the model, the prompt, or the Python around them. A published rule over recorded bytes.

For each dispatched call, in this order:
  echoed  the program had written the call, or what is new in it, into a request before the model wrote it;
  llm     the tool reads of it what it reads of one call of the latest completion that no earlier dispatch has used up;
  code    otherwise.
What counts as written by the program, and what this rule cannot see, is published in `harness/EMISSION.md`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.emission.call_reader import CallKey, CallReader, searched
from harness.emission.echoes import Echoes
from harness.trace import Completion, EmittedCall, Emitter, EvaluationBody, ToolCall

EMISSION = "emission/1"  # the version of the rule, which a body names


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one dispatched call. `call_id` names the matched call of the completion when `llm`."""

    emitter: Emitter
    call_id: str = ""


class Emission:
    """Attributes the dispatched calls of one episode, fed with its completions and results in order."""

    def __init__(self, reader: CallReader, query: str = "") -> None:
        self._reader = reader
        self._echoes = Echoes(reader, query)
        # what may be executed as each call of the latest completion, and that call
        self._unconsumed: list[tuple[frozenset[CallKey], EmittedCall]] = []

    def complete(
        self, messages: Sequence[str], calls: Sequence[EmittedCall], content: str = "", reasoning: str = ""
    ) -> None:
        """Take a completion: its request's messages (JSON texts), the calls it wrote and its words."""
        self._echoes.complete(messages, calls, content, reasoning)
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
        if any(self._echoes.is_echoed(*spelling) for spelling in sorted(spellings)):
            return Attribution(emitter="echoed")
        if call is not None:
            return Attribution(emitter="llm", call_id=call.call_id)
        return Attribution(emitter="code")

    def returned(self, name: str, arguments: str, result: str, emitter: Emitter) -> None:
        """Take what an attributed call returned."""
        self._echoes.returned(name, arguments, result, emitter)


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
