"""One seat, one place and one share for each owner and each class of likeness, and none below the control agent."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from arena.policy import PromotionRules
from arena.race.admission import select_candidates
from arena.race.machine import vector_at
from arena.race.settle import settle
from arena.race.weights import UNIT, no_places
from arena.records.model import Candidate, Evidence, HeldEvidence, Origin, SettlementRecord, Top
from tests.arena import race_stand as stand
from tests.arena.race_stand import VALS, changed, controlled, inputs, policy, solves
from tests.arena.test_race_field import ended


def of(name: str, owner: str = "", head: str | None = None, *, order: int = 0, **more: int) -> Candidate:
    """An agent of an owner in a class; both are its own where they are not given."""
    origin = Origin(owner=owner or f"ck-{name}", head=f"v-{name}" if head is None else head, order=order)
    return stand.candidate(name, origin=origin, **more)


def by_classes(rules=None):
    base = rules or policy()
    return replace(base, gate=replace(base.gate, class_e4=6_000))


def race(field, shares, control=1, top="a", **more) -> SettlementRecord:
    """A race with this agent at the top, in which the control agent solves so many of ten problems."""
    incumbent = Top(agent_version_id=f"v-{top}", miner_hotkey=f"hk-{top}", promoted_ms=1_000_000)
    given = {"incumbent": incumbent, "rules": by_classes(), "control_solves": control} | more
    return settle(inputs(field, solves(shares), **given))


EVIDENCE = replace(by_classes(), promotion=PromotionRules(kind="evidence", evidence_alone=200))
NAMES = "abcdefghij"
FALLING = {name: 10 - place for place, name in enumerate(NAMES)}


@pytest.mark.parametrize(
    ("field", "paid", "unpaid"),
    [
        (
            [of(name) for name in NAMES],
            "abcdefghi",
            {"j": "control"},
        ),  # the last one is no better than the control agent
        ([of(name, "one") for name in NAMES], "a", dict.fromkeys("bcdefghij", "owner")),
        (
            [of(name, head="v-a") for name in NAMES],
            "a",
            dict.fromkeys("bcdefghij", "class"),
        ),  # who builds on the winner
        (
            [of(name, head="" if name in "bcd" else None) for name in NAMES],
            "abefghi",
            {"c": "template", "d": "template", "j": "control"},
        ),
        (
            [of("a"), of("b", "one"), of("c", "one", "v-x"), of("d", "two", "v-x"), of("e", "two")],
            "abd",
            dict.fromkeys("ce", "owner"),
        ),
    ],
)
def test_of_each_owner_and_each_class_the_best_is_paid(field, paid, unpaid):
    record = race(field, FALLING)
    assert record.places == tuple(f"hk-{name}" for name in paid)
    assert {hotkey: said.why for hotkey, said in no_places(record).items()} == {f"hk-{n}": w for n, w in unpaid.items()}
    assert {said.holder for said in no_places(record).values()} <= {"", *(f"v-{name}" for name in paid)}
    assert [row.miner_hotkey for row in record.standings] == [each.subject.miner_hotkey for each in field]
    assert len(record.uids) == 1 + max(1, len(paid) // 2), "burn, top, and the rest of the upper half"
    vector = vector_at(ended(1, record), stand.metagraph([each.subject.miner_hotkey for each in field]))
    assert (vector.uids, vector.weights) == (record.uids, record.weights_u16)


def test_the_top_keeps_its_place_whatever_it_scores_and_nobody_below_the_control_agent_has_one():
    field, shares = [of("a"), of("b", head="v-a"), of("c", "ck-a"), of("d")], {"a": 2, "b": 9, "c": 8, "d": 7}
    assert race(field, shares, control=7, rules=EVIDENCE).places == ("hk-a",)
    assert race(field, shares, control=6, rules=EVIDENCE).places == ("hk-d", "hk-a")
    assert race(field, shares, rules=policy()).places is UNSET


def test_who_builds_on_the_winner_takes_the_crown_by_evidence():
    held = HeldEvidence(miner_hotkey="hk-b", races=1, millionths=((199 * UNIT,) * 4,))
    field = [of("a", is_incumbent=True), of("b", head="v-a")]
    past = race(field, FALLING)
    past = replace(past, evidence=Evidence(held=(held,)), race_id="race-000000", is_promotion=False)
    record = race(field, {"a": 2, "b": 9}, rules=EVIDENCE, history=(past,))
    assert (record.top_agent_version_id, record.is_promotion, record.places) == ("v-b", True, ("hk-b",))


def test_ten_hotkeys_of_one_coldkey_have_one_seat_and_ties_follow_the_extrinsics():
    ten = [of(name, "one", score_e4=1_000 + place) for place, name in enumerate(NAMES)]
    assert select_candidates([*ten, of("x")], 50) == (ten[-1], of("x"))
    top = replace(ten[0], is_incumbent=True)
    assert select_candidates([top, *ten[1:]], 50) == (top,)
    first, second = of("z", "one", order=1), of("a", "one", order=2)
    assert select_candidates([second, first], 50) == (first,)
    tie = race([of("z", order=1), of("a", order=2)], {"z": 5, "a": 5}, top="nobody")
    assert [row.agent_version_id for row in tie.standings] == ["v-z", "v-a"]


def test_what_a_validator_found_of_agents_of_its_own_coldkey_counts_for_nothing():
    """It says that they solve everything and that others' fail; two honest ones know better."""

    def outcome(agent, problem_id, validator):
        return (agent == "v-own") if validator == "val-a" else (agent == "v-other"), 9_000

    rules = by_classes(controlled(results_required=1))
    for validators, scores in ((VALS, {"own": 0, "other": 10_000}), (VALS[:1], {"own": 0, "other": 0})):
        made = inputs([of("own", "cold"), of("other")], outcome, rules=rules, validators=validators)
        neurons = (replace(each, coldkey="cold" if each.hotkey == "val-a" else "x") for each in made.stated.neurons)
        record = settle(changed(made, neurons=tuple(neurons)))
        assert {row.miner_hotkey: row.race_score_e4 for row in record.standings} == {
            f"hk-{name}": score for name, score in scores.items()
        }
