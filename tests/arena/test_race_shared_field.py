"""The field of a shared race, and what a race takes over from the races before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.chain.port import Commitment
from arena.race.admission import RaceRecords, qualified_candidates
from arena.race.draw import qualifying_order
from arena.race.machine import RaceState, open_race, succession
from arena.race.model import Top
from arena.race.settle import settle
from arena.records.model import Context, EvaluationRecord, PastSettlement, Subject
from arena.submissions.model import agent_version_id
from tests.arena import race_stand as stand

SUITE = ("p0", "p1")
VALIDATORS = ("val-a", "val-b", "val-c")
RULES = stand.policy()


def subject(name: str, block: int = 10) -> Subject:
    source = stand.digest("source", name)
    return Subject(
        agent_version_id=agent_version_id(f"hk-{name}", source),
        miner_hotkey=f"hk-{name}",
        agent_sha256=source,
        commitment_block=block,
        commitment_sha256=stand.digest("commitment", name),
    )


def slot(who: Subject, block: int = 0, sha256: str = "") -> Commitment:
    return Commitment(
        hotkey=who.miner_hotkey, sha256=sha256 or who.commitment_sha256, block=block or who.commitment_block
    )


def found(*rows: tuple[str, Subject, bool], rules=RULES) -> RaceRecords:
    """Qualifying records: (validator, agent as it says, whether the agent passes)."""
    records = RaceRecords()
    for validator, who, is_passed in rows:
        for problem in SUITE:
            row = stand.evaluation(
                rules,
                stand.batch(),
                stand.candidate("x"),
                problem,
                validator,
                len(records.evaluations) + 1,
                is_success=is_passed,
            )
            record: EvaluationRecord = replace(
                row.record, subject=who, context=Context(stage="qualifying", race_id="", problem_id=problem)
            )
            records.take(validator, row.seq, row.content_sha256, record)
            counted = replace(row, record=record)
            verdict = stand.verdict(rules, counted, 9_000, row.seq)
            records.take(validator, row.seq, verdict.content_sha256, verdict.record)
    return records


def field(records: RaceRecords, *slots: Commitment, rules=RULES, validators=VALIDATORS) -> list[Subject]:
    return [who.subject for who in qualified_candidates(records, validators, slots, SUITE, rules)]


def test_an_agent_that_one_asked_validator_passed_races():
    who = subject("good")
    assert field(found(("val-a", who, True)), slot(who)) == [who]
    assert field(found(("val-a", who, False)), slot(who)) == []
    assert field(found(("stranger", who, True)), slot(who)) == []


def test_the_first_validators_in_the_agents_own_order_decide_whoever_else_says_what():
    who = subject("good")
    first, second, last = qualifying_order(who.agent_version_id, VALIDATORS)
    both = [(first, who, False), (second, who, True), (last, who, True)]
    assert field(found(*both), slot(who)) == []
    assert field(found(*both[1:]), slot(who)) == [who]  # the first gave nothing: the next one decides
    without = tuple(name for name in VALIDATORS if name != first)
    assert field(found(*both), slot(who), validators=without) == [who]  # it left the subnet


def test_two_of_three_need_two():
    rules = replace(RULES, qualifying=replace(RULES.qualifying, validators_required=2, validators_asked=3))
    who = subject("good")
    one = [(name, who, name == "val-a") for name in VALIDATORS]
    two = [(name, who, name != "val-a") for name in VALIDATORS]
    assert field(found(*one, rules=rules), slot(who), rules=rules) == []
    assert field(found(*two, rules=rules), slot(who), rules=rules) == [who]


@given(st.permutations(range(6)))
def test_the_field_does_not_depend_on_the_order_in_which_logs_are_read(order):
    good, weak = subject("good"), subject("weak")
    rows = [(name, who, who is good) for name in VALIDATORS for who in (good, weak)]
    assert field(found(*(rows[place] for place in order)), slot(good), slot(weak)) == [good]


def test_what_a_validator_says_of_an_agent_is_checked():
    who = subject("good")
    false_id = replace(who, agent_sha256="00" * 32)
    early = replace(who, commitment_block=3)
    assert field(found(("val-a", false_id, True)), slot(who)) == []
    assert field(found(("val-a", early, True)), slot(who)) == []  # the chain says block 10
    assert field(found(("val-a", who, True))) == []  # no commitment at all
    newer = slot(who, block=30, sha256="ee" * 32)
    assert field(found(("val-a", who, True)), newer) == [who]  # an older version of the same hotkey
    assert field(found(("val-a", who, True)), replace(newer, block=4)) == []


# -- succession
def ended(number: int, settlement, *, is_adopted: bool = False, history=()) -> RaceState:
    name = f"race-{number:06d}"
    opened = open_race(name, RULES, stand.batch(), number * 1_000)
    return RaceState(
        race_id=name,
        stage=settlement.state,
        opened=opened,
        settlement=settlement,
        is_adopted=is_adopted,
        adopted_history=history,
    )


FIELD = (stand.candidate("a"), stand.candidate("b"))


def settled(number: int, shares: dict[str, int], incumbent: Top | None = None):
    made = settle(replace(stand.inputs(FIELD, stand.solves(shares)), incumbent=incumbent))
    return replace(made, race_id=f"race-{number:06d}")


def test_a_validator_that_adopts_stands_where_the_others_stand():
    first = settled(1, {"a": 8, "b": 2})
    top = Top(agent_version_id="v-a", miner_hotkey="hk-a", promoted_ms=first.inputs.closes_ms)
    second = settled(2, {"a": 8, "b": 2}, top)
    second = replace(
        second,
        inputs=replace(
            second.inputs, eliminated=("v-z",), history=(PastSettlement(race_id="x", settlement_sha256="y"),)
        ),
    )
    late = succession([ended(2, second, is_adopted=True, history=(first,))])
    assert late.top == top and late.eliminated == ("v-z",)
    assert late.history == (first, second)
    assert late.incumbent.subject == FIELD[0].subject and late.incumbent.is_incumbent


def test_a_race_without_a_settlement_in_force_changes_nobodys_place():
    first = settled(1, {"a": 8, "b": 2})
    before = succession([ended(1, first, is_adopted=True)])
    cancelled = replace(first, state="cancelled", standings=(), is_promotion=False, top_agent_version_id="")
    after = succession([ended(1, first, is_adopted=True), ended(2, replace(cancelled, race_id="race-000002"))])
    assert before.top is not None
    assert (after.top, after.eliminated) == (before.top, before.eliminated)
