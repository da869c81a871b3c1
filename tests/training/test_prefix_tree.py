"""What is held of token sequences: the state of exactly their ids, common beginnings once, within a bound."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.samplers.ragged_attention import SHARED_TOKENS_MIN, Place, PrefixTree

LAYERS = 2
ROOM = 1 << 30
HEAD = tuple(range(100, 100 + SHARED_TOKENS_MIN))  # long enough to be shared


def state_of(ids: Sequence[int], first: int) -> Tensor:
    """A stand-in for keys and values: each token's depends on all ids up to it, as in a model."""
    sums = [float(sum((place + 1) * one for place, one in enumerate(ids[: last + 1]))) for last in range(len(ids))]
    return torch.tensor(sums[first:]).view(1, 1, -1, 1).repeat(2, 1, 1, 3)


def extend(place: Place, sequence: Sequence[int]) -> int:
    """Write what is missing of `sequence`, as a sampler does, and say how much that was."""
    first, here = place.end, len(place.ids)
    place.ids += sequence[first:]
    for layer in range(LAYERS):
        place.write(layer, here, state_of(sequence, first) + layer)
    return len(sequence) - first


def held(place: Place, layer: int) -> Tensor:
    return torch.cat([one.state(layer) for one in place.path()], dim=2)


def is_right(place: Place, sequence: Sequence[int]) -> bool:
    ids = [one for part in place.path() for one in part.ids]
    return ids == list(sequence) and all(
        torch.equal(held(place, layer), state_of(sequence, 0) + layer) for layer in range(LAYERS)
    )


tails = st.lists(st.integers(0, 2), min_size=1, max_size=50).map(tuple)
heads = st.sampled_from([HEAD, HEAD + HEAD, (*HEAD, 1), (7,) * 40])


@settings(max_examples=60, deadline=None)
@given(
    moves=st.lists(st.tuples(heads, tails, st.integers(0, 3)), min_size=1, max_size=12),
    bytes_max=st.sampled_from([0, 40_000, ROOM]),
)
def test_a_place_holds_the_state_of_its_own_ids_whatever_else_is_placed_extended_and_dropped(
    moves: list[tuple[tuple[int, ...], tuple[int, ...], int]], bytes_max: int
) -> None:
    tree = PrefixTree(bytes_max)
    rows: list[tuple[Place, tuple[int, ...]]] = []
    for head, tail, ending in moves:
        sequence = head + tail
        place = tree.place(sequence)
        assert place.end <= len(sequence)
        extend(place, sequence)
        rows.append((place, sequence))
        grown = [(row, (*ids, ending)) for row, ids in rows]  # every row goes on, each on its own
        for row, ids in grown:
            assert extend(row, ids) == 1
        rows = grown[-ending:] if ending else []
        for row, _ in grown[: len(grown) - len(rows)]:
            tree.release(row)
        assert all(is_right(row, ids) for row, ids in rows)
    for row, _ in rows:
        tree.release(row)
    assert tree.held_bytes() <= bytes_max


def test_two_rows_of_one_prompt_write_on_places_of_their_own_and_read_the_prompt_once() -> None:
    tree = PrefixTree(ROOM)
    one = tree.place(HEAD)
    extend(one, HEAD)
    other = tree.place(HEAD)
    assert other is not one and other.end == len(HEAD)
    extend(one, (*HEAD, 1))
    extend(other, (*HEAD, 2))
    assert is_right(one, (*HEAD, 1)) and is_right(other, (*HEAD, 2))
    assert one.path()[0] is other.path()[0]
