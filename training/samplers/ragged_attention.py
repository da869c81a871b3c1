"""Attention over rows of different lengths without padding, on keys and values that are in a prefix tree.

Promise: the model's own forward runs, with this function in the place of its attention (transformers'
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
    """One token of each row, which stands at the end of its place already. Places of a common path are side by side."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._longest = max(place.end for place in places)
        self._spans: list[tuple[Place, int, int]] = []  # place, its first row, the row after its last
        open_: dict[int, int] = {}
        for row, place in enumerate(places):
            for one in place.path():
                if one.number in open_ and self._spans[open_[one.number]][2] == row:
                    self._spans[open_[one.number]] = (one, self._spans[open_[one.number]][1], row + 1)
                else:
                    open_[one.number] = len(self._spans)
                    self._spans.append((one, row, row + 1))

    def attend(self, layer: int, query: Tensor, state: Tensor, scaling: float) -> Tensor:
        """As `Attending`. Scores of all rows are in one table, with -inf beyond a row's end."""
        for row, place in enumerate(self._places):
            place.write(layer, len(place.ids) - 1, state[:, :, row : row + 1])
        (heads, rows, size), groups = query.shape, state.shape[1]
        each = heads // groups  # query heads of one key head
        asked = (query * scaling).view(groups, each, rows, size).transpose(1, 2).reshape(groups, rows * each, size)
        scores = asked.new_full((groups, rows * each, self._longest), -torch.inf)
        for place, first, last in self._spans:
            keys = place.state(layer)[0]
            wanted = slice(first * each, last * each)
            scores[:, wanted, place.start : place.end] = asked[:, wanted] @ keys.transpose(1, 2)
        shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        found = torch.zeros_like(asked)
        for place, first, last in self._spans:
            wanted = slice(first * each, last * each)
            found[:, wanted] += shares[:, wanted, place.start : place.end] @ place.state(layer)[1]
        return found.view(groups, rows, each, size).transpose(0, 1).reshape(rows, heads, size)


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
