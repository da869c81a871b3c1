"""Duplicates: what counts as the same lesson, and what does not."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.chat import Message
from tests.training.labelled import Maker, disguise, reword
from tests.training.stories import make_trace
from training.corpus.duplicates import (
    SEARCHED_SAME_E4,
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


def compared_in_memory(prints: Sequence[Fingerprint], near_e4: int | None) -> list[Likeness | None]:
    """The rule said once more, without a hash of bands and without a file."""
    bands: dict[tuple[int, bytes, bytes], list[Fingerprint]] = defaultdict(list)
    normal: set[bytes] = set()

    def same_e4(one: bytes, other: bytes) -> float:
        return float(np.mean(np.frombuffer(one, "<u4") == np.frombuffer(other, "<u4"))) * 10_000

    answers: list[Likeness | None] = []
    for one in prints:
        keys = [(i, one.phrases[16 * i : 16 * i + 16], one.searched[4 * i : 4 * i + 4]) for i in range(32)]
        is_near = near_e4 is not None and any(
            same_e4(one.phrases, other.phrases) >= near_e4 and same_e4(one.searched, other.searched) >= SEARCHED_SAME_E4
            for key in keys
            for other in bands[key][:32]
        )
        answers.append("duplicate" if one.normal_sha in normal else "near_duplicate" if is_near else None)
        if answers[-1] is None:
            normal.add(one.normal_sha)
            for key in keys:
                bands[key].append(one)
    return answers


def alike_prints(rng: random.Random, count: int, originals: int) -> Iterator[Fingerprint]:
    """Originals, and copies in which some of the 32 bands are others: none, a few, about the threshold, most."""
    drawn = [
        [rng.randbytes(16), *([rng.randbytes(16) for _ in range(32)], [rng.randbytes(4) for _ in range(32)])]
        for _ in range(originals)
    ]
    for _ in range(count):
        sha, phrases, searched = rng.choice(drawn)
        changed = rng.choice((0, 0, 2, 9, 10, 15, 31))
        other = set(rng.sample(range(32), changed))
        yield Fingerprint(
            normal_sha=rng.randbytes(16) if changed else sha,
            phrases=b"".join(rng.randbytes(16) if i in other else one for i, one in enumerate(phrases)),
            searched=b"".join(rng.randbytes(4) if rng.random() < changed / 40 else one for one in searched),
        )


@given(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.integers(1, 40),
    st.sampled_from((NEAR_E4, 9_000, 100, None)),
)
@settings(max_examples=25, deadline=None)
def test_what_is_compared_on_disk_is_what_a_comparison_in_memory_finds(
    seed: int, count: int, originals: int, near_e4: int | None
) -> None:
    prints = list(alike_prints(random.Random(seed), count, originals))
    found = [likeness for _, likeness in likenesses(enumerate(prints), near_e4)]
    assert found == compared_in_memory(prints, near_e4)
