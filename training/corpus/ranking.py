"""Which traces of one problem are taken: A.3's structural signals, and different shapes where they tie.

Signals are read off the trace alone; the order and the choice depend on the set of candidates, never on the
order they come in. The signals compare one after another: long stretches of identical calls first, since a loop also
makes a trace deep; then verification, distinct search queries, depth. The judge's coefficient has no say here: it gates
the pool, the signals rank within it (paper, section 5).
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Sequence

from training.corpus.gates import RECOMMEND, query_of
from training.corpus.model import Appraisal, Signals, Trace

Shape = tuple[str, ...]

_VERIFYING = frozenset({"check_product_match", "view_product_information", "view_product"})
_REPEATS_FREE = 2  # asking twice is no loop
_SHAPES_MAX = 64  # shapes compared pairwise when more tie; the first by name


def signals_of(trace: Trace) -> Signals:
    """The signals of one trace (A.3)."""
    turns = [message for message in trace.messages if message.role == "assistant"]
    thoughts = sum(bool(turn.reasoning) or "<think>" in turn.content for turn in turns)
    calls = [call for turn in turns for call in turn.calls]
    runs = itertools.groupby((call.name, "".join(call.arguments.split())) for call in calls)  # spacing aside
    last_recommend = max((i for i, call in enumerate(calls) if call.name == RECOMMEND), default=len(calls))
    return Signals(
        depth=thoughts + len(calls),
        reformulations=len({query for call in calls if (query := query_of(call))}),
        has_verification=any(call.name in _VERIFYING for call in calls[:last_recommend]),
        longest_repeat=max((len(list(run)) for _, run in runs), default=0),
        shape=tuple(call.name for call in calls),
    )


def merit(signals: Signals) -> tuple[int, ...]:
    """What sorts the better trace first; equal where A.3's signals tie."""
    loops = max(0, signals.longest_repeat - _REPEATS_FREE)
    return (loops, -signals.has_verification, -signals.reformulations, -signals.depth)


def sort_bytes(candidate: Appraisal) -> bytes:
    """A total order, as bytes: by merit, then by identity."""
    trace_id, place = candidate.identity
    numbers = struct.pack(">4Q", *(part + 2**63 for part in merit(candidate.signals)))  # none below zero
    return numbers + f"{trace_id}\0{place}".encode("utf-8", "surrogatepass")


def choose(candidates: Sequence[Appraisal], most: int) -> list[int]:
    """Indexes of the taken candidates of one problem, best first, at most `most`.

    All of them, by merit and identity, where there is room. Else, of candidates that tie, the one whose shape differs
    most from the shapes taken before; for the first two places, the two of the tied that differ most from each other.
    """
    order = sorted(range(len(candidates)), key=lambda i: sort_bytes(candidates[i]))
    if most >= len(order):
        return order
    taken: list[int] = []
    while len(taken) < most:
        _, group = next(itertools.groupby(order, key=lambda i: merit(candidates[i].signals)))
        tied = list(group)
        chosen = tied[0] if len(tied) == 1 else _most_different(candidates, tied, taken, most)
        taken.append(chosen)
        order.remove(chosen)
    return taken


def shape_distance_e4(left: Shape, right: Shape) -> int:
    """0 for equal shapes to 10,000: one minus the Jaccard index of their bags of adjacent pairs, ends included."""
    bags = [Counter(zip(("", *shape), (*shape, ""), strict=True)) for shape in (left, right)]
    shared, either = (bags[0] & bags[1]).total(), (bags[0] | bags[1]).total()
    return 10_000 - 10_000 * shared // either


def _most_different(candidates: Sequence[Appraisal], tied: Sequence[int], taken: Sequence[int], most: int) -> int:
    """Of the tied, in order: the farthest from what is taken; with nothing taken and room for two, the first of the
    farthest pair."""
    first_of: dict[Shape, int] = {}
    for i in tied:
        first_of.setdefault(candidates[i].signals.shape, i)
    shapes = sorted(first_of)[:_SHAPES_MAX]
    if taken:
        before = [candidates[i].signals.shape for i in taken]
        return first_of[max(shapes, key=lambda one: min(shape_distance_e4(one, other) for other in before))]
    if most < 2 or len(shapes) < 2:
        return tied[0]
    pairs = [(one, other) for number, one in enumerate(shapes) for other in shapes[number + 1 :]]
    one, other = max(pairs, key=lambda pair: shape_distance_e4(*pair))
    return min(first_of[one], first_of[other], key=lambda i: candidates[i].identity)
