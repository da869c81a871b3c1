"""Keys and values of token sequences that were computed before, kept as a tree of shared prefixes.

A place in the tree holds the attention state of exactly the ids on the way to it. What several sequences begin
with stands once; a sequence that goes on is extended where it stands. Over a bound in bytes, parts not in use are
dropped, the longest unused first. The tree does not notice a change of weights: the caller starts a new one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor

SHARED_TOKENS_MIN = 32  # a shorter common beginning is computed again: every place costs each step two products
_SPARE_TOKENS = 96  # room for a turn before what is held has to be copied
_GROWTH = 1.5


class Place:
    """Consecutive tokens of some sequences, from position `start`, with their keys and values layer by layer."""

    def __init__(self, parent: Place | None, start: int, number: int) -> None:
        self.parent, self.start, self.number = parent, start, number
        self.children: list[Place] = []
        self.ids: list[int] = []
        self.is_used = False  # a row writes here
        self.touched = 0
        self._layers: list[Tensor] = []  # (2, key heads, room, head size) each

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + len(self.ids)

    @property
    def held_bytes(self) -> int:
        """What its keys and values take, spare room included."""
        return sum(layer.nbytes for layer in self._layers)

    @property
    def depth(self) -> int:
        """How many layers it holds something of."""
        return len(self._layers)

    def path(self) -> list[Place]:
        """The places of a sequence that ends here, from its beginning; those without tokens are left out."""
        found: list[Place] = []
        place: Place | None = self
        while place is not None:
            if place.ids:
                found.append(place)
            place = place.parent
        return found[::-1]

    def write(self, layer: int, first: int, state: Tensor) -> None:
        """Put keys and values (2, key heads, tokens, head size) of one layer from the token numbered `first` here on.

        Layers come in their order; the tokens themselves are in `ids`.
        """
        last = first + state.shape[2]
        if layer == len(self._layers):
            self._layers.append(state.new_empty((*state.shape[:2], last + _SPARE_TOKENS, state.shape[3])))
        held = self._layers[layer]
        if held.shape[2] < last:
            grown = held.new_empty((*held.shape[:2], int(last * _GROWTH) + _SPARE_TOKENS, held.shape[3]))
            grown[:, :, :first] = held[:, :, :first]
            self._layers[layer] = held = grown
        held[:, :, first:last] = state

    def state(self, layer: int) -> Tensor:
        """Keys and values of its tokens in one layer: (2, key heads, tokens, head size)."""
        return self._layers[layer][:, :, : len(self.ids)]

    def take(self, other: Place, first: int, last: int) -> None:
        """Hold what `other` holds of its tokens from `first` to before `last`."""
        self.ids = other.ids[first:last]
        self._layers = [layer[:, :, first:last].clone() for layer in other._layers]  # a view would hold all of it


class PrefixTree:
    """All places of one version of the weights. Not thread-safe: one row is placed at a time."""

    def __init__(self, bytes_max: int) -> None:
        """Unused places are kept as long as all places together take no more than `bytes_max`."""
        self._bytes_max = bytes_max
        self._numbers, self._clock = itertools.count(), itertools.count(1)
        self._root = Place(None, 0, next(self._numbers))

    def place(self, ids: Sequence[int]) -> Place:
        """A place for one row alone to write on at, after as many of `ids` as are held already."""
        wanted = list(ids)
        found = self._longest(wanted)
        if found is self._root or found.children:
            above = found
            found = Place(above, above.end, next(self._numbers))
            above.children.append(found)
        found.is_used = True
        self._touch(found)
        return found

    def release(self, place: Place) -> None:
        """Its row writes no more. Places over the bound are dropped."""
        place.is_used = False
        self._touch(place)
        over = self.held_bytes() - self._bytes_max
        while over > 0:  # unused ends go, the longest unused first
            ends = [end for end in self._places() if not end.children and not end.is_used]
            if not ends:
                return
            oldest = min(ends, key=lambda end: end.touched)
            assert oldest.parent is not None
            oldest.parent.children.remove(oldest)
            over -= oldest.held_bytes

    def held_bytes(self) -> int:
        """What all places take."""
        return sum(place.held_bytes for place in self._places())

    def _longest(self, wanted: list[int]) -> Place:
        """The place at whose end the longest held beginning of `wanted` ends, made by a split where it has to be."""
        place = self._root
        while True:
            near, common = None, 0
            for child in place.children:
                shared = _common(child.ids, wanted, place.end)
                if shared > common:
                    near, common = child, shared
            if near is None:
                return place
            if common == len(near.ids) and not near.is_used:
                place = near
            elif common >= SHARED_TOKENS_MIN:
                return self._split(near, common)
            else:
                return place

    def _split(self, place: Place, count: int) -> Place:
        """A new place above with the first `count` tokens of `place`, which keeps the others and its row."""
        parent = place.parent
        assert parent is not None  # the root holds no tokens
        above = Place(parent, place.start, next(self._numbers))
        above.take(place, 0, count)
        place.take(place, count, len(place.ids))
        parent.children[parent.children.index(place)] = above
        above.children, above.touched = [place], place.touched
        place.parent, place.start = above, above.end
        return above

    def _touch(self, place: Place) -> None:
        now, above = next(self._clock), place.parent
        place.touched = now
        while above is not None:
            above.touched, above = now, above.parent

    def _places(self) -> list[Place]:
        """All places but the root."""
        found, open_ = [], list(self._root.children)
        while open_:
            place = open_.pop()
            found.append(place)
            open_ += place.children
        return found


def _common(ids: list[int], wanted: list[int], start: int) -> int:
    """How many of `ids` are in `wanted` from `start` on."""
    if not ids or start >= len(wanted) or ids[0] != wanted[start]:
        return 0
    low, high = 1, min(len(ids), len(wanted) - start)
    while low < high:  # comparing slices is far quicker than a loop over tokens
        middle = (low + high + 1) // 2
        if ids[:middle] == wanted[start : start + middle]:
            low = middle
        else:
            high = middle - 1
    return low
