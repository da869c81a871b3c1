"""Weight vectors: parity with SN15's rule, and what our own vector promises."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.port import Metagraph, Neuron
from arena.policy import WeightRules
from arena.race.weights import U16_MAX, Finisher, WeightCase, chain_vector, reference_vector

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


def test_the_published_example_of_ninety_finishers():
    hotkeys = ["burn"] + [f"hk{n:02}" for n in range(90)]
    rows = [Finisher(miner_hotkey=h, agent_version_id=h, race_score=1 - n / 100) for n, h in enumerate(hotkeys[1:])]
    vector = reference_vector(hotkeys, rows, 0.25, 0.75)
    assert (vector.weights[0], vector.weights[1], sum(vector.weights[2:])) == (65_535, 22_175, 990)


@pytest.mark.parametrize(("top", "burn"), [(1.0, 0.0), (-0.1, 1.1), (0.5, 0.6), (1.2, -0.2), (0.99, 0.01)])
def test_impossible_shares_are_refused(top, burn):
    rows = [Finisher(miner_hotkey=f"h{n}", agent_version_id=f"h{n}", race_score=0.1) for n in range(90)]
    with pytest.raises(ValueError):
        reference_vector([f"h{n}" for n in range(90)], rows, top, burn)


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


@given(st.integers(4, 90), st.integers(500, 8_500))
def test_the_top_gets_its_share_whatever_the_size_of_the_field(count, top_e4):
    ranked = [f"m{n}" for n in range(count)]
    vector = chain_vector(ranked, "m0", metagraph(["owner", *ranked]), WeightRules(top_e4=top_e4))
    share = dict(zip(vector.uids, vector.weights, strict=True))[1] * 10_000 / sum(vector.weights)
    assert abs(share - top_e4) < 1


def test_the_tail_tapers_over_the_upper_half_and_the_rest_burns():
    ranked = [f"m{n}" for n in range(10)]
    vector = chain_vector(ranked, "m0", metagraph(["owner", *ranked]), TAPER)
    weights = dict(zip(vector.uids, vector.weights, strict=True))
    assert [weights.get(uid, 0) for uid in range(2, 12)] == [4, 3, 2, 1, 0, 0, 0, 0, 0, 0]
    assert weights[0] == U16_MAX


def test_a_top_agent_that_was_not_first_keeps_its_share_and_the_first_heads_the_tail():
    ranked = [f"m{n}" for n in range(10)]
    vector = chain_vector(ranked, "m3", metagraph(["owner", *ranked]), TAPER)
    weights = dict(zip(vector.uids, vector.weights, strict=True))
    assert weights[4] > 20_000
    assert [weights[uid] for uid in (1, 2, 3, 5)] == [4, 3, 2, 1]


@pytest.mark.parametrize("rules", [TAPER, WINNER])
def test_the_share_of_a_top_that_left_the_subnet_burns(rules):
    vector = chain_vector(["m0", "m1"], "m0", metagraph(["owner", "m1"]), rules)
    assert (vector.uids, vector.weights) == ((0,), (U16_MAX,))


def test_winner_takes_all_gives_everything_to_the_top():
    vector = chain_vector(["m0", "m1"], "m1", metagraph(["owner", "m0", "m1"]), WINNER)
    assert (vector.uids, vector.weights) == ((2,), (U16_MAX,))


def test_a_top_that_owns_the_burn_uid_gets_one_entry():
    vector = chain_vector(["m0", "m1", "m2", "m3"], "m0", metagraph(["m0", "m1", "m2", "m3"]), TAPER)
    assert dict(zip(vector.uids, vector.weights, strict=True)) == {0: U16_MAX, 1: 1}


def test_a_tail_entry_at_the_burn_uid_burns():
    vector = chain_vector(["m0", "m1", "m2", "m3"], "m0", metagraph(["m1", "m0", "m2", "m3"]), TAPER)
    assert dict(zip(vector.uids, vector.weights, strict=True)) == {0: U16_MAX, 1: 21_845}


def test_nobody_at_the_top_burns_everything_but_the_tail():
    vector = chain_vector(["m0", "m1"], "", metagraph(["owner", "m0", "m1"]), TAPER)
    assert (vector.uids, vector.weights) == ((0,), (U16_MAX,))


def test_a_hotkey_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        chain_vector(["m0", "m0"], "m0", metagraph(["owner", "m0"]), TAPER)
