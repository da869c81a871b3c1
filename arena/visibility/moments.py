"""When the moments of a race are: from its close and its policy, and from what its log says.

Pure; all times are unix milliseconds. Every validator computes the same end of an embargo, because it follows from the
close and the policy that a settlement states and from no validator's own clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import msgspec

from arena.policy import Policy
from arena.race.settlement.provenance import policy_of
from arena.race.state.schedule import embargo_ends_ms
from arena.race.state.timeline import timeline
from arena.records.model import Context, ReleasedProblem, ReleaseRecord, SettlementRecord
from arena.visibility.rule import Moment
from problems.model import Pool

_YEAR_9999_MS = 253_402_300_799_000


def opening_ms(closes_ms: int, policy: Policy) -> int:
    """When source and traces of a race that closes then open: the next weekday at the policy's hour, strictly later
    than the settlement. Races without a calendar (`closes_after_ms`) have no embargo: when they are settled."""
    settled_ms = timeline(closes_ms, policy.race).countersign_ms
    return settled_ms if policy.race.closes_after_ms is not None else embargo_ends_ms(settled_ms, policy.embargo)


def source_opening_ms(settlement: SettlementRecord) -> int | None:
    """When the source of the agent that a settlement promoted opens; None where it promoted none.

    Raises ArenaError V2102 for a promotion that does not state its inputs, or another policy than it names: such a one
    names no time.
    """
    if settlement.state != "settled" or not settlement.is_promotion:
        return None
    policy = policy_of(settlement)
    assert settlement.inputs is not None  # `policy_of` read them
    return opening_ms(settlement.inputs.closes_ms, policy)


def stated_opening_ms(closes_ms: int, policy: Policy) -> int | msgspec.UnsetType:
    """What a release record states of it: nothing where the release itself opens the race."""
    return msgspec.UNSET if policy.race.closes_after_ms is not None else opening_ms(closes_ms, policy)


def moment_at(
    now_ms: int,
    *,
    closes_ms: int,
    revealed_ms: int | None = None,
    settled_ms: int | None = None,
    opens_ms: int | None = None,
) -> Moment:
    """The moment of a race at `now_ms`. None: not known yet, so not reached; an embargo ends for settled races only."""
    if settled_ms is not None and now_ms >= settled_ms:
        return "published" if opens_ms is not None and now_ms >= opens_ms else "settled"
    if revealed_ms is not None and now_ms >= revealed_ms:
        return "revealed"
    return "racing" if now_ms >= closes_ms else "open"


def released_moment(release: ReleaseRecord | None, now_ms: int) -> Moment:
    """The moment of a race that was drawn, by its release record alone: None while the log has none.

    Records of releases that did not state an opening opened the race by themselves.
    """
    if release is None:
        return "racing"
    return "published" if release.opens_ms is msgspec.UNSET or now_ms >= release.opens_ms else "settled"


def opening_text(release: ReleaseRecord) -> str:
    """When a released race opens, in UTC; "" where the release itself opened it."""
    if release.opens_ms is msgspec.UNSET:
        return ""
    return datetime.fromtimestamp(min(release.opens_ms, _YEAR_9999_MS) / 1000, UTC).isoformat(timespec="seconds")


def settlement_moment(record: SettlementRecord, race: Moment) -> Moment:
    """The moment for a settlement record whose race stands at `race`. One of a batch that was never drawn from waits
    for no release: it tells of no problem but the random ids that the batch's notice names anyway."""
    is_beacon_out = record.inputs is not None and record.inputs.beacon_signature != ""
    is_drawn = record.state == "settled" or bool(record.drawn) or is_beacon_out
    return race if is_drawn else "published"


def standing_of(
    context: Context, releases: Mapping[str, Mapping[str, ReleasedProblem]], embargoed: Collection[str] = ()
) -> tuple[Moment, Pool | None]:
    """Moment and pool of a record's problem, given the released problems by race and public id.

    Suites are public: what does not belong to a race is `published`, and `never_touch`, so it goes out by name only. A
    problem that its race's release does not name has no pool.
    """
    if context.stage != "race":
        return "published", "never_touch"
    released = releases.get(context.race_id)
    if released is None:
        return "racing", None
    problem = released.get(context.problem_id)
    return "settled" if context.race_id in embargoed else "published", problem.pool if problem else None


def embargoed_races(releases: Mapping[str, ReleaseRecord], now_ms: int) -> frozenset[str]:
    """The released races whose embargo still runs."""
    return frozenset(race for race, record in releases.items() if released_moment(record, now_ms) == "settled")
