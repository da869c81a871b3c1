"""What follows a fault of ours or of an upstream: when the episode is tried again, and when nobody tries any more.

Pure functions. A fault never becomes a score. Only a validator's own faults close an item, and only in a race,
whose rules for missing results then apply; qualifying waits, so an agent that provokes our faults never passes, and
waits ever longer, so that it costs ever less. An outage closes nothing: it ends, or the race's time does. A request
that an endpoint refuses while it answers a neutral one (U3006) is counted in every stage; the last attempt the policy
allows ends by it as the agent's, with a score. The two caps are counted apart: neither kind of fault uses up the
other's. An episode that ended two workers in slots that went on well (V2009) is closed at once in a race and takes the
longest pause in qualifying: a third worker would tell nothing, and settlement charges both faults alike. What follows
such a judging of a trace is the same.

A restart owes what the attempts before it were answered (`harness.inference.port.CompletionJournal`), and may leave it
out only after what no agent can bring about: an outage in which nothing answers, a lease that this node lost.
"""

from __future__ import annotations

import msgspec

from arena.policy import RaceRules
from arena.records.model import Stage
from foundation.codes.names import (
    JOB_QUARANTINED,
    LEASE_LOST,
    MODEL_BUSY,
    MODEL_FAILED,
    MODEL_UNREADABLE,
    NO_ENDPOINT,
    REQUEST_PROVOKED,
)
from foundation.codes.row import Owner
from foundation.errors import Failure

# No agent can bring these about: nothing at all answers, or this node lost the lease. U3007 is none of them: the agent
# chooses the length, model and temperature that are not served. Nor is U3008: requests of its own can fill the slots.
_NOBODYS = frozenset({NO_ENDPOINT, MODEL_FAILED, MODEL_UNREADABLE, MODEL_BUSY, LEASE_LOST})
_DOUBLINGS_MAX = 7  # of the longest wait: from ten minutes to a day


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """`is_closing`: the item is never tried again. Else it is, once `delay_ms` have passed; `may_diverge`: whatever the
    agent asks then. `is_counted` uses up the attempts for faults of ours, `is_refused` those for refused requests."""

    is_closing: bool
    is_counted: bool
    is_refused: bool = False
    may_diverge: bool = False
    delay_ms: int = 0


def after_fault(failure: Failure, stage: Stage, *, faults: int, counted: int, rules: RaceRules) -> Retry:
    """What to do after one more fault; `faults` and `counted` are the lease's, before this one.

    The delay doubles with every fault of the item, from `retry_ms` to `retry_max_ms`, so that an item that can't be
    served stands behind all others. Beyond `attempts` faults of ours a qualifying item's longest wait doubles, too.
    """
    is_ours = failure.owner is Owner.VALIDATOR
    is_quarantined = failure.code == JOB_QUARANTINED
    is_used_up = is_ours and stage == "race" and (is_quarantined or counted + 1 >= rules.attempts)
    if is_used_up or failure.owner in (Owner.PROBLEM, Owner.AGENT):
        return Retry(is_closing=True, is_counted=is_ours)
    most_ms = rules.retry_max_ms
    if is_ours and stage == "qualifying":
        most_ms <<= min(max(0, counted - rules.attempts), _DOUBLINGS_MAX)
    delay_ms = most_ms if is_quarantined else min(most_ms, rules.retry_ms << min(faults, 32))
    return Retry(
        is_closing=False,
        is_counted=is_ours,
        is_refused=failure.code == REQUEST_PROVOKED,
        may_diverge=may_diverge(failure),
        delay_ms=delay_ms,
    )


def may_diverge(failure: Failure) -> bool:
    """Whether an attempt that ended so lay in no agent's hands, so that its restart owes nothing."""
    return failure.code in _NOBODYS


def is_last_attempt(refused: int, rules: RaceRules) -> bool:
    """Whether the policy allows no other attempt when a request is refused in this one; `refused` is the lease's."""
    return 0 < rules.refused_attempts <= refused + 1
