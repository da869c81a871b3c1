"""Ranking within a problem: A.3's signals, and shapes where they tie."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tests.training.labelled import Maker
from training.corpus.appraisal import signals_of
from training.corpus.model import Appraisal, Signals
from training.corpus.selection import choose, merit, shape_distance_e4

_NAMES = st.sampled_from(["find_product", "view_product_information", "recommend_product", "terminate"])
_SHAPES = st.lists(_NAMES, max_size=6).map(tuple)
_SIGNALS = st.builds(
    Signals,
    depth=st.integers(1, 3),
    reformulations=st.integers(0, 2),
    has_verification=st.booleans(),
    longest_repeat=st.integers(1, 4),
    shape=_SHAPES,
)


def candidate_of(name: str, signals: Signals) -> Appraisal:
    known = dict.fromkeys(("problem", "bucket", "day", "agent", "team", "place"), "")
    nothing = {
        "codes": (),
        "coefficient_e4": None,
        "tokens": None,
        "fingerprint": None,
    }
    return Appraisal(shard=0, ordinal=0, trace_id=name, signals=signals, turns=1, **known, **nothing)


def candidate(name: str, **signals: object) -> Appraisal:
    known = {"depth": 5, "reformulations": 2, "has_verification": True, "longest_repeat": 1, "shape": ("a",), **signals}
    return candidate_of(name, Signals(**known))


def test_signals_of_a_good_trace() -> None:
    trace = Maker(1).good("on the threshold").trace
    signals = signals_of(trace)
    thoughts = sum(bool(message.reasoning) for message in trace.messages)
    assert signals.shape[-3:] == ("view_product_information", "recommend_product", "terminate")
    assert signals.depth == thoughts + len(signals.shape)
    assert signals.reformulations == len(signals.shape) - 3
    assert signals.has_verification
    assert signals.longest_repeat == 1


def test_each_signal_ranks_as_the_paper_says() -> None:
    plain = candidate("p")
    better = [candidate("b", depth=6), candidate("b", reformulations=3)]
    worse = [candidate("w", has_verification=False), candidate("w", longest_repeat=3), candidate("w", depth=4)]
    assert all(merit(one.signals) < merit(plain.signals) for one in better)
    assert all(merit(one.signals) > merit(plain.signals) for one in worse)
    assert merit(candidate("x", longest_repeat=2).signals) == merit(plain.signals)


def test_of_ties_the_two_most_different_shapes_are_taken() -> None:
    tied = [
        candidate("1", shape=("f", "f", "v", "r")),
        candidate("2", shape=("f", "v", "r")),
        candidate("3", shape=("f", "v", "r")),
        candidate("4", shape=("s", "m", "s", "t")),
    ]
    taken = {tied[i].identity[0] for i in choose(tied, 2)}
    distances = {
        (a.identity[0], b.identity[0]): shape_distance_e4(a.signals.shape, b.signals.shape)
        for a, b in itertools.combinations(tied, 2)
    }
    assert tuple(sorted(taken)) in {pair for pair, one in distances.items() if one == max(distances.values())}
    assert "4" in taken


@given(st.lists(_SIGNALS, max_size=7), st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_the_candidates(
    signals: list[Signals], most: int, rng: object
) -> None:
    field = [candidate_of(str(number), one) for number, one in enumerate(signals)]
    shuffled = field[:]
    rng.shuffle(shuffled)
    assert [field[i] for i in choose(field, most)] == [shuffled[i] for i in choose(shuffled, most)]
