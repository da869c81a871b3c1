"""Voids, faults, caps on cost, cancellation: what no number of agents can change, and what no fault wins."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.policies import CONTROL_SHA256, PAPER
from arena.race import scores
from arena.race.admission import is_possible, select_candidates
from arena.race.decider import race_items, stand_in_items, witness_item, work_item
from arena.race.draw import race_seed
from arena.race.machine import RaceState
from arena.race.settle import settle
from arena.records.model import AttemptRecord, SettlementRecord, Standing, VerdictRecord
from foundation.errors import Failure
from judge.verdict import UnscoredVerdict
from tests.arena.race_stand import (
    BEACON,
    RACE,
    VALS,
    attempt,
    batch,
    candidate,
    control_of,
    controlled,
    drawn_of,
    drawn_race,
    inputs,
    logged,
    raced,
    solves,
    witness_of,
)

RULES = controlled()
DRAWN = drawn_of(RULES, batch())
ABC = (candidate("a"), candidate("b"), candidate("c"))
SOLVES = solves({"a": 8, "b": 5, "c": 2})
STRICT = controlled(forgiven_e4=0)


def rows(record: SettlementRecord) -> dict[str, Standing]:
    return {row.agent_version_id: row for row in record.standings}


def about(row: Standing) -> tuple[object, ...]:
    """What a row says of its agent, whoever else raced."""
    return (row.race_score_e4, row.low_e4, row.high_e4, row.problems, row.missing, row.faulted, row.wins, row.losses)


# -- which agent it is


def test_the_control_agent_is_nobodys_and_can_be_no_candidate():
    subjects = [scores.control_subject(PAPER.race, agent) for agent in ("", "v-a", "v-b")]
    assert len({subject.agent_version_id for subject in subjects}) == 3
    for subject in subjects:
        assert subject.is_control and subject.agent_sha256 == CONTROL_SHA256
        assert not is_possible(subject, {})
        assert select_candidates([replace(candidate("x"), subject=subject)], 10_000) == ()
    assert not candidate("a").subject.is_control


def work(field, rules=RULES) -> RaceState:
    return drawn_race(field, rules, DRAWN, VALS)


def test_it_runs_on_every_drawn_problem_ahead_of_the_field_and_once_more_beside_an_agents_fault():
    items = race_items(work([candidate(f"{number:03}") for number in range(200)]), "val-a")
    ahead, others = items[: len(DRAWN)], items[len(DRAWN) :]
    assert [item.context.problem_id for item in ahead] == list(DRAWN)
    assert all(item.subject == scores.control_subject(RULES.race) for item in ahead)
    assert not any(item.subject.is_control for item in others)
    assert race_items(work(ABC), "stranger") == ()
    late = stand_in_items(work(ABC, controlled(validators_per_problem=1)), "val-a", {}, 10**9)
    assert late and not any(item.subject.is_control for item in late)
    control, pair = items[0], items[-1]
    witness = witness_item(pair, RULES.race)
    subject = witness_of(RULES, pair.subject.agent_version_id).subject
    assert witness is not None and (witness.context, witness.subject) == (pair.context, subject)
    assert witness.item_id == work_item(subject, pair.context).item_id
    assert witness_item(control, RULES.race) is None and witness_item(witness, RULES.race) is None
    assert witness_item(replace(pair, context=replace(pair.context, stage="qualifying")), RULES.race) is None


# -- voids
@pytest.mark.parametrize(
    ("lacking", "state", "void", "reason"),
    [
        ({(DRAWN[0], "val-a"), (DRAWN[0], "val-b"), (DRAWN[1], "val-c")}, "settled", (DRAWN[0],), ""),
        (
            {(problem_id, who) for problem_id in DRAWN[:2] for who in VALS},
            "cancelled",
            DRAWN[:2],
            "2 of 10 problems are void",
        ),
        ({(problem_id, who) for problem_id in DRAWN for who in VALS}, "cancelled", (), "no validator gave a result"),
    ],
)
def test_a_problem_is_void_if_and_only_if_the_control_lacks_results_on_it(lacking, state, void, reason):
    record = settle(raced(ABC, SOLVES, lacks_control=lambda problem_id, who: (problem_id, who) in lacking))
    assert (record.state, record.void, record.reason) == (state, void, reason)
    assert {row.problems for row in record.standings} == ({9} if state == "settled" else set())


def chaos(seed: int, share: float) -> tuple[Callable[..., object], Callable[..., int]]:
    """What sybils do: anything, at any validator."""

    def outcomes(agent: str, problem_id: str, validator: str) -> tuple[bool, int] | None:
        dice = random.Random(f"{seed} outcome {agent} {problem_id} {validator}")
        return None if dice.random() < share else (dice.random() < 0.5, dice.choice((1_000, 9_000)))

    def faults(agent: str, problem_id: str, validator: str) -> int:
        dice = random.Random(f"{seed} fault {agent} {problem_id} {validator}")
        return dice.choice((0, 1, 2, 5, -1, -5)) if dice.random() < share else 0

    return outcomes, faults


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sybils=st.integers(1, 12),
    share=st.sampled_from((0.1, 0.5, 1.0)),
    count=st.sampled_from((1, 2, 3, 5)),
)
def test_no_number_of_agents_with_any_faults_voids_a_problem_or_changes_anothers_score(seed, sybils, share, count):
    validators = tuple(f"val-{letter}" for letter in "abcde"[:count])
    wild, wild_faults = chaos(seed, share)
    mild, mild_faults = chaos(seed, 0.05)

    def outcomes(agent: str, *where: str):
        return wild(agent, *where) if agent.startswith("v-sybil") else mild(agent, *where)

    def faults(agent: str, *where: str):
        return wild_faults(agent, *where) if agent.startswith("v-sybil") else mild_faults(agent, *where)

    added = tuple(candidate(f"sybil{number}") for number in range(sybils))
    without = settle(raced(ABC, outcomes, faults, validators=validators))
    beside = settle(raced((*ABC, *added), outcomes, faults, validators=validators))
    assert beside.void == without.void == ()
    assert beside.state == without.state == "settled"
    for agent, row in rows(without).items():
        assert about(rows(beside)[agent]) == about(row)


# -- faults
def at(agents: set[str], problems: set[str], validators: set[str], met: int) -> Callable[[str, str, str], int]:
    return lambda agent, problem_id, validator: (
        met if agent in agents and problem_id in problems and validator in validators else 0
    )


@pytest.mark.parametrize("met", [-1, -5, 2, 5])
def test_a_fault_that_two_validators_met_scores_0_and_is_published_as_faulted(met):
    record = settle(raced(ABC, SOLVES, at({"v-a"}, {DRAWN[0]}, {"val-a", "val-b"}, met)))
    assert (rows(record)["v-a"].race_score_e4, rows(record)["v-a"].faulted) == (7_000, 1)
    assert (rows(record)["v-b"].race_score_e4, rows(record)["v-b"].faulted) == (5_000, 0)
    assert record.void == ()


def test_a_fault_stands_against_no_agent_where_the_control_failed_before_or_after_it():
    everywhere = at({"v-a"}, {DRAWN[0]}, set(VALS), 3)
    fair = about(rows(settle(raced(ABC, SOLVES, rules=STRICT)))["v-a"])
    assert about(rows(settle(raced(ABC, SOLVES, everywhere, rules=STRICT)))["v-a"]) != fair
    unseen = raced(ABC, SOLVES, everywhere, rules=STRICT, lacks_witness=lambda *_: True)
    assert about(rows(settle(unseen))["v-a"]) == fair
    made = raced(ABC, SOLVES, everywhere, rules=STRICT)
    for who in (control_of(STRICT), witness_of(STRICT, "v-a")):
        ill = tuple(logged(validator, 100_000, attempt(STRICT, who, DRAWN[0], is_closing=True)) for validator in VALS)
        assert about(rows(settle(replace(made, attempts=(*made.attempts, *ill))))["v-a"]) == fair
    early = tuple(
        replace(row, seq=0) if row.record.subject == witness_of(STRICT, "v-a").subject else row
        for row in made.evaluations
    )
    assert about(rows(settle(replace(made, evaluations=early)))["v-a"]) == fair


def test_a_single_fault_with_a_result_after_it_is_forgiven_on_one_problem_in_a_hundred():
    for many, faulted in ((1, 0), (2, 1), (10, 9)):
        record = settle(raced(ABC, SOLVES, at({"v-a"}, set(DRAWN[:many]), set(VALS), 1)))
        assert rows(record)["v-a"].faulted == faulted
    assert PAPER.race.forgiven_e4 * PAPER.race.problems <= 10_000


def test_worker_time_that_is_spent_scores_as_a_failure_that_the_validator_reports():
    made = raced(ABC, SOLVES)
    spent = [attempt(RULES, ABC[0], DRAWN[0], is_closing=True, code="A1020")] * len(VALS)
    for many in range(len(VALS) + 1):
        met = tuple(logged(validator, 90_000, record) for validator, record in zip(VALS[:many], spent, strict=False))
        score_e4 = rows(settle(replace(made, attempts=met)))["v-a"].race_score_e4
        assert score_e4 == (8_000 if many < 2 else 7_000)  # with no witness; two of three decide


def test_a_broken_problem_and_a_fault_that_nothing_followed_are_nobodys():
    made = raced(ABC, SOLVES)
    broken = tuple(
        logged(validator, 50_000 + number, attempt(RULES, who, DRAWN[0], is_closing=True, code="P4006"))
        for number, who in enumerate(ABC)
        for validator in VALS
    )
    assert {row.faulted for row in settle(replace(made, attempts=broken)).standings} == {0}
    late = logged("val-a", 90_000, attempt(RULES, ABC[0], DRAWN[0]))  # it may have come after the settlement
    assert settle(replace(made, attempts=(late,))) == settle(made)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from((0, 1_900, 5_900, 10_000)), min_size=5, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from(((1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (5, 2), (5, 3))),
    st.integers(0, 2),
)
def test_throwing_results_away_never_pays(qualities, thrown, sizes, more):
    """Whatever an agent would have got at each validator, and whichever of it it throws away, the faults are in the
    places of what was thrown, and no stand-in fills them."""
    copies, required = sizes
    validators = tuple(f"val-{letter}" for letter in "abcde"[: min(5, copies + more)])
    rules = controlled(validators_per_problem=copies, results_required=required, forgiven_e4=0)
    quality = dict(zip(validators, qualities, strict=False))
    threw = dict(zip(validators, thrown, strict=False))

    def outcomes(agent: str, problem_id: str, validator: str):
        return quality[validator] > 0, max(1_000, quality[validator])

    def faults(agent: str, problem_id: str, validator: str) -> int:
        return int(threw[validator])

    def gambled(agent: str, problem_id: str, validator: str):
        second_try = True, 10_000
        return second_try if threw[validator] else outcomes(agent, problem_id, validator)

    fair = settle(raced(ABC[:1], outcomes, rules=rules, validators=validators)).standings[0]
    gamble = settle(raced(ABC[:1], gambled, faults, rules=rules, validators=validators)).standings[0]
    assert gamble.race_score_e4 <= fair.race_score_e4
    assert gamble.agentic_share_e4 <= fair.agentic_share_e4


# -- a cap on what models may cost
MADE = inputs(ABC, solves({"a": 10, "b": 6, "c": 1}), rules=RULES, validators=VALS)
SEED = race_seed(RACE, MADE.batch_sha256, BEACON)
Stopped = Collection[tuple[str, str]]  # (validator, problem) that a cap had no room for
SPENT = Failure(code="U3022", detail="spent")


def stop(made: scores.SettlementInputs, stopped: Stopped) -> scores.SettlementInputs:
    """The race with no verdict on stopped problems, as a node records it: on every pair, solved or not."""

    def owed(row: scores.LoggedRecord[VerdictRecord]) -> scores.LoggedRecord[VerdictRecord]:
        if (row.validator, row.record.context.problem_id) not in stopped:
            return row
        given = row.record.verdict
        unscored = UnscoredVerdict(body_sha256=given.body_sha256, rubric_id=given.rubric_id, failure=SPENT)
        return replace(row, record=replace(row.record, verdict=unscored))

    return replace(made, verdicts=tuple(map(owed, made.verdicts)))


def without(made: scores.SettlementInputs, stopped: Stopped) -> scores.SettlementInputs:
    """The race in which those validators ran nothing of these problems."""

    def kept(rows):
        return tuple(row for row in rows if (row.validator, row.record.context.problem_id) not in stopped)

    return replace(made, evaluations=kept(made.evaluations), verdicts=kept(made.verdicts))


def cap(made: scores.SettlementInputs, stopped: Stopped) -> scores.SettlementInputs:
    """The race in which a cap on cost ended stopped problems on their way: every other pair of them was not run."""
    rows = [row for row in made.evaluations if (row.validator, row.record.context.problem_id) in stopped]
    attempts = tuple(
        scores.LoggedRecord(
            validator=row.validator,
            seq=row.seq,
            content_sha256=row.content_sha256,
            record=AttemptRecord(
                attempt_id="a",
                subject=row.record.subject,
                context=row.record.context,
                ended="faulted",
                failure=SPENT,
                is_closing=True,
            ),
        )
        for row in rows[::2]
    )
    kept = tuple(row for row in made.evaluations if row not in rows[::2])
    whole = {(row.validator, row.record.context.problem_id) for row in rows[::2]}
    return replace(without(replace(made, evaluations=kept), set(stopped) - whole), attempts=attempts)


@pytest.mark.parametrize("end", [stop, cap])
@given(stopped=st.sets(st.tuples(st.sampled_from(VALS), st.sampled_from(DRAWN))))
def test_what_a_cap_stops_is_a_result_of_no_agent_and_nobodys_zero(end, stopped):
    made = end(MADE, stopped)
    counted = scores.count_results(made, SEED, DRAWN)
    assert replace(counted, stopped=frozenset()) == scores.count_results(without(MADE, stopped), SEED, DRAWN)
    record, other = settle(made), settle(without(MADE, stopped))
    assert set(other.void) <= set(record.void) <= {problem_id for _, problem_id in stopped}
    assert all(row.missing == row.faulted == 0 for row in record.standings)
    for validator in VALS:
        given = {pair for pair, results in scores.results_of_field(made).items() if validator in results}
        assert given == {(who.subject.agent_version_id, problem_id) for who in ABC for _, problem_id in given}
