"""What follows a fault: nobody's outage is an agent's zero, and no item is tried for ever at the front of the queue."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.policy import RaceRules
from arena.race.decider import after_fault, is_last_attempt, may_diverge
from arena.records.model import Stage
from foundation.codes import CODES, Owner
from foundation.errors import Failure

RULES = RaceRules(attempts=3, retry_ms=1_000, retry_max_ms=8_000)
OURS, UPSTREAM, PROBLEM = Failure(code="V2005"), Failure(code="U3002"), Failure(code="P4006")


@pytest.mark.parametrize("failure", [OURS, UPSTREAM])
def test_nothing_of_ours_or_of_an_upstream_closes_a_qualifying_item(failure):
    retry = after_fault(failure, "qualifying", faults=10_000, counted=10_000, rules=RULES)
    longest_ms = RULES.retry_max_ms << 7 if failure is OURS else RULES.retry_max_ms
    assert not retry.is_closing and retry.delay_ms == longest_ms


QUARANTINED = Failure(code="V2009")


@pytest.mark.parametrize("counted", [0, 1, 5])
def test_an_episode_that_ended_two_workers_is_closed_by_a_race_and_waits_longest_in_qualifying(counted):
    assert CODES["V2009"].owner is Owner.VALIDATOR, "settlement asks the control agent whose fault it was"
    stages: tuple[Stage, ...] = ("race", "qualifying")
    raced, asked = (after_fault(QUARANTINED, stage, faults=counted, counted=counted, rules=RULES) for stage in stages)
    assert (raced.is_closing, raced.is_counted) == (True, True)
    assert not asked.is_closing and asked.is_counted
    assert asked.delay_ms == RULES.retry_max_ms << max(0, counted - RULES.attempts)
    assert not raced.may_diverge and not asked.may_diverge, "an agent may bring it about"


@pytest.mark.parametrize("stage", ["race", "qualifying"])
def test_a_broken_problem_is_closed_at_once_and_nobody_is_charged(stage):
    retry = after_fault(PROBLEM, stage, faults=0, counted=0, rules=RULES)
    assert (retry.is_closing, retry.is_counted) == (True, False)


def test_the_delay_doubles_with_every_fault_up_to_its_maximum():
    delays = [after_fault(UPSTREAM, "race", faults=faults, counted=0, rules=RULES).delay_ms for faults in range(5)]
    assert delays == [1_000, 2_000, 4_000, 8_000, 8_000]


REFUSED, SHAPE, LOST = Failure(code="U3006"), Failure(code="U3007"), Failure(code="V2006")
CAPPED = RaceRules(attempts=3, refused_attempts=3)


@pytest.mark.parametrize("stage", ["race", "qualifying"])
def test_a_refusal_is_counted_in_every_stage_and_closes_nothing(stage):
    for counted in range(9):
        retry = after_fault(REFUSED, stage, faults=counted, counted=counted, rules=CAPPED)
        assert (retry.is_closing, retry.is_counted, retry.is_refused) == (False, False, True)
    assert [is_last_attempt(refused, CAPPED) for refused in range(4)] == [False, False, True, True]


def ended(failures: Iterable[Failure], stage: Stage = "race") -> tuple[int, bool]:
    """Which of these faults, one an attempt, ends the item under the caps of `CAPPED`, and whether the agent is scored;
    how many there were when none does."""
    faults = counted = refused = 0
    for failure in failures:
        if failure is REFUSED and is_last_attempt(refused, CAPPED):
            return faults, True
        retry = after_fault(failure, stage, faults=faults, counted=counted, rules=CAPPED)
        if retry.is_closing:
            return faults, False
        faults, counted, refused = faults + 1, counted + retry.is_counted, refused + retry.is_refused
    return faults, False


@given(st.lists(st.sampled_from([OURS, REFUSED, UPSTREAM, SHAPE]), max_size=20))
def test_each_cap_is_used_up_by_its_own_kind_of_fault_alone(failures):
    ours = [place for place, failure in enumerate(failures) if failure.owner is Owner.VALIDATOR]
    refused = [place for place, failure in enumerate(failures) if failure is REFUSED]
    closing = ours[CAPPED.attempts - 1] if len(ours) >= CAPPED.attempts else len(failures)
    scoring = refused[CAPPED.refused_attempts - 1] if len(refused) >= CAPPED.refused_attempts else len(failures)
    assert ended(failures) == (min(closing, scoring), scoring < closing)
    assert ended(failures, "qualifying") == (scoring, scoring < len(failures))


def test_only_what_no_agent_can_bring_about_lets_a_restart_diverge():
    """Of every code of the registry: a new one is strict until it is looked at."""
    free = {code for code in CODES if may_diverge(Failure(code=code))}
    assert free == {"U3001", "U3002", "U3003", "U3004", LOST.code}
