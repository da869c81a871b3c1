"""The list of races of one node: those that its store holds, and the name and close of the one to come.

One query lists races, in the order in which they were opened. A node alone counts its races from 1. Nodes that
share races take number and close from the calendar (`arena.race.state.schedule`), so that one that begins later, or was
away, runs the same race under the same name; a race that is over for everybody is not begun any more.
"""

from __future__ import annotations

import itertools

from arena.policy import RaceRules
from arena.race.state.machine import RaceState, race_name, replay, stream_of
from arena.race.state.schedule import closing_ms, race_number, shared_closes_ms
from arena.race.state.timeline import timeline
from arena.store.port import Store


async def race_names(store: Store) -> list[str]:
    """The races of a store, in the order in which they were opened."""
    prefix = stream_of("")
    return [stream.removeprefix(prefix) for stream in await store.streams(prefix)]


async def read_state(store: Store, race_id: str) -> RaceState:
    """A race as its events tell it."""
    return replay(race_id, await store.events(stream_of(race_id)))


class RaceList:
    """Reads races from a store. States that can't change any more are read once. While a race goes on no other
    is begun, so it alone is read: a node asks several times a second."""

    def __init__(self, store: Store, *, is_shared: bool) -> None:
        self._store, self._is_shared = store, is_shared
        self._finished: dict[str, RaceState] = {}
        self._going_on: str | None = None  # the first race that was not finished when last read

    @property
    def finished(self) -> tuple[RaceState, ...]:
        """The races that were read and can't change any more, oldest first."""
        return tuple(self._finished.values())

    async def states(self, now_ms: int, rules: RaceRules) -> list[RaceState]:
        """Every race so far, the current one last (stage `new` when it has no event yet)."""
        if self._going_on is not None:
            state = await read_state(self._store, self._going_on)
            if not state.is_finished:
                return [*self._finished.values(), state]
        states: list[RaceState] = []
        for name in await race_names(self._store):
            state = self._finished.get(name) or await read_state(self._store, name)
            states.append(state)
            if not state.is_finished:
                self._going_on = name
                return states
            self._finished[name] = state
        self._going_on = None
        if self._is_shared:
            coming = race_name(race_number(self.coming_ms(states, now_ms, rules), rules))
        else:
            coming = next(name for name in map(race_name, itertools.count(1)) if name not in self._finished)
        return [*states, RaceState(race_id=coming)]

    def coming_ms(self, earlier: list[RaceState], now_ms: int, rules: RaceRules) -> int:
        """When the race that is not open yet closes (unix ms): for nodes that share races the close after the last
        one's, even when it is past, while others may still be at it."""
        if not self._is_shared:
            return closing_ms(now_ms, rules)
        closes = (past.opened.closes_ms for past in reversed(earlier) if past.opened is not None)
        coming = shared_closes_ms(next(closes, now_ms), rules)
        return next(close_ms for close_ms in coming if now_ms < timeline(close_ms, rules).abandon_ms)
