"""The first version of the emission rule, `emission/1`, frozen: bodies that name no version were attributed by it.

A call is `echoed` when the same call stood in any message of the latest completion's request, unless a completion wrote
it before a request held it; `llm` when it equals an unused call of that completion; else `code`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from harness.callkey import CallKey
from harness.callreader import EVERY_CALL, CallReader, Standing
from harness.trace import EmittedCall, Emitter


class StandingCalls:
    """Which calls stand, written out, in the latest completion's request and were not a completion's own before."""

    def __init__(self, reader: CallReader) -> None:
        self._reader = reader
        self._originated: set[CallKey] = set()  # by a completion whose own request did not hold them
        self._standing: tuple[Standing, ...] = ()  # in the latest completion's request, one per message
        self._read: dict[str, Standing] = {}  # by message

    def complete(self, messages: Sequence[str], calls: Sequence[EmittedCall]) -> None:
        """Take a completion: its request's messages (JSON texts) and the calls it wrote."""
        self._standing = tuple(map(self._standing_in, messages))
        keys = {self._reader.key(call.name, call.arguments) for call in calls}
        self._originated |= {key for key in keys if not self.holds(key)}

    def holds(self, key: CallKey) -> bool:
        """Whether the call stands there and is not a completion's own."""
        if any(EVERY_CALL in one.keys for one in self._standing):
            return True
        if key in self._originated:
            return False
        return any(key in one.keys or any(menu.holds(key) for menu in one.menus) for one in self._standing)

    def holds_alone(self, key: CallKey, messages: Sequence[str]) -> bool:
        """Whether one of `messages` holds the call and calls of no other tool, and it is not a completion's own."""
        return key not in self._originated and any(
            key in one.keys and {other.name for other in one.keys} == {key.name} and not one.menus
            for one in map(self._standing_in, messages)
        )

    def _standing_in(self, message: str) -> Standing:
        if message not in self._read:
            self._read[message] = self._reader.standing_in(_decoded(message))
        return self._read[message]


def _decoded(message: str) -> dict[str, object]:
    """The message; a text that is none is what it says."""
    try:
        decoded = orjson.loads(message)
    except orjson.JSONDecodeError:
        decoded = message
    return decoded if isinstance(decoded, dict) else {"content": message}


class FirstRule:
    """`emission/1` for one episode."""

    def __init__(self, reader: CallReader) -> None:
        self._standing = StandingCalls(reader)

    def complete(
        self, messages: Sequence[str], calls: Sequence[EmittedCall], content: str = "", reasoning: str = ""
    ) -> None:
        """Take a completion: its request's messages (JSON texts) and the calls it wrote. Its words do not matter."""
        self._standing.complete(messages, calls)

    def returned(self, name: str, arguments: str, result: str, emitter: Emitter) -> None:
        """Take an executed call, which does not matter to this version."""

    def is_echoed(self, key: CallKey) -> bool:
        """Whether the call stood in the latest request."""
        return self._standing.holds(key)
