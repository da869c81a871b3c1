"""Duplicates: what counts as the same lesson, and what does not."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.chat import Message
from tests.training.labelled import Maker, disguise, reword
from tests.training.stories import agentic_turns, make_trace, make_word, messages_of
from training.corpus.filter.duplicates import Fingerprint, KeptTraces, fingerprints, normal_words, read
from training.corpus.model import Rules, Trace

NEAR_E4 = Rules().near_duplicate_e4


def print_of(trace: Trace) -> Fingerprint:
    return fingerprints([read(trace)])[0]


def are_exact(one: Trace, other: Trace) -> bool:
    kept = KeptTraces(NEAR_E4)
    kept.add(print_of(one))
    return kept.is_exact(print_of(other))


def are_near(one: Trace, other: Trace) -> bool:
    kept = KeptTraces(NEAR_E4)
    kept.add(print_of(one))
    return kept.is_near(print_of(other))


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


def test_an_agent_that_speaks_in_forms_teaches_another_lesson_with_every_product() -> None:
    forms = (
        "I will now look at what the shop offers and compare it with what was asked for, one property after another."
    )
    traces = []
    for place in "ab":
        maker = Maker(ord(place))
        goods = maker.goods()
        turns = [
            msgspec.structs.replace(turn, reasoning=f"{forms} " * 4)
            for turn in agentic_turns(maker.rng, goods, is_silent=True, searches=3)
        ]
        traces.append(make_trace(goods, messages_of(goods, turns), place=place))
    assert not are_near(*traces)


def test_tool_results_are_no_part_of_the_lesson() -> None:
    plain, _, _ = story(5)
    emptied = [msgspec.structs.replace(m, content="[]") if m.role == "tool" else m for m in plain.messages]
    assert are_exact(plain, msgspec.structs.replace(plain, messages=tuple(emptied)))


def test_which_product_is_looked_at_again_still_counts() -> None:
    words = [
        normal_words(make_trace(Maker(1).goods(), [Message(role="assistant", reasoning=text)], place="a"))[-3:]
        for text in (
            "11111111 or 22222222: 11111111",
            "33333333 or 44444444: 33333333",
            "33333333 or 44444444: 44444444",
        )
    ]
    assert words[0] == words[1] != words[2]


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


@given(st.text(max_size=300), st.text(max_size=40))
def test_any_text_has_a_fingerprint_of_one_size(text: str, query: str) -> None:
    trace = make_trace(Maker(1).goods(), [Message(role="assistant", content=text)], place="a")
    one = print_of(msgspec.structs.replace(trace, query=query))
    assert (len(one.normal_sha), len(one.phrases), len(one.searched)) == (16, 512, 128)


def test_the_estimate_follows_the_share_of_replaced_words() -> None:
    """Word by word replaced at random: far below the threshold none is found, far above all are."""
    rng = random.Random(4)
    goods = Maker(4).goods()
    words = [make_word(rng) for _ in range(400)]

    def trace(share: float) -> Trace:
        changed = [make_word(rng) if rng.random() < share else word for word in words]
        return make_trace(goods, [Message(role="assistant", reasoning=" ".join(changed))], place="a")

    plain = trace(0)
    assert all(are_near(plain, trace(0.03)) for _ in range(20))
    assert not any(are_near(plain, trace(0.25)) for _ in range(20))


def test_fingerprints_do_not_depend_on_what_is_read_beside_them() -> None:
    readings = [read(Maker(seed).good("silent").trace) for seed in range(5)]
    assert fingerprints(readings) == [fingerprints([one])[0] for one in readings]
    assert fingerprints([]) == []


def test_more_are_kept_than_room_was_made_for() -> None:
    kept = KeptTraces(NEAR_E4)
    rng = random.Random(1)
    prints = [Fingerprint(rng.randbytes(16), rng.randbytes(512), rng.randbytes(128)) for _ in range(2_500)]
    for one in prints:
        assert not kept.is_near(one)
        kept.add(one)
    assert all(kept.is_exact(one) and kept.is_near(one) for one in prints)


def test_a_crowded_band_forgets_the_late_and_never_the_first() -> None:
    rng = random.Random(2)
    band, word = rng.randbytes(16), rng.randbytes(4)
    crowd = [Fingerprint(rng.randbytes(16), band + rng.randbytes(496), word + rng.randbytes(124)) for _ in range(100)]
    kept = KeptTraces(NEAR_E4)
    for one in crowd:
        assert not kept.is_near(one)
        kept.add(one)
    copies = [msgspec.structs.replace(one, normal_sha=rng.randbytes(16)) for one in crowd]
    assert all(map(kept.is_near, copies))  # the other 31 bands are not crowded
    shared = [msgspec.structs.replace(one, phrases=band * 32, searched=word * 32) for one in copies]
    assert not kept.is_near(shared[0])
