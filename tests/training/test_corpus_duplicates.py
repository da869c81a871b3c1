"""Duplicates: what counts as the same lesson, and what does not."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.chat import Message
from tests.training.labelled import Maker, disguise, reword
from tests.training.stories import make_trace
from training.corpus.duplicates import (
    Likeness,
    fingerprint,
    likenesses,
    normal_words,
)
from training.corpus.model import Fingerprint, Rules, Trace

NEAR_E4 = Rules().near_duplicate_e4


def likeness_of(*prints: Fingerprint) -> list[Likeness | None]:
    """What each of some fingerprints is to those before it."""
    found = list(likenesses(enumerate(prints, 7), NEAR_E4))
    assert [number for number, _ in found] == list(range(7, 7 + len(prints)))
    return [likeness for _, likeness in found]


def are_exact(one: Trace, other: Trace) -> bool:
    return likeness_of(fingerprint(one), fingerprint(other)) == [None, "duplicate"]


def are_near(one: Trace, other: Trace) -> bool:
    return likeness_of(fingerprint(one), fingerprint(other)) == [None, "near_duplicate"]


def story(seed: int) -> tuple[Trace, Trace, Trace]:
    """A trace, its disguised copy and its reworded copy."""
    maker = Maker(seed)
    goods = maker.goods()
    other = msgspec.structs.replace(goods, ids=tuple(str(int(one) + 1_234_567) for one in goods.ids))
    messages = maker.good_messages(goods)
    return (
        make_trace(goods, messages, place="a"),
        make_trace(other, disguise(messages, goods, other), place="b"),
        make_trace(goods, reword(maker.rng, messages), place="c"),
    )


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_other_ids_numbers_spacing_case_and_key_order_are_no_difference(seed: int) -> None:
    plain, disguised, _ = story(seed)
    assert plain.trace_id != disguised.trace_id
    assert are_exact(plain, disguised)


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_filler_words_make_a_near_duplicate_and_no_exact_one(seed: int) -> None:
    plain, _, reworded = story(seed)
    assert not are_exact(plain, reworded)
    assert are_near(plain, reworded)
    assert are_near(reworded, plain)


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_two_runs_at_one_problem_are_two_lessons(seed: int) -> None:
    maker = Maker(seed)
    goods = maker.goods()
    one, other = (make_trace(goods, maker.good_messages(goods), place=place) for place in "ab")
    assert not are_exact(one, other)
    assert not are_near(one, other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("123456789,987654321", ["id0", "id1"]),
        ("1,299.50 PHP", ["#", "php"]),
        ("page 2 of 10", ["page", "2", "of", "#"]),
        ("USB3 at 99", ["usb3", "at", "#"]),
    ],
)
def test_numbers_become_ids_signs_or_stay(text: str, words: list[str]) -> None:
    trace = make_trace(Maker(1).goods(), [Message(role="assistant", reasoning=text)], place="a")
    assert normal_words(msgspec.structs.replace(trace, query="q"))[2:] == words
