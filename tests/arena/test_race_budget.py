"""Spent judging budgets in a race of several validators: whole problems for everybody, never some agents."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.race.draw import race_seed
from arena.race.scores import LoggedRecord, SettlementInputs, count_results, pairs_given
from arena.race.settle import settle
from arena.records.model import VerdictRecord
from foundation.errors import Failure
from judge.verdict import UnscoredVerdict
from tests.arena.race_stand import BEACON, RACE, batch_of, candidate, drawn_of, inputs, policy, solves

VALS = ("val-a", "val-b", "val-c")
RULES = policy(validators_per_problem=3, results_required=2)
FIELD = tuple(map(candidate, "abc"))
MADE = inputs(FIELD, solves({"a": 10, "b": 6, "c": 1}), rules=RULES, validators=VALS)
DRAWN = drawn_of(RULES, batch_of(RULES))
SEED = race_seed(RACE, MADE.batch_sha256, BEACON)
Stopped = Collection[tuple[str, str]]  # (validator, problem) that a budget had no room for


def stop(made: SettlementInputs, stopped: Stopped) -> SettlementInputs:
    """The race with no verdict on stopped problems, as a node records it: on every pair, solved or not."""

    def owed(row: LoggedRecord[VerdictRecord]) -> LoggedRecord[VerdictRecord]:
        if (row.validator, row.record.context.problem_id) not in stopped:
            return row
        given = row.record.verdict
        failure = Failure(code="U3022", detail="spent")
        unscored = UnscoredVerdict(body_sha256=given.body_sha256, rubric_id=given.rubric_id, failure=failure)
        return replace(row, record=replace(row.record, verdict=unscored))

    return replace(made, verdicts=tuple(map(owed, made.verdicts)))


def without(made: SettlementInputs, stopped: Stopped) -> SettlementInputs:
    """The race in which those validators ran nothing of these problems."""
    kept = {"evaluations": made.evaluations, "verdicts": made.verdicts}
    return replace(
        made,
        **{
            name: tuple(row for row in rows if (row.validator, row.record.context.problem_id) not in stopped)
            for name, rows in kept.items()
        },
    )


@given(st.sets(st.tuples(st.sampled_from(VALS), st.sampled_from(DRAWN))))
def test_a_validator_that_stops_a_problem_has_a_result_of_it_for_no_agent(stopped):
    made = stop(MADE, stopped)
    assert count_results(made, SEED, DRAWN) == count_results(without(MADE, stopped), SEED, DRAWN)
    record, other = settle(made), settle(without(MADE, stopped))
    assert (record.state, record.void, record.standings) == (other.state, other.void, other.standings)
    given = pairs_given(made)
    for validator in VALS:
        done = {problem_id for _, problem_id in given.get(validator, ())}
        assert given.get(validator, frozenset()) == {(who.subject.agent_version_id, p) for who in FIELD for p in done}


def test_a_problem_that_all_stop_is_void_and_costs_nobody():
    """Who fails it needs no verdict: counted, a failure would leave the solvers alone without a result."""
    record = settle(stop(MADE, {(validator, DRAWN[3]) for validator in VALS}))
    assert record.void == (DRAWN[3],)
    assert {row.missing for row in record.standings} == {0}
