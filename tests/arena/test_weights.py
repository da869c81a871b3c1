"""Weight vectors: parity with SN15's rule, what our own vector promises, and when it is set."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.port import Metagraph, Neuron
from arena.policy import WeightRules
from arena.race.machine import RaceState, open_race, paid_race, vector_at
from arena.race.settle import settle
from arena.race.weights import (
    U16_MAX,
    WAIT_BLOCKS_MAX,
    Finisher,
    WeightCase,
    chain_vector,
    next_try_block,
    reference_vector,
)
from arena.records.port import WeightsResult
from tests.arena import race_stand as stand

CASES = Path(__file__).parents[2].parent / "shared" / "data" / "weight_cases.jsonl"
TAPER, WINNER = WeightRules(), WeightRules(kind="winner_takes_all")


def metagraph(hotkeys: list[str]) -> Metagraph:
    return Metagraph(
        netuid=1,
        block=9,
        tempo=360,
        neurons=tuple(Neuron(uid=uid, hotkey=hotkey) for uid, hotkey in enumerate(hotkeys)),
    )


@pytest.mark.skipif(not CASES.exists(), reason="the golden weight cases are not on this machine")
def test_the_reference_vector_equals_sn15s_on_every_golden_case():
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    assert len(rows) == 60
    for row in rows:
        case = msgspec.convert(row, WeightCase)
        try:
            vector = reference_vector(case.metagraph_hotkeys, case.finishers, case.t_top, case.t_burn)
            got: object = {"uids": list(vector.uids), "weights": list(vector.weights)}
        except ValueError:
            got = {"error": "ValueError"}
        assert got == row["expected"], case.case_id


def reference(registered: list[str], ranked: list[str], top: float, burn: float) -> list[int]:
    rows = [Finisher(miner_hotkey=key, agent_version_id=f"{n:03}", race_score=0.5) for n, key in enumerate(ranked)]
    return list(reference_vector(registered, rows, top, burn).weights)


@pytest.mark.parametrize(
    ("registered", "ranked", "top", "burn", "expected"),
    [
        # winner takes all: two or three finishers have no tail, so a burn share of 0 holds it
        (["o", "a", "b"], ["a", "b"], 1.0, 0.0, [0, 65_535, 0]),
        (["o", "a", "b"], ["b", "a", "x"], 1.0, 0.0, [0, 0, 65_535]),
        (["o", "b"], ["a", "b"], 1.0, 0.0, [0, 0]),  # the top left the subnet
        (["a", "b"], ["a", "b"], 1.0, 0.0, [65_535, 0]),  # the top holds the burn uid
        (["o", "a"], ["a"], 1.0, 0.0, [65_535, 0]),
        (["o", "a"], [], 1.0, 0.0, [65_535, 0]),
        (["o", "a"], ["a"], 7.0, -3.0, [65_535, 0]),  # shares are looked at where somebody is paid
        ([], ["a", "b"], 1.0, 0.0, []),
        # a hotkey that stands twice is paid once
        (["o", "a"], ["a", "a", "b", "c"], 0.25, 0.75, [65_535, 21_845]),
        (["o", "a", "b"], ["a", "b", "b", "c", "d", "e"], 0.25, 0.75, [65_535, 21_845, 1]),
        # a burn share of 198.5 units is rounded to even before the tail of 1 is taken off it
        (["o", "a", "b"], ["a", "b", "c", "d"], 65_535 / 65_733.5, 1 - 65_535 / 65_733.5, [197, 65_535, 1]),
    ],
)
def test_the_reference_vector_pays_by_sn15s_rule_at_its_edges(registered, ranked, top, burn, expected):
    assert reference(registered, ranked, top, burn) == expected


FIELDS = st.integers(0, 90).flatmap(
    lambda count: st.tuples(
        st.just([f"m{n}" for n in range(count)]),
        st.permutations([f"m{n}" for n in range(count)] + ["owner"]),
        st.integers(0, count),
    )
)


@given(FIELDS, st.integers(1, 9_999), st.data())
def test_a_chain_vector_has_the_maximum_exactly_at_65535_and_no_other_surprise(field, top_e4, data):
    ranked, hotkeys, gone = field
    registered = hotkeys[gone:] or hotkeys
    top = data.draw(st.sampled_from(["", *ranked]))
    vector = chain_vector(ranked, top, metagraph(registered), WeightRules(top_e4=top_e4))
    assert max(vector.weights) == U16_MAX
    assert all(0 < weight <= U16_MAX for weight in vector.weights)
    assert list(vector.uids) == sorted(set(vector.uids))
    assert all(uid < len(registered) for uid in vector.uids)


@pytest.mark.parametrize(
    ("top", "tail"),
    [("m0", {2: 4, 3: 3, 4: 2, 5: 1}), ("m3", {1: 4, 2: 3, 3: 2, 5: 1})],  # the first heads the tail
)
def test_the_tail_tapers_over_the_upper_half_and_the_rest_burns(top, tail):
    ranked = [f"m{n}" for n in range(10)]
    vector = chain_vector(ranked, top, metagraph(["owner", *ranked]), TAPER)
    weights = dict(zip(vector.uids, vector.weights, strict=True))
    assert weights.pop(0) == U16_MAX and weights.pop(1 + ranked.index(top)) > 20_000
    assert weights == tail


@pytest.mark.parametrize("rules", [TAPER, WINNER])
def test_the_share_of_a_top_that_left_the_subnet_burns(rules):
    vector = chain_vector(["m0", "m1"], "m0", metagraph(["owner", "m1"]), rules)
    assert (vector.uids, vector.weights) == ((0,), (U16_MAX,))


def test_a_hotkey_that_stands_twice_and_a_share_beyond_the_whole_are_refused():
    with pytest.raises(ValueError, match="top_e4 must lie in"):
        chain_vector([], "", metagraph(["owner"]), WeightRules(top_e4=10_001))
    with pytest.raises(ValueError, match="twice"):
        chain_vector(["m0", "m0"], "m0", metagraph(["owner", "m0"]), TAPER)


# -- which race is paid, as what, and when
FIELD = tuple(stand.candidate(name) for name in "abcd")
HOTKEYS = [who.subject.miner_hotkey for who in FIELD]


def settled(race_id: str = stand.RACE, stage: str = "settled") -> RaceState:
    rules = stand.policy()
    made = stand.inputs(FIELD, stand.solves({"a": 9, "b": 7, "c": 4, "d": 1}), rules=rules)
    settlement = msgspec.structs.replace(settle(made), race_id=race_id, state=stage)
    opened = open_race(race_id, rules, stand.batch(), 0, rules.race.closes_after_ms or 1)
    return RaceState(race_id=race_id, stage=stage, opened=opened, settlement=settlement)


def test_weights_follow_the_latest_settled_race_and_no_cancelled_or_running_one():
    first, cancelled, second = settled("race-000001"), settled("race-000002", "cancelled"), settled("race-000003")
    assert paid_race([first, cancelled, second, RaceState(race_id="race-000004")]) == second
    assert paid_race([first, cancelled]) == first
    assert paid_race([cancelled]) is None and paid_race([]) is None
    with pytest.raises(ValueError, match="cancelled"):
        vector_at(cancelled, stand.metagraph(HOTKEYS))


def test_a_uid_that_changed_hands_after_the_settlement_pays_the_burn_and_not_its_new_owner():
    now = stand.metagraph(["stranger", *HOTKEYS[1:]])
    vector = vector_at(settled(), now)
    assert now.uid_of("stranger") in settled().settlement.uids
    assert now.uid_of("stranger") not in vector.uids
    assert dict(zip(vector.uids, vector.weights, strict=True))[0] == U16_MAX


def tries(*rows: tuple[int, str], race_id: str = stand.RACE) -> list[WeightsResult]:
    """Results from oldest to newest as (block, status), given newest first as a store gives them."""
    made = [WeightsResult(race_id=race_id, block=b, uids=(0,), weights_u16=(1,), status=s) for b, s in rows]
    return made[::-1]


def test_a_new_settlement_is_tried_at_once_whatever_became_of_the_last():
    assert next_try_block([], stand.RACE, 360) == 0
    assert next_try_block(tries((900, "ok"), (950, "failed"), race_id="race-000000"), stand.RACE, 360) == 0


@pytest.mark.parametrize("status", ["rate_limited", "not_registered", "failed"])
def test_refused_weights_wait_for_a_growing_number_of_blocks(status):
    block, waits = 100, []
    rows = [(50, "ok")]
    for _ in range(8):
        rows.append((block, status))
        due = next_try_block(tries(*rows), stand.RACE, 360)
        waits.append(due - block)
        block = due
    assert waits == [1, 2, 4, 8, 16, 25, 25, 25] and waits[-1] == WAIT_BLOCKS_MAX
