"""Mixes and ablations: shares that hold, sizes that match, draws that are seeded."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.corpus.building import (
    PER_TRACE,
    SET_LEVEL,
    Arm,
    ablations,
    arms_of,
    matched,
    matched_by_tokens,
    without,
)
from training.corpus.gates import NEVER_OFF
from training.corpus.mix import Draw, Mix, MixRow, mix
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


def test_vouchers_stand_three_times_where_everything_is_taken() -> None:
    corpus, rollouts = rows(30, "c"), rows(30, "r")
    drawn = mix(corpus, rollouts, Mix())
    buckets = Counter((corpus if draw.is_corpus else rollouts)[draw.index].bucket for draw in drawn)
    assert buckets == {"product": 20, "shop": 20, "voucher": 60}


def test_a_mix_is_as_large_as_the_smaller_part_allows() -> None:
    assert len(mix(rows(100, "c"), rows(10, "r"), Mix(voucher_times=1))) == 20
    assert len(mix(rows(100, "c"), rows(30, "r"), Mix(voucher_times=1, corpus_share_e4=7_000))) == 100
    assert len(mix(rows(9, "c"), [], Mix(voucher_times=1, corpus_share_e4=10_000))) == 9


def test_the_draw_depends_on_seed_and_keys_and_not_on_the_order_of_rows() -> None:
    corpus, rollouts = rows(40, "c"), rows(10, "r")

    def keys(corpus: list[MixRow], seed: int) -> list[tuple[str, int]]:
        return [
            ((corpus if draw.is_corpus else rollouts)[draw.index].key, draw.copy)
            for draw in mix(corpus, rollouts, Mix(seed=seed))
        ]

    assert keys(corpus, 1) == keys(corpus[::-1], 1)
    assert keys(corpus, 1) != keys(corpus, 2)


def test_a_mix_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        mix(rows(3, "c"), [], Mix())
    with pytest.raises(ValueError, match="same key"):
        mix([*rows(3, "c"), *rows(1, "c")], rows(3, "r"), Mix())
    for wrong in ({"corpus_share_e4": 10_001}, {"voucher_times": 0}):
        with pytest.raises(ValueError, match="share"):
            Mix(**wrong)
    assert Draw(is_corpus=True, index=0, copy=0) in mix(rows(1, "c"), rows(1, "r"), Mix())


def test_every_gate_has_an_arm_without_it_and_the_guard_is_in_all() -> None:
    arms = {arm.name: arm.rules for arm in ablations(Rules())}
    assert arms["full"] == Rules()
    switched = {code for name, rules in arms.items() if name.startswith("no_") for code in rules.off}
    assert switched == {*PER_TRACE, *SET_LEVEL}
    assert switched | NEVER_OFF | {"sampled_out", "failed"} == set(get_args(RejectCode))
    assert "tokens" not in arms["no_structural_filter"].off
    assert {*arms["no_agentic_split"].off} == {"subtask", "subtask_guess"}


def test_the_sweep_moves_the_threshold_alone() -> None:
    arms = [arm for arm in ablations(Rules(seed=4)) if arm.name.startswith("coefficient_") and arm.by == "rows"]
    assert [arm.rules for arm in arms] == [
        Rules(seed=4, coefficient_e4_min=one) for one in (0, 5_000, 7_000, 8_000, 10_000)
    ]


def test_matched_arms_have_the_size_of_the_smallest() -> None:
    arms = (Arm(name="a", rules=Rules()), Arm(name="b", rules=without(Rules(), ("pairing",))))
    assert [arm.rules.rows for arm in matched(arms, {"a": 7, "b": 40})] == [7, 7]
    with pytest.raises(ValueError, match="nothing"):
        matched(arms, {"a": 0, "b": 40})


def test_an_arm_by_tokens_has_the_tokens_of_the_first_and_its_rows_decide_nothing() -> None:
    arms = arms_of(Rules(), ["no_structural_filter", "no_structural_filter_by_tokens"])
    assert [arm.by for arm in arms] == ["rows", "rows", "tokens"] and arms[1].rules == arms[2].rules
    kept = {"full": 7, "no_structural_filter": 40, "no_structural_filter_by_tokens": 3}
    sized = matched_by_tokens(matched(arms, kept), 900)
    assert [arm.rules.rows for arm in sized] == [7, 7, None]
    assert [arm.rules.tokens for arm in sized] == [None, None, 900]


def test_the_guard_and_unknown_codes_cannot_be_switched_off() -> None:
    for code in (*NEVER_OFF, "pairings"):
        with pytest.raises(ValueError, match=code):
            without(Rules(), (code,))
    assert without(Rules(off=("pairing",)), ("tokens", "pairing")).off == ("pairing", "tokens")
