"""The list of races of one node: those that its store holds, and the name and close of the one to come.

Promise: a node alone counts its races from 1. Nodes that share races take number and close from the calendar
(`arena.race.schedule`), so that one that begins later, or was away, runs the same race under the same name; a race that
is over for everybody is not begun any more. What was begun stands in the store before anything else of it does.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import msgspec

from arena.policy import RaceRules
from arena.race.schedule import closing_ms, race_number, shared_closes_ms
from arena.race.state import RaceState, race_name, replay, stream_of
from arena.race.timeline import timeline
from arena.store.port import Store

_STREAM = "races"  # the names of shared races, in the order in which they were begun


class _Begun(msgspec.Struct, frozen=True):
    race_id: str


class RaceList:
    """Reads races from a store. States that can't change any more are read once."""

    def __init__(self, store: Store, *, is_shared: bool) -> None:
        self._store, self._is_shared = store, is_shared
        self._finished: dict[str, RaceState] = {}

    @property
    def finished(self) -> tuple[RaceState, ...]:
        """The races that were read and can't change any more, oldest first."""
        return tuple(self._finished.values())

    async def states(self, now_ms: int, rules: RaceRules) -> list[RaceState]:
        """Every race so far, the current one last (stage `new` when it has no event yet)."""
        states: list[RaceState] = []
        async for name in self._names():
            state = self._finished.get(name) or replay(name, await self._store.events(stream_of(name)))
            if self._is_shared and state.opened is None:
                continue  # begun and never opened, or the next number of a node that was alone
            states.append(state)
            if not state.is_finished:
                return states
            self._finished[name] = state
        return [*states, RaceState(race_id=race_name(race_number(self.coming_ms(states, now_ms, rules), rules)))]

    def coming_ms(self, earlier: list[RaceState], now_ms: int, rules: RaceRules) -> int:
        """When the race that is not open yet closes (unix ms): for nodes that share races the close after the last
        one's, even when it is past, while others may still be at it."""
        if not self._is_shared:
            return closing_ms(now_ms, rules)
        closes = (past.opened.closes_ms for past in reversed(earlier) if past.opened is not None)
        coming = shared_closes_ms(next(closes, now_ms), rules)
        return next(close_ms for close_ms in coming if now_ms < timeline(close_ms, rules).abandon_ms)

    async def begin(self, race_id: str) -> None:
        """Note the name of a shared race before its first event. Raises ArenaError V2022 where another process did."""
        if not self._is_shared:
            return
        texts = await self._store.events(_STREAM)
        if race_id not in (msgspec.json.decode(text, type=_Begun).race_id for text in texts):
            await self._store.put_event(_STREAM, len(texts), msgspec.json.encode(_Begun(race_id)).decode())

    async def _names(self) -> AsyncIterator[str]:
        for number in itertools.count(1):
            name = race_name(number)
            yield name
            if self._is_shared and name not in self._finished:
                break
        for text in await self._store.events(_STREAM):
            yield msgspec.json.decode(text, type=_Begun).race_id


async def begun_races(store: Store) -> list[str]:
    """The names of the shared races of a store, in the order in which they were begun; none where a node was alone."""
    return [msgspec.json.decode(text, type=_Begun).race_id for text in await store.events(_STREAM)]
