"""Names and closes of races: counted by a node alone, taken from the calendar by nodes that share races."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from msgspec.structs import replace

from arena.policies import PAPER
from arena.race.consensus.agreement import TOO_LATE, cancelled
from arena.race.state.events import RaceClosed, RaceSettled, encode_event
from arena.race.state.machine import RaceState, apply, open_race, replay, stream_of
from arena.race.state.schedule import race_number, shared_closes_ms
from arena.race.state.timeline import timeline
from neurons.race.log import RaceList
from tests.arena.race_stand import batch

RULES = PAPER.race
DAY_MS = 86_400_000


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000


class Events:
    """The event part of a store, in memory."""

    def __init__(self) -> None:
        self.streams_made: dict[str, list[str]] = {}

    async def events(self, stream: str) -> list[str]:
        return list(self.streams_made.get(stream, ()))

    async def streams(self, prefix: str) -> list[str]:
        return [stream for stream in self.streams_made if stream.startswith(prefix)]

    async def put_event(self, stream: str, index: int, event: str) -> None:
        texts = self.streams_made.setdefault(stream, [])
        assert index == len(texts)
        texts.append(event)


async def run_out(store: Events, races: RaceList, now_ms: int) -> RaceState:
    """Open the race to come, and let it end without a result."""
    *earlier, state = await races.states(now_ms, RULES)
    closes_ms = races.coming_ms(earlier, now_ms, RULES)
    event = open_race(state.race_id, PAPER, batch(120), now_ms, closes_ms=closes_ms)
    await store.put_event(stream_of(state.race_id), 0, encode_event(event))
    return apply(state, event)


async def end(store: Events, state: RaceState) -> None:
    closed = RaceClosed(closing_block=1, beacon_network="local", beacon_round=1)
    await store.put_event(stream_of(state.race_id), 1, encode_event(closed))
    after = apply(state, closed)
    await store.put_event(stream_of(state.race_id), 2, encode_event(RaceSettled(settlement=cancelled(after, TOO_LATE))))


async def test_nodes_that_begin_on_different_days_run_the_same_race_under_the_same_name():
    old, young = Events(), Events()
    before, today = at("2026-11-20T03:00"), at("2026-11-21T03:00")
    races = RaceList(old, is_shared=True)
    first = await run_out(old, races, before)
    await end(old, first)
    second = await run_out(old, races, today)
    beginner = RaceList(young, is_shared=True)
    (fresh,) = await beginner.states(today, RULES)
    assert fresh.race_id == second.race_id != first.race_id
    assert beginner.coming_ms([], today, RULES) == second.opened.closes_ms == at("2026-11-21T20:00")


async def test_the_race_after_one_is_the_next_close_even_when_that_is_past_unless_it_is_over_for_everybody():
    store = Events()
    races = RaceList(store, is_shared=True)
    first = await run_out(store, races, at("2026-11-20T03:00"))
    await end(store, first)
    closes_ms = first.opened.closes_ms
    earlier = (await races.states(closes_ms + DAY_MS + 1, RULES))[:-1]
    assert races.coming_ms(earlier, closes_ms + DAY_MS + 1, RULES) == closes_ms + DAY_MS
    over_ms = timeline(closes_ms + DAY_MS, RULES).abandon_ms
    assert races.coming_ms(earlier, over_ms - 1, RULES) == closes_ms + DAY_MS
    assert races.coming_ms(earlier, over_ms, RULES) == closes_ms + 2 * DAY_MS


async def test_a_restart_finds_shared_races_and_passes_over_the_names_that_an_earlier_release_kept_beside_them():
    store = Events()
    races = RaceList(store, is_shared=True)
    first = await run_out(store, races, at("2026-11-20T03:00"))
    await end(store, first)
    for index, name in enumerate((first.race_id, "race-009999")):  # the last one was killed before its first event
        await store.put_event("races", index, f'{{"race_id":"{name}"}}')
    again = await RaceList(store, is_shared=True).states(at("2026-11-21T03:00"), RULES)
    assert [state.race_id for state in again][:1] == [first.race_id] and len(again) == 2
    assert again[1].stage == "new" and again[1].race_id != "race-009999"
    assert again[0] == replay(first.race_id, store.streams_made[stream_of(first.race_id)])


async def test_a_node_that_was_alone_ends_its_race_before_it_shares_one():
    store = Events()
    alone = RaceList(store, is_shared=False)
    now_ms = at("2026-11-20T03:00")
    (new,) = await alone.states(now_ms, RULES)
    assert new.race_id == "race-000001"
    await store.put_event(stream_of(new.race_id), 0, encode_event(open_race(new.race_id, PAPER, batch(120), now_ms)))
    assert [state.race_id for state in await RaceList(store, is_shared=True).states(now_ms, RULES)] == ["race-000001"]


async def test_a_node_that_goes_on_alone_keeps_what_it_shared_and_counts_its_own_from_one():
    store, now_ms = Events(), at("2026-11-20T03:00")
    shared = await run_out(store, RaceList(store, is_shared=True), now_ms)
    await end(store, shared)
    alone = RaceList(store, is_shared=False)
    for number in (1, 2):
        *earlier, state = await alone.states(now_ms, RULES)
        assert state.race_id == f"race-{number:06d}" and earlier[0].race_id == shared.race_id
        await end(store, await run_out(store, alone, now_ms))
    again = await RaceList(store, is_shared=True).states(now_ms, RULES)
    assert [state.race_id for state in again[:-1]] == [shared.race_id, "race-000001", "race-000002"]


def test_daily_numbers_follow_the_local_date_through_a_change_of_clocks():
    closes = shared_closes_ms(at("2026-10-30T00:00"), RULES)
    found = [next(closes) for _ in range(5)]
    assert [race_number(close_ms, RULES) - race_number(found[0], RULES) for close_ms in found] == [0, 1, 2, 3, 4]
    assert 25 * 3_600_000 in [later - close_ms for close_ms, later in pairwise(found)]


@pytest.mark.parametrize("after_ms", [0, 12_345, 10**12])
def test_races_by_the_hour_close_at_moments_that_all_validators_share(after_ms):
    rules = replace(RULES, closes_after_ms=3_600_000)
    closes = shared_closes_ms(after_ms, rules)
    first, second = next(closes), next(closes)
    assert next(shared_closes_ms(after_ms + 1, rules)) in (first, second)
    assert second - first == 3_600_000 + timeline(0, rules).abandon_ms  # the one before is over
    assert race_number(second, rules) == race_number(first, rules) + 1
