"""When a race closes, and the moments of one that several validators share."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec

from arena.policy import EmbargoRules, Policy, RaceRules

RaceMoment = Literal["closing", "field_anchor", "field_receipt", "settling", "results_receipt", "countersign"]
Roll = Literal["field", "results"]

# The moments at which a roll's anchors and its receipts are read.
ANCHOR: dict[Roll, RaceMoment] = {"field": "field_anchor", "results": "settling"}
RECEIPT: dict[Roll, RaceMoment] = {"field": "field_receipt", "results": "results_receipt"}


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Unix milliseconds. What is to stand on chain at a moment is committed within `lead_ms` before it; a third of the
    time between two moments, so that a chain that takes one commitment in 100 blocks refuses none in its turn."""

    closing_ms: int
    field_anchor_ms: int
    field_receipt_ms: int
    settling_ms: int
    results_receipt_ms: int
    countersign_ms: int
    give_up_ms: int  # nobody waits for a lacking log any longer
    abandon_ms: int  # nor for the settlement that has the quorum
    lead_ms: int

    def at(self, moment: RaceMoment) -> int:
        """The time of a moment."""
        at_ms: int = getattr(self, f"{moment}_ms")
        return at_ms

    def is_quiet(self, now_ms: int) -> bool:
        """True while the slot belongs to the race: an ordinary anchor now would stand in the way of one that counts."""
        before_ms = 3 * self.lead_ms
        is_field = self.field_anchor_ms - before_ms <= now_ms < self.field_receipt_ms
        return is_field or self.settling_ms - before_ms <= now_ms < self.countersign_ms


def timeline(closes_ms: int, rules: RaceRules) -> Timeline:
    """The moments of a race that closes at `closes_ms`."""
    field_ms, settling_ms = closes_ms + rules.qualifying_grace_ms, closes_ms + rules.run_ms
    countersign_ms = settling_ms + 2 * rules.reveal_ms
    return Timeline(
        closing_ms=closes_ms,
        field_anchor_ms=field_ms,
        field_receipt_ms=field_ms + rules.reveal_ms,
        settling_ms=settling_ms,
        results_receipt_ms=settling_ms + rules.reveal_ms,
        countersign_ms=countersign_ms,
        give_up_ms=countersign_ms + rules.agree_ms,
        abandon_ms=countersign_ms + rules.agree_ms + rules.agree_ms // 2,
        lead_ms=rules.reveal_ms // 3,
    )


ANSWER_MS_MIN, ANSWER_MS_MAX = 1_000, 30_000  # for which one validator is waited for, by another


def answer_ms(rules: RaceRules) -> int:
    """How long a validator waits for an answer of another: half of the shortest window in which it asks, so that one
    that is silent leaves the others their time."""
    return min(ANSWER_MS_MAX, rules.reveal_ms // 2, rules.agree_ms // 2, rules.stand_in_ms // 2)


def timeline_refusal(rules: RaceRules) -> str | None:
    """Why validators can't agree under these rules, or None: a peer must have the time to answer, and the field roll
    must end before the results roll begins."""
    needed_ms = rules.qualifying_grace_ms + 2 * rules.reveal_ms
    if rules.run_ms <= needed_ms:
        return f"run_ms is {rules.run_ms}; the field is known {needed_ms} ms after the close"
    if answer_ms(rules) < ANSWER_MS_MIN:
        windows = f"reveal_ms {rules.reveal_ms}, agree_ms {rules.agree_ms}, stand_in_ms {rules.stand_in_ms}"
        return f"{windows}: each must be at least {2 * ANSWER_MS_MIN}, for a peer that is slow to answer"
    return None


def qualified_within_ms(policy: Policy, owners: int, workers: int) -> int:
    """How long after the close the last suite ends that took a worker no longer than the policy lets an agent's own
    code hold one, where so many owners have one waiting. The queue serves the owner that had the least, so each of them
    has had at most as much, and the problem that it is at."""
    problem_ms = policy.limits.agent_time_ms
    return problem_ms + -(-owners * (policy.qualifying.worker_ms + problem_ms) // workers)


_SATURDAY = 5
_DAY_0 = date(2000, 1, 1).toordinal()


def closing_ms(opened_ms: int, rules: RaceRules) -> int:
    """When a race opened at `opened_ms` closes: the next daily close strictly later, or `closes_after_ms` later."""
    if rules.closes_after_ms is not None:
        return opened_ms + rules.closes_after_ms
    return _next_local(opened_ms, rules.closes_at_minute, rules.timezone, is_weekday_only=False)


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
    """When the source of a winner promoted at `promoted_ms` opens: the next such minute strictly later."""
    return _next_local(promoted_ms, rules.opens_at_minute, rules.timezone, is_weekday_only=rules.is_weekday_only)


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


def opening_ms(closes_ms: int, policy: Policy) -> int:
    """When source and traces of a race that closes then open: at the policy's next hour for it, strictly later
    than the settlement. Races without a calendar (`closes_after_ms`) have no embargo: when they are settled."""
    settled_ms = timeline(closes_ms, policy.race).countersign_ms
    return settled_ms if policy.race.closes_after_ms is not None else embargo_ends_ms(settled_ms, policy.embargo)
