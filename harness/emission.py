"""Who wrote a tool call: the model, the prompt, or the Python around them. A published rule over recorded bytes.

For each dispatched call (DESIGN section 7), in this order:
  echoed  the same call already stood in the latest completion's request, outside earlier completions;
  llm     it equals one call of the latest completion that no earlier dispatch has used up;
  code    otherwise.
Calls are compared after the argument normalisation of `CallReader.key`. A call "stands" in a message as a JSON object
with a name and arguments (native, `<tool_call>` text, a menu, JSON inside a string) or in the form `name(key="value")`.
An earlier completion that wrote a call before any prompt held it clears that call: quoting the model is no echo. An
assistant message counts as an earlier completion as far as its calls were emitted by one. Pure; knows no session.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import orjson

from harness.callreader import EVERY_CALL, CallReader
from harness.trace import EmittedCall, Emitter, ToolCall


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one dispatched call. `call_id` names the matched call of the completion when `llm`."""

    emitter: Emitter
    call_id: str = ""


class Emission:
    """Attributes the dispatched calls of one episode, fed with its completions in order."""

    def __init__(self, reader: CallReader) -> None:
        self._reader = reader
        self._emitted: set[str] = set()  # by any earlier completion
        self._originated: set[str] = set()  # by a completion whose own request did not hold them
        self._in_request: frozenset[str] = frozenset()
        self._unconsumed: list[tuple[str, str]] = []  # (key, call id) of the latest completion
        self._read: dict[str, tuple[bool, frozenset[str]]] = {}  # message -> is it an assistant's, keys in it

    def complete(self, messages: Sequence[str], calls: Sequence[EmittedCall]) -> None:
        """Take a completion: its request's messages (JSON texts) and the calls it wrote."""
        self._in_request = self._standing(messages)
        self._unconsumed = [(self._reader.key(call.name, call.arguments), call.call_id) for call in calls]
        keys = {key for key, _ in self._unconsumed}
        self._emitted |= keys
        if EVERY_CALL not in self._in_request:
            self._originated |= keys - self._in_request

    def attribute(self, name: str, arguments: str) -> Attribution:
        """The emitter of one dispatched call. `arguments` is JSON text."""
        key = self._reader.key(name, arguments)
        call_id = self._consume(key)
        if key in self._in_request or EVERY_CALL in self._in_request:
            return Attribution(emitter="echoed")
        if call_id is not None:
            return Attribution(emitter="llm", call_id=call_id)
        return Attribution(emitter="code")

    def _consume(self, key: str) -> str | None:
        for index, (candidate, call_id) in enumerate(self._unconsumed):
            if candidate == key:
                del self._unconsumed[index]
                return call_id
        return None

    def _standing(self, messages: Sequence[str]) -> frozenset[str]:
        standing: set[str] = set()
        for message in messages:
            if message not in self._read:
                self._read[message] = self._read_message(message)
            is_assistant, keys = self._read[message]
            standing |= keys - (self._emitted if is_assistant else self._originated)
        return frozenset(standing)

    def _read_message(self, message: str) -> tuple[bool, frozenset[str]]:
        decoded = orjson.loads(message)
        return decoded.get("role") == "assistant", self._reader.keys_in(decoded)


def is_agentic(calls: Sequence[ToolCall], recommended: tuple[str, ...] | None, *, minimum_e4: int) -> bool:
    """True when the model wrote at least `minimum_e4` of all calls, and those that surfaced and recommended the answer.

    An episode without calls is not agentic; one that recommended nothing is judged by the share alone; a recommended id
    that no call surfaced did not come from the model's own search.
    """
    by_model = sum(call.emitter == "llm" for call in calls)
    if not calls or by_model * 10_000 < minimum_e4 * len(calls):
        return False
    if recommended is None:
        return True
    surfacing = {surfaced.product_id: call for call in calls for surfaced in call.surfaced}
    recommending = [call for call in calls if call.name == "recommend_product"][-1:]
    deciding = [*recommending, *(surfacing[i] for i in recommended if i in surfacing)]
    return all(i in surfacing for i in recommended) and all(call.emitter == "llm" for call in deciding)
