"""What follows a fault: nobody's outage is an agent's zero, and no item is tried for ever at the front of the queue."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.policy import RaceRules
from arena.race.decider import after_fault, is_last_attempt, is_nobodys_fault
from arena.records.model import Stage
from arena.records.port import Requeue
from foundation.codes import CODES, Owner
from foundation.errors import Failure

RULES = RaceRules(attempts=3, retry_ms=1_000, retry_max_ms=8_000, refused_attempts=3)
OURS, UPSTREAM, PROBLEM, REFUSED = (Failure(code=code) for code in ("V2005", "U3002", "P4006", "U3006"))
QUARANTINED, SHAPE = Failure(code="V2009"), Failure(code="U3007")


def back(delay_ms: int, *, is_counted: bool = False, is_refused: bool = False) -> Requeue:
    return Requeue(delay_ms=delay_ms, is_fault=True, is_counted=is_counted, is_refused=is_refused)


@pytest.mark.parametrize(
    ("failure", "stage", "before", "expected"),
    [
        # nothing of ours or of an upstream closes a qualifying item, ever
        (OURS, "qualifying", 10_000, back(8_000 << 7, is_counted=True)),
        (UPSTREAM, "qualifying", 10_000, back(8_000)),
        (QUARANTINED, "qualifying", 0, back(8_000, is_counted=True)),
        (QUARANTINED, "qualifying", 5, back(8_000 << 2, is_counted=True)),
        # a race gives up faults of ours, at once what ended two workers
        (OURS, "race", 1, back(2_000, is_counted=True)),
        (OURS, "race", 2, None),
        (QUARANTINED, "race", 0, None),
        (UPSTREAM, "race", 2, back(4_000)),
        (UPSTREAM, "race", 9, back(8_000)),
        (REFUSED, "race", 0, back(1_000, is_refused=True)),
        (REFUSED, "qualifying", 9, back(8_000, is_refused=True)),
        # a broken problem is closed, and nobody is charged
        (PROBLEM, "race", 0, None),
        (PROBLEM, "qualifying", 0, None),
    ],
)
def test_a_fault_closes_an_item_or_sends_it_back_for_longer(failure, stage, before, expected):
    assert after_fault(failure, stage, faults=before, counted=before, rules=RULES) == expected


def ended(failures: Iterable[Failure], stage: Stage = "race") -> tuple[int, bool]:
    """Which of these faults, one an attempt, ends the item, and whether the agent is scored; how many there were when
    none does."""
    faults = counted = refused = 0
    for failure in failures:
        if failure is REFUSED and is_last_attempt(refused, RULES):
            return faults, True
        retry = after_fault(failure, stage, faults=faults, counted=counted, rules=RULES)
        if retry is None:
            return faults, False
        faults, counted, refused = faults + 1, counted + retry.is_counted, refused + retry.is_refused
    return faults, False


@given(st.lists(st.sampled_from([OURS, REFUSED, UPSTREAM, SHAPE]), max_size=20))
def test_each_cap_is_used_up_by_its_own_kind_of_fault_alone(failures):
    ours = [place for place, failure in enumerate(failures) if failure.owner is Owner.VALIDATOR]
    refused = [place for place, failure in enumerate(failures) if failure is REFUSED]
    closing = ours[RULES.attempts - 1] if len(ours) >= RULES.attempts else len(failures)
    scoring = refused[RULES.refused_attempts - 1] if len(refused) >= RULES.refused_attempts else len(failures)
    assert ended(failures) == (min(closing, scoring), scoring < closing)
    assert ended(failures, "qualifying") == (scoring, scoring < len(failures))


def test_only_what_no_agent_can_bring_about_lets_a_restart_diverge():
    """Of every code of the registry: a new one is strict until it is looked at."""
    free = {code for code in CODES if is_nobodys_fault(Failure(code=code))}
    assert free == {"U3001", "U3002", "U3003", "U3004", "V2006"}
