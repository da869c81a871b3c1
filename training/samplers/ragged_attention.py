"""Attention over rows of different lengths without padding, on keys and values kept as a tree of shared prefixes.

The model's own forward runs, with this in the place of its attention (transformers' `AttentionInterface`). What several
rows begin with stands once and is read once a step for all of them; rows never see each other's own tokens. Over a
bound in bytes, parts not in use are dropped, the longest unused first. A tree is of one version of the weights.
Outside `ragged` the model computes as before.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from foundation.errors import ArenaError

SHARED_TOKENS_MIN = 32  # a shorter common beginning is computed again: every place costs each step two products
_SPARE_TOKENS = 96  # room for a turn before what is held has to be copied
_GROWTH = 1.5
NAME = "arena_ragged"
_OTHER_KINDS = ("sliding_window", "softcap", "s_aux", "position_bias")


class Place:
    """Consecutive tokens of some sequences, from position `start`, with their keys and values layer by layer."""

    def __init__(self, parent: Place | None, start: int) -> None:
        self.parent, self.start = parent, start
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

    def path(self) -> list[Place]:
        """The places of a sequence that ends here, from its beginning; those without tokens are left out."""
        above = self.parent.path() if self.parent else []
        return [*above, self] if self.ids else above

    def write(self, layer: int, state: Tensor) -> None:
        """Put keys and values (2, key heads, tokens, head size) of one layer to its last tokens, which are in `ids`.

        Layers come in their order.
        """
        last = len(self.ids)
        first = last - state.shape[2]
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

    def split(self, count: int) -> Place:
        """A new place above with the first `count` tokens; this one keeps the others and its row."""
        assert self.parent is not None  # the root holds no tokens
        above = Place(self.parent, self.start)
        above.ids, self.ids = self.ids[:count], self.ids[count:]
        # copies: a view would hold all of it
        above._layers = [layer[:, :, :count].clone() for layer in self._layers]
        self._layers = [layer[:, :, count : count + len(self.ids)].clone() for layer in self._layers]
        self.parent.children[self.parent.children.index(self)] = above
        above.children, above.touched = [self], self.touched
        self.parent, self.start = above, above.end
        return above


class PrefixTree:
    """All places of one version of the weights. Not thread-safe: one row is placed at a time."""

    def __init__(self, bytes_max: int) -> None:
        """Unused places are kept as long as all places together take no more than `bytes_max`."""
        self._bytes_max, self._clock = bytes_max, itertools.count(1)
        self._root = Place(None, 0)

    def place(self, ids: Sequence[int]) -> Place:
        """A place for one row alone to write on at, after as many of `ids` as are held already."""
        found = self._longest(ids)
        if found is self._root or found.children:
            above = found
            found = Place(above, above.end)
            above.children.append(found)
        found.is_used = True
        self._touch(found)
        return found

    def release(self, place: Place) -> None:
        """Its row writes no more. Places over the bound are dropped: unused ends, the longest unused first."""
        place.is_used = False
        self._touch(place)
        over = sum(one.held_bytes for one in self.places()) - self._bytes_max
        while over > 0 and (ends := [one for one in self.places() if not one.children and not one.is_used]):
            oldest = min(ends, key=lambda end: end.touched)
            assert oldest.parent is not None
            oldest.parent.children.remove(oldest)
            over -= oldest.held_bytes

    def places(self) -> list[Place]:
        """All places but the root, those of a common path side by side."""
        found, open_ = [], list(self._root.children)
        while open_:
            place = open_.pop()
            found.append(place)
            open_ += place.children
        return found

    def _longest(self, ids: Sequence[int]) -> Place:
        """The place at whose end the longest held beginning of `ids` ends, made by a split where it has to be."""
        place = self._root
        while True:
            rest = ids[place.end :]
            by_length = {_common(child.ids, rest): child for child in place.children}
            common = max(by_length, default=0)
            if common and common == len(by_length[common].ids) and not by_length[common].is_used:
                place = by_length[common]
            elif common >= SHARED_TOKENS_MIN:
                return by_length[common].split(common)
            else:
                return place

    def _touch(self, place: Place) -> None:
        now, above = next(self._clock), place.parent
        place.touched = now
        while above is not None:
            above.touched, above = now, above.parent


def _common(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    pairs = enumerate(zip(ids, others, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(ids), len(others)))


class Attending(Protocol):
    """What the tokens of one forward pass attend to."""

    def attend(self, layer: int, query: Tensor, state: Tensor, scaling: float) -> Tensor:
        """`query` (heads, tokens, head size) and `state` (2, key heads, tokens, head size), the tokens' own keys and
        values, which are kept; gives (tokens, heads, head size)."""
        ...


class OneRow:
    """The next tokens of one row: `count` of them, which stand at the end of `place` already."""

    def __init__(self, place: Place, count: int) -> None:
        self._path, self._count = place.path(), count
        self._mask: Tensor | None = None

    def attend(self, layer: int, query: Tensor, state: Tensor, scaling: float) -> Tensor:
        """As `Attending`."""
        own = self._path[-1]
        own.write(layer, state)
        held = [place.state(layer) for place in self._path]
        keys, values = torch.cat(held, dim=2) if len(held) > 1 else held[0]
        is_whole = own.end == self._count
        if self._mask is None and not is_whole:
            unseen = torch.full((self._count, own.end), -torch.inf, dtype=query.dtype, device=query.device)
            self._mask = unseen.triu(own.end - self._count + 1)
        if not query.is_cpu:  # elsewhere a mask together with shared key heads takes the slowest of the kernels
            keys, values = (one.repeat_interleave(query.shape[0] // one.shape[0], dim=0) for one in (keys, values))
        found = torch.nn.functional.scaled_dot_product_attention(
            query[None],
            keys[None],
            values[None],
            attn_mask=self._mask,
            is_causal=is_whole,
            scale=scaling,
            enable_gqa=query.is_cpu,
        )
        return found[0].transpose(0, 1)


class ManyRows:
    """One token of each row, which stands at the end of the row's place already. `places` of a common path are side by
    side: what several rows share is read once for all of them."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._spans: dict[Place, tuple[int, int]] = {}  # the first row that a place is of, and the one after the last
        for row, place in enumerate(places):
            for one in place.path():
                self._spans[one] = self._spans.get(one, (row, row))[0], row + 1

    def attend(self, layer: int, query: Tensor, state: Tensor, scaling: float) -> Tensor:
        """As `Attending`. Scores of all rows are in one table, with -inf where a row has nothing."""
        for row, place in enumerate(self._places):
            place.write(layer, state[:, :, row : row + 1])
        (heads, rows, size), groups = query.shape, state.shape[1]
        each = heads // groups  # query heads of one key head
        asked = (query * scaling).view(groups, each, rows, size).transpose(1, 2).reshape(groups, rows * each, size)
        longest = max(place.end for place in self._places)
        scores = asked.new_full((groups, rows * each, longest), -torch.inf)
        spans = [
            (place.state(layer), slice(first * each, last * each), slice(place.start, place.end))
            for place, (first, last) in self._spans.items()
        ]
        for held, wanted, columns in spans:
            scores[:, wanted, columns] = asked[:, wanted] @ held[0].transpose(1, 2)
        shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        found = torch.zeros_like(asked)
        for held, wanted, columns in spans:
            found[:, wanted] += shares[:, wanted, columns] @ held[1]
        return found.view(groups, rows, each, size).transpose(0, 1).reshape(rows, heads, size)


@contextlib.contextmanager
def ragged(model: Any) -> Iterator[None]:
    """Inside, the model attends by what its forward is given as `attending`; as before afterwards.

    Raises ArenaError V2124 for a model whose layers do not all attend to everything before them.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attention)
    config = model.config
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        raise ArenaError("V2124", f"{config.model_type}: only models of full attention are sampled in this process")
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attending: Attending,
    scaling: float,
    **rest: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: (1, heads, tokens, head size) each, to (1, tokens, heads, head size).

    Raises ArenaError V2124 for attention of a kind that isn't done here.
    """
    others = [name for name in _OTHER_KINDS if rest.get(name) is not None]
    if others:
        raise ArenaError("V2124", f"attention with {others[0]} is not sampled from in this process")
    return attending.attend(module.layer_idx, query[0], torch.cat([key, value]), scaling)[None], None
