"""Who wrote a tool call: the model, the prompt, or the Python around them. A published rule over recorded bytes.

For each dispatched call (DESIGN section 7), in this order:
  echoed  the same call already stood in the latest completion's request, outside earlier completions;
  llm     it equals one call of the latest completion that no earlier dispatch has used up;
  code    otherwise.
Calls are compared after the argument normalisation of `harness.callkey`. Where a call "stands" in a message, and what
this rule cannot see, is published in `harness/EMISSION.md`. A completion that wrote a call before any prompt held it
clears that call for the rest of the episode: carrying or quoting the model's own words is no echo. A turn of the
history that no completion wrote clears nothing. Pure; knows no session.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import orjson

from harness.callkey import CallKey
from harness.callreader import EVERY_CALL, CallReader, Standing
from harness.trace import EmittedCall, Emitter, ToolCall


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one dispatched call. `call_id` names the matched call of the completion when `llm`."""

    emitter: Emitter
    call_id: str = ""


class Emission:
    """Attributes the dispatched calls of one episode, fed with its completions in order."""

    def __init__(self, reader: CallReader) -> None:
        self._reader = reader
        self._originated: set[CallKey] = set()  # by a completion whose own request did not hold them
        self._standing: tuple[Standing, ...] = ()  # in the latest completion's request, one per message
        self._unconsumed: list[tuple[CallKey, str]] = []  # (key, call id) of the latest completion
        self._read: dict[str, Standing] = {}  # by message

    def complete(self, messages: Sequence[str], calls: Sequence[EmittedCall]) -> None:
        """Take a completion: its request's messages (JSON texts) and the calls it wrote."""
        self._standing = tuple(map(self._standing_in, messages))
        self._unconsumed = [(self._reader.key(call.name, call.arguments), call.call_id) for call in calls]
        self._originated |= {key for key, _ in self._unconsumed if not self._is_standing(key)}

    def attribute(self, name: str, arguments: str) -> Attribution:
        """The emitter of one dispatched call. `arguments` is JSON text."""
        key = self._reader.key(name, arguments)
        call_id = self._consume(key)
        if self._is_standing(key):
            return Attribution(emitter="echoed")
        if call_id is not None:
            return Attribution(emitter="llm", call_id=call_id)
        return Attribution(emitter="code")

    def _consume(self, key: CallKey) -> str | None:
        for index, (candidate, call_id) in enumerate(self._unconsumed):
            if candidate == key:
                del self._unconsumed[index]
                return call_id
        return None

    def _is_standing(self, key: CallKey) -> bool:
        if any(EVERY_CALL in one.keys for one in self._standing):
            return True
        if key in self._originated:
            return False
        return any(key in one.keys or any(menu.holds(key) for menu in one.menus) for one in self._standing)

    def _standing_in(self, message: str) -> Standing:
        if message not in self._read:
            self._read[message] = self._reader.standing_in(orjson.loads(message))
        return self._read[message]


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
