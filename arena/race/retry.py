"""What follows a fault of ours or of an upstream: when the episode is tried again, and when nobody tries any more.

Promise: a pure function. A fault never becomes a score. Only a validator's own faults use up attempts, and only in a
race, whose rules for missing results then apply; qualifying waits, so an agent that provokes our faults never passes,
and waits ever longer, so that it costs ever less.
An outage closes nothing: it ends, or the race's time does (DESIGN sections 7 and 9).
"""

from __future__ import annotations

import msgspec

from arena.policy import RaceRules
from arena.records.model import Stage
from problems.errors import Failure, Owner

_DOUBLINGS_MAX = 7  # of the longest wait: from ten minutes to a day


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """`is_closing`: the item is never tried again. Else it is, once `delay_ms` have passed."""

    is_closing: bool
    is_counted: bool
    delay_ms: int = 0


def after_fault(failure: Failure, stage: Stage, *, faults: int, counted: int, rules: RaceRules) -> Retry:
    """What to do after one more fault; `faults` and `counted` are the lease's, before this one.

    The delay doubles with every fault of the item, from `retry_ms` to `retry_max_ms`, so that an item that can't be
    served stands behind all others. Beyond `attempts` faults of ours a qualifying item's longest wait doubles, too.
    """
    is_ours = failure.owner is Owner.VALIDATOR
    is_used_up = is_ours and stage == "race" and counted + 1 >= rules.attempts
    if is_used_up or failure.owner in (Owner.PROBLEM, Owner.AGENT):
        return Retry(is_closing=True, is_counted=is_ours)
    most_ms = rules.retry_max_ms
    if is_ours and stage == "qualifying":
        most_ms <<= min(max(0, counted - rules.attempts), _DOUBLINGS_MAX)
    delay_ms = min(most_ms, rules.retry_ms << min(faults, 32))
    return Retry(is_closing=False, is_counted=is_ours, delay_ms=delay_ms)
