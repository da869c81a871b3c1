"""Closing times and embargoes in local time, through both changes of clocks."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.policies import DEMO, PAPER
from arena.policy import EmbargoRules, RaceRules
from arena.race.machine import RaceState, coming_race
from arena.race.schedule import closing_ms, embargo_ends_ms

PACIFIC = ZoneInfo("America/Los_Angeles")
HOUR_MS = 3_600_000
MOMENTS = st.integers(1_700_000_000_000, 1_900_000_000_000)


def at(text: str, zone: ZoneInfo = PACIFIC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


@pytest.mark.parametrize(
    ("opened", "closes", "hours"),
    [
        ("2026-08-03T12:00", "2026-08-04T12:00", 24),
        ("2026-08-03T11:59", "2026-08-03T12:00", None),
        ("2026-03-07T12:00", "2026-03-08T12:00", 23),  # clocks go forward
        ("2026-10-31T12:00", "2026-11-01T12:00", 25),  # clocks go back
        ("2026-12-31T12:00", "2027-01-01T12:00", 24),
    ],
)
def test_a_race_closes_at_the_next_local_noon(opened, closes, hours):
    found = closing_ms(at(opened), RaceRules())
    assert found == at(closes)
    if hours is not None:
        assert found - at(opened) == hours * HOUR_MS


@given(MOMENTS, st.integers(0, 1_439))
def test_a_close_is_strictly_later_and_at_most_25_hours_away(opened_ms, minute):
    closes = closing_ms(opened_ms, RaceRules(closes_at_minute=minute))
    assert opened_ms < closes <= opened_ms + 25 * HOUR_MS


def test_a_minute_that_the_clocks_skip_or_repeat_closes_once():
    rules = RaceRules(closes_at_minute=150)  # 02:30
    assert closing_ms(at("2026-03-08T00:00"), rules) == at("2026-03-08T03:30")
    first = closing_ms(at("2026-11-01T00:00"), RaceRules(closes_at_minute=90))  # 01:30, twice
    assert closing_ms(first, RaceRules(closes_at_minute=90)) == at("2026-11-02T01:30")


@pytest.mark.parametrize(
    ("promoted", "opens"),
    [
        ("2026-08-03T09:00", "2026-08-03T12:00"),  # Monday morning
        ("2026-08-03T12:00", "2026-08-04T12:00"),
        ("2026-08-07T12:00", "2026-08-10T12:00"),  # Friday noon to Monday
        ("2026-08-08T01:00", "2026-08-10T12:00"),  # Saturday
        ("2026-03-06T12:00", "2026-03-09T12:00"),  # over a change of clocks
    ],
)
def test_the_winners_source_opens_at_the_next_weekday_noon(promoted, opens):
    assert embargo_ends_ms(at(promoted), EmbargoRules()) == at(opens)


def test_the_next_race_is_counted_by_a_validator_alone_and_by_the_calendar_among_several():
    now_ms = at("2026-08-03T09:00")
    assert coming_race((), now_ms, DEMO) == ("race-000001", now_ms + 15_000)
    assert coming_race([RaceState(race_id="race-000001")], now_ms, DEMO)[0] == "race-000002"
    days = datetime(2026, 8, 3).toordinal() - datetime(2000, 1, 1).toordinal()
    assert coming_race((), now_ms, PAPER) == (f"race-{days:06}", at("2026-08-03T12:00"))
