"""What follows a fault: nobody's outage is an agent's zero, and no item is tried for ever at the front of the queue."""

from __future__ import annotations

import pytest

from arena.policy import RaceRules
from arena.race.retry import after_fault, is_last_attempt, may_diverge
from problems.codes import CODES
from problems.errors import Failure

RULES = RaceRules(attempts=3, retry_ms=1_000, retry_max_ms=8_000)
OURS, UPSTREAM, PROBLEM = Failure(code="V2005"), Failure(code="U3002"), Failure(code="P4006")


def test_our_own_faults_close_a_race_item_after_the_attempts_of_the_policy():
    closings = [
        after_fault(OURS, "race", faults=counted, counted=counted, rules=RULES).is_closing for counted in range(4)
    ]
    assert closings == [False, False, True, True]


@pytest.mark.parametrize("failure", [OURS, UPSTREAM])
def test_nothing_of_ours_or_of_an_upstream_closes_a_qualifying_item(failure):
    retry = after_fault(failure, "qualifying", faults=10_000, counted=10_000, rules=RULES)
    longest_ms = RULES.retry_max_ms << 7 if failure is OURS else RULES.retry_max_ms
    assert not retry.is_closing and retry.delay_ms == longest_ms


def test_an_agent_that_provokes_our_faults_in_qualifying_costs_a_dozen_attempts_a_day():
    rules, spent_ms, attempts = RaceRules(), 0, 0
    while spent_ms < 86_400_000:
        retry = after_fault(OURS, "qualifying", faults=attempts, counted=attempts, rules=rules)
        spent_ms, attempts = spent_ms + retry.delay_ms, attempts + 1
    assert attempts <= 15


def test_an_outage_never_uses_up_attempts():
    retry = after_fault(UPSTREAM, "race", faults=10_000, counted=2, rules=RULES)
    assert (retry.is_closing, retry.is_counted) == (False, False)


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
        assert (retry.is_closing, retry.is_counted) == (False, True)
    assert [is_last_attempt(counted, CAPPED) for counted in range(4)] == [False, False, True, True]


def test_under_a_policy_without_the_cap_refusals_are_what_they_were():
    assert not after_fault(REFUSED, "race", faults=0, counted=0, rules=RULES).is_counted
    assert not any(is_last_attempt(counted, RULES) for counted in range(100))


@pytest.mark.parametrize("stage", ["race", "qualifying"])
def test_a_shape_that_is_not_served_uses_up_no_attempt(stage):
    retry = after_fault(SHAPE, stage, faults=99, counted=2, rules=CAPPED)
    assert (retry.is_closing, retry.is_counted) == (False, False)


def test_only_what_no_agent_can_bring_about_lets_a_restart_diverge():
    """Of every code of the registry: a new one is strict until it is looked at."""
    free = {code for code in CODES if may_diverge(Failure(code=code))}
    assert free == {"U3001", "U3002", "U3003", "U3004", LOST.code}
