"""What a race would have paid by replayed verdicts: the mechanism's own numbers, and nothing else changed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.race.settlement.settle import settle
from foundation.errors import ArenaError
from judge.rubric import coefficient_e4
from judge.verdict import Verdict
from neurons.race.repayment import pay_again
from tests.arena.race_stand import candidate, inputs, policy, solves
from tests.arena.race_world import records_of

FIELD = tuple(map(candidate, "abcd"))
INPUTS = inputs(FIELD, solves({"a": 8, "b": 7, "c": 4, "d": 2}), validators=("val-a", "val-b"), rules=policy())
GIVEN = settle(INPUTS)
BY_AGENT = {row.record.body_sha256: row.record.subject.agent_version_id for row in INPUTS.evaluations}


def verdicts_with(quality_e4: int, agents: tuple[str, ...]) -> dict[str, Verdict]:
    changed = {"quality_e4": quality_e4, "coefficient_e4": coefficient_e4(quality_e4), "rubric_id": "another/9"}
    said = (row.record.verdict for row in INPUTS.verdicts)
    return {one.body_sha256: replace(one, **changed) for one in said if BY_AGENT[one.body_sha256] in agents}


def test_replayed_verdicts_that_say_the_same_pay_the_same():
    found = pay_again(GIVEN, records_of(INPUTS), (), verdicts_with(9_000, ("v-a", "v-b", "v-c", "v-d")))
    assert all(row.score_e4 == row.replayed_score_e4 for row in found.agents)
    assert all(row.weight_u16 == row.replayed_weight_u16 for row in found.agents)
    assert found.burnt_u16[0] == found.burnt_u16[1] and found.kept == 0
    assert found.top_agent_version_id == found.replayed_top_agent_version_id == "v-a"


def test_a_race_is_paid_as_if_the_replayed_verdicts_had_been_given_then():
    lower = verdicts_with(1_000, ("v-a",))
    found = pay_again(GIVEN, records_of(INPUTS), (), lower)
    said = [lower.get(row.record.verdict.body_sha256) for row in INPUTS.verdicts]
    rows = [
        row
        if verdict is None
        else replace(
            row,
            record=replace(row.record, verdict=replace(verdict, rubric_id=row.record.verdict.rubric_id)),
        )
        for row, verdict in zip(INPUTS.verdicts, said, strict=True)
    ]
    by_hand = settle(replace(INPUTS, verdicts=tuple(rows)))
    assert found.replayed_top_agent_version_id == by_hand.top_agent_version_id == "v-b"
    assert {row.agent_version_id: row.replayed_score_e4 for row in found.agents} == {
        row.agent_version_id: row.race_score_e4 for row in by_hand.standings
    }
    assert (found.replayed, found.kept) == (
        len(lower),
        len({row.record.verdict.body_sha256 for row in INPUTS.verdicts}) - len(lower),
    )
    owners = {neuron.hotkey: neuron.uid for neuron in INPUTS.metagraph.neurons}
    weights = dict(zip(by_hand.uids, by_hand.weights_u16, strict=True))
    assert [row.replayed_weight_u16 for row in found.agents] == [
        weights.get(owners[row.miner_hotkey], 0) for row in found.agents
    ]
    assert sum(weights.values()) == found.burnt_u16[1] + sum(row.replayed_weight_u16 for row in found.agents)


def test_records_that_settle_the_race_otherwise_are_named():
    with pytest.raises(ArenaError, match="record_set_sha256") as caught:
        pay_again(GIVEN, records_of(replace(INPUTS, verdicts=INPUTS.verdicts[1:])), (), {})
    assert caught.value.failure.code == "V2102"
