"""The first version of the emission rule, `emission/1`, frozen: bodies that name no version were attributed by it.

A call is `echoed` when the same call stood in any message of the latest completion's request, unless a completion wrote
it before a request held it; `llm` when it equals an unused call of that completion; else `code`. Pure, and linear: a
message is indexed once, and no question about a call looks at all messages or at all menus of calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import orjson

from harness.emission.call_identity import CallKey, CallMenu
from harness.emission.call_reader import EVERY_CALL, CallReader, StandingCall
from harness.trace import EmittedCall, Emitter

_MASKS_MAX = 1_024  # of one tool's menus, kept


class Menus:
    """Menus of one tool. One bit each: a call is asked of all of them at once, whatever they share."""

    def __init__(self) -> None:
        self._count = 0
        self._listing: dict[str, dict[str, int | list[int]]] = {}  # by parameter and value: the menu, or several
        self._masks: dict[tuple[str, str], int] = {}

    def add(self, menu: CallMenu) -> None:
        """One more menu."""
        place = self._count
        self._count += 1
        self._masks.clear()
        for parameter, choices in menu.choices:
            listing = self._listing.setdefault(parameter, {})
            for value in choices:
                before = listing.setdefault(value, place)
                if isinstance(before, list):
                    before.append(place)
                elif before != place:
                    listing[value] = [before, place]

    def hold(self, key: CallKey) -> bool:
        """Whether one of them fixes every argument of the call; a call without arguments is on no menu."""
        left = -1
        for parameter, value in key.arguments:
            left &= self._mask(parameter, value)
            if not left:
                return False
        return bool(key.arguments)

    def _mask(self, parameter: str, value: str) -> int:
        """The menus that list the value, one bit each."""
        mask = self._masks.get((parameter, value))
        if mask is None:
            places = self._listing.get(parameter, {}).get(value, ())
            bits = bytearray(self._count // 8 + 1)
            for place in (places,) if isinstance(places, int) else places:
                bits[place // 8] |= 1 << place % 8
            if len(self._masks) >= _MASKS_MAX:
                self._masks.clear()
            mask = self._masks[parameter, value] = int.from_bytes(bits, "little")
        return mask


class StandingCalls:
    """Which calls stand, written out, in the latest completion's request and were not a completion's own before."""

    def __init__(self, reader: CallReader) -> None:
        self._reader = reader
        self._originated: set[CallKey] = set()  # by a completion whose own request did not hold them
        self._read: dict[str, StandingCall] = {}  # by message
        self._alone: dict[CallKey, set[str]] = {}  # messages that hold it and calls of no other tool
        self._messages: tuple[str, ...] = ()  # of the latest completion's request, and what stands in them:
        self._keys: set[CallKey] = set()
        self._menus: dict[str, Menus] = {}  # by tool

    def complete(self, messages: Sequence[str], calls: Sequence[EmittedCall]) -> None:
        """Take a completion: its request's messages (JSON texts) and the calls it wrote."""
        before, self._messages = self._messages, tuple(messages)
        if self._messages[: len(before)] != before:
            before, self._keys, self._menus = (), set(), {}
        for message in self._messages[len(before) :]:
            standing = self._standing_in(message)
            self._keys |= standing.keys
            for menu in standing.menus:
                self._menus.setdefault(menu.name, Menus()).add(menu)
        keys = {self._reader.key(call.name, call.arguments) for call in calls}
        self._originated |= {key for key in keys if not self.holds(key)}

    def holds(self, key: CallKey) -> bool:
        """Whether the call stands there and is not a completion's own."""
        if EVERY_CALL in self._keys:
            return True
        if key in self._originated:
            return False
        return key in self._keys or (key.name in self._menus and self._menus[key.name].hold(key))

    def holds_alone(self, key: CallKey, messages: Collection[str]) -> bool:
        """Whether one of `messages`, all of them of earlier requests, holds the call and calls of no other tool, and it
        is not a completion's own."""
        return key not in self._originated and not self._alone.get(key, set()).isdisjoint(messages)

    def _standing_in(self, message: str) -> StandingCall:
        if message not in self._read:
            try:
                decoded = orjson.loads(message)
            except orjson.JSONDecodeError:
                decoded = message
            turn = decoded if isinstance(decoded, dict) else {"content": message}  # a text that is none says itself
            self._read[message] = standing = self._reader.standing_in(turn)
            if not standing.menus and len({key.name for key in standing.keys}) == 1:
                for key in standing.keys:
                    self._alone.setdefault(key, set()).add(message)
        return self._read[message]


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
