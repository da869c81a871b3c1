"""The calendar of races: when a race closes and when a winner's source opens, in local time with daylight saving.

Pure: moments come in and go out as unix milliseconds. A daily close stands at the same local minute on both sides of a
change of clocks, so a race may last 23 or 25 hours. Sources: paper section 4; docs/architecture.md#the-mechanism.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from arena.policy import EmbargoRules, RaceRules
from arena.race.state.timeline import timeline

_SATURDAY = 5
_DAY_0 = date(2000, 1, 1).toordinal()


def closing_ms(opened_ms: int, rules: RaceRules) -> int:
    """When a race opened at `opened_ms` closes: the next daily close strictly later, or `closes_after_ms` later."""
    if rules.closes_after_ms is not None:
        return opened_ms + rules.closes_after_ms
    return _next_local(opened_ms, rules.closes_at_minute, rules.timezone, is_weekday_only=False)


def coming_closes_ms(now_ms: int, rules: RaceRules, count: int) -> tuple[int, ...]:
    """The closes of the next `count` races, soonest first, if each opens before the next close."""
    closes = [closing_ms(now_ms, rules)]
    while len(closes) < count:
        closes.append(closing_ms(closes[-1], rules))
    return tuple(closes[:count])


def shared_closes_ms(after_ms: int, rules: RaceRules) -> Iterator[int]:
    """The closes (unix ms) after a moment that validators have in common, soonest first, without end.

    The daily ones; where a race closes some time after it opens, the multiples of that time and of a whole race after
    it: no validator's own opening moves them.
    """
    while True:
        if rules.closes_after_ms is None:
            after_ms = closing_ms(after_ms, rules)
        else:
            period_ms = _period_ms(rules.closes_after_ms, rules)
            after_ms = (after_ms // period_ms + 1) * period_ms
        yield after_ms


def race_number(closes_ms: int, rules: RaceRules) -> int:
    """The number of a shared race that closes then: days since the year 2000 where it closes, or periods."""
    if rules.closes_after_ms is not None:
        return closes_ms // _period_ms(rules.closes_after_ms, rules)
    return datetime.fromtimestamp(closes_ms / 1000, ZoneInfo(rules.timezone)).date().toordinal() - _DAY_0


def _period_ms(closes_after_ms: int, rules: RaceRules) -> int:
    return closes_after_ms + timeline(0, rules).abandon_ms


def embargo_ends_ms(promoted_ms: int, rules: EmbargoRules) -> int:
    """When the source of a winner promoted at `promoted_ms` opens: the next Monday-to-Friday minute strictly later."""
    return _next_local(promoted_ms, rules.opens_at_minute, rules.timezone, is_weekday_only=True)


def _next_local(after_ms: int, minute: int, zone_name: str, *, is_weekday_only: bool) -> int:
    zone = ZoneInfo(zone_name)
    day = datetime.fromtimestamp(after_ms / 1000, UTC).astimezone(zone).date()
    while True:
        # fold=0: a repeated local minute means its first occurrence; a skipped one, an hour later on the new clock.
        moment = datetime.combine(day, time(minute // 60, minute % 60), tzinfo=zone)
        at_ms = round(moment.timestamp()) * 1000
        if at_ms > after_ms and not (is_weekday_only and day.weekday() >= _SATURDAY):
            return at_ms
        day += timedelta(days=1)
