"""The field of a shared race, and what a race takes over from the races before it."""

from __future__ import annotations

from msgspec.structs import replace

from arena.race.machine import RaceState, open_race, succession
from arena.race.settle import settle
from arena.records.model import PastSettlement, Top
from tests.arena import race_stand as stand

RULES = stand.policy()


def ended(number: int, settlement, *, is_adopted: bool = False, history=()) -> RaceState:
    name = f"race-{number:06d}"
    opened = open_race(name, RULES, stand.batch(), number * 1_000, number * 1_000 + 15_000)
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
    made = settle(stand.inputs(FIELD, stand.solves(shares), incumbent=incumbent))
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
