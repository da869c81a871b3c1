"""Attention over rows of different lengths without padding, on keys and values that are in a prefix tree.

The model's own forward runs, with this function in the place of its attention (transformers'
`AttentionInterface`); queries, keys and values come as the model made them. What several rows begin with is read once
a step for all of them. Rows never see each other's own tokens. Outside `ragged` the model computes as before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from foundation.errors import ArenaError
from training.samplers.prefix_tree import Place

NAME = "arena_ragged"
_COLUMNS = 64  # room that rows are given at once
_COPIED_TOKENS_MAX = 256  # of a place of one row: more are read where they stand, since short rows would wait for them
_OTHER_KINDS = ("sliding_window", "softcap", "s_aux", "position_bias")


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
        self._first = len(place.ids) - count
        self._mask: Tensor | None = None

    def attend(self, layer: int, query: Tensor, state: Tensor, scaling: float) -> Tensor:
        """As `Attending`."""
        own = self._path[-1]
        own.write(layer, self._first, state)
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
    """One token of each row a pass, after what stands in its place. Places of a common path are side by side.

    What a row alone attends to stands here, a column a pass, so that one product serves all rows: what it is given
    here, and the tokens of its own place where they are few. The places stay as they are until `put_back`.
    """

    def __init__(self, places: Sequence[Place], before: ManyRows | None = None) -> None:
        """Rows that `before` has too go on with what they were given there."""
        self.places: list[Place | None] = list(places)  # None: put back
        rows = {} if before is None else {place: row for row, place in enumerate(before.places)}
        filled: int = 0 if before is None else before._columns
        kept = [rows.get(place) for place in places]
        copied = [len(place.ids) if len(place.ids) <= _COPIED_TOKENS_MAX else 0 for place in places]
        self._starts: list[int] = []  # of each row, the position of its first token that stands here
        self._first: list[int] = []  # and the column of that token
        for place, there, count in zip(places, kept, copied, strict=True):
            if before is None or there is None:
                self._starts.append(place.end - count)
                self._first.append(filled - count)
            else:
                self._starts.append(before._starts[there])
                self._first.append(before._first[there])
        dropped = min(self._first)  # columns that no row needs now; less than none where a new row brings some
        self._first = [first - dropped for first in self._first]
        self._columns: int = filled - dropped
        self._apart: list[Tensor] = []  # (2, key heads, rows, room, head size) of each layer
        if before is not None:
            here = [row for row, there in enumerate(kept) if there is not None]
            stay = [there for there in kept if there is not None]
            first = max(dropped, 0)
            for held in before._apart:
                self._apart.append(self._blank(held))
                columns = slice(first - dropped, self._columns)
                self._apart[-1][:, :, here, columns] = held[:, :, stay, first : before._columns]
        for row, place in enumerate(places):
            for layer in range(place.depth if kept[row] is None and copied[row] else 0):
                state = place.state(layer)
                if layer == len(self._apart):
                    self._apart.append(self._blank(state))
                self._apart[layer][:, :, row, self._columns - len(place.ids) : self._columns] = state
        self._longest = max(self._starts)
        # what stands before a row's first token here: place, its first row, the row after its last
        self._spans: list[tuple[Place, int, int]] = []
        open_: dict[Place, int] = {}
        for row, place in enumerate(places):
            for one in place.path():
                if one.end > self._starts[row]:
                    break
                if one in open_ and self._spans[open_[one]][2] == row:
                    self._spans[open_[one]] = (one, self._spans[open_[one]][1], row + 1)
                else:
                    open_[one] = len(self._spans)
                    self._spans.append((one, row, row + 1))
        self._shared: list[list[Tensor]] = []  # keys and values of each span, layer by layer
        self._unseen: Tensor | None = None  # what is added to the scores of columns that some row has nothing in

    def _blank(self, state: Tensor) -> Tensor:
        """Room for one layer. Zeros: a column that a row has nothing in counts nothing, times what stands there."""
        return state.new_zeros((*state.shape[:2], len(self.places), self._columns + _COLUMNS, state.shape[-1]))

    def grow(self) -> None:
        """A column for the tokens of the pass that follows."""
        self._columns += 1
        if self._apart and self._apart[0].shape[3] < self._columns:
            self._apart = [torch.nn.functional.pad(apart, (0, 0, 0, _COLUMNS)) for apart in self._apart]

    def put_back(self, place: Place, ids: Sequence[int]) -> None:
        """A row is over: `ids`, all it was given here, go to the end of its place."""
        row, first = self.places.index(place), len(place.ids)
        column = self._first[row] + place.end - self._starts[row]
        self.places[row] = None
        place.ids += ids
        for layer, apart in enumerate(self._apart):
            place.write(layer, first, apart[:, :, row, column : self._columns])

    def attend(self, layer: int, query: Tensor, state: Tensor, scaling: float) -> Tensor:
        """As `Attending`. Scores of all rows are in one table, with -inf where a row has nothing."""
        if layer == len(self._apart):
            self._apart.append(self._blank(state))
        if layer == len(self._shared):
            self._shared.append([place.state(layer) for place, _, _ in self._spans])
        self._apart[layer][:, :, :, self._columns - 1] = state
        keys, values = self._apart[layer][:, :, :, : self._columns]
        (heads, rows, size), groups = query.shape, state.shape[1]
        each = heads // groups  # query heads of one key head
        asked = (query * scaling).view(groups, each, rows, size).transpose(1, 2).reshape(groups, rows * each, size)
        scores = asked.new_full((groups, rows * each, self._longest + self._columns), -torch.inf)
        for (place, first, last), held in zip(self._spans, self._shared[layer], strict=True):
            wanted = slice(first * each, last * each)
            scores[:, wanted, place.start : place.end] = asked[:, wanted] @ held[0].transpose(1, 2)
        late = scores[:, :, self._longest :].view(groups, rows, each, self._columns)
        torch.add(asked.view(groups, rows, each, size) @ keys.transpose(2, 3), self._hidden(query), out=late)
        shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        found: Tensor = (shares[:, :, self._longest :].view(groups, rows, each, self._columns) @ values).view_as(asked)
        for (place, first, last), held in zip(self._spans, self._shared[layer], strict=True):
            wanted = slice(first * each, last * each)
            found[:, wanted] += shares[:, wanted, place.start : place.end] @ held[1]
        return found.view(groups, rows, each, size).transpose(0, 1).reshape(rows, heads, size)

    def _hidden(self, like: Tensor) -> Tensor:
        """(rows, 1, columns): -inf where a row has nothing, else 0."""
        if self._unseen is None or self._unseen.shape[2] < self._columns:
            columns = torch.arange(self._columns + _COLUMNS, device=like.device)
            first = torch.tensor(self._first, device=like.device)
            nothing = like.new_zeros((len(self._first), 1, len(columns)))
            self._unseen = nothing.masked_fill(columns < first[:, None, None], -torch.inf)
        return self._unseen[:, :, : self._columns]


def in_path_order(place: Place) -> tuple[int, ...]:
    """A key that brings places of a common path side by side."""
    return tuple(one.number for one in place.path())


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
