"""Mixes and ablations: shares that hold, sizes that match, draws that are seeded."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from training.corpus.building import (
    PER_TRACE,
    SET_LEVEL,
    ablations,
)
from training.corpus.gates import NEVER_OFF
from training.corpus.mix import Mix, MixRow, mix
from training.corpus.model import RejectCode, Rules

_BUCKETS = ("product", "shop", "voucher")


def rows(count: int, name: str) -> list[MixRow]:
    return [MixRow(key=f"{name}{number}", bucket=_BUCKETS[number % 3]) for number in range(count)]


@given(
    st.integers(1, 60), st.integers(1, 60), st.sampled_from([5_000, 7_000, 3_333]), st.integers(1, 3), st.integers(0, 5)
)
def test_the_shares_hold_to_within_a_row_and_no_row_stands_more_often_than_it_may(
    first: int, second: int, share_e4: int, times: int, seed: int
) -> None:
    corpus, rollouts = rows(first, "c"), rows(second, "r")
    drawn = mix(corpus, rollouts, Mix(corpus_share_e4=share_e4, voucher_times=times, seed=seed))
    from_corpus = sum(draw.is_corpus for draw in drawn)
    assert abs(from_corpus * 10_000 - share_e4 * len(drawn)) <= 10_000
    assert len(set(drawn)) == len(drawn)
    for draw in drawn:
        row = (corpus if draw.is_corpus else rollouts)[draw.index]
        assert draw.copy < (times if row.bucket == "voucher" else 1)


def test_the_draw_depends_on_seed_and_keys_and_not_on_the_order_of_rows() -> None:
    corpus, rollouts = rows(40, "c"), rows(10, "r")

    def keys(corpus: list[MixRow], seed: int) -> list[tuple[str, int]]:
        return [
            ((corpus if draw.is_corpus else rollouts)[draw.index].key, draw.copy)
            for draw in mix(corpus, rollouts, Mix(seed=seed))
        ]

    assert keys(corpus, 1) == keys(corpus[::-1], 1)
    assert keys(corpus, 1) != keys(corpus, 2)


def test_every_gate_has_an_arm_without_it_and_the_guard_is_in_all() -> None:
    arms = {arm.name: arm.rules for arm in ablations(Rules())}
    assert arms["full"] == Rules()
    switched = {code for name, rules in arms.items() if name.startswith("no_") for code in rules.off}
    assert switched == {*PER_TRACE, *SET_LEVEL}
    assert switched | NEVER_OFF | {"sampled_out", "failed"} == set(get_args(RejectCode))
    assert "tokens" not in arms["no_structural_filter"].off
    assert {*arms["no_agentic_split"].off} == {"subtask", "subtask_guess"}
