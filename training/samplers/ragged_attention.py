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
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from foundation.errors import ArenaError

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
        self.layers: list[Tensor] = []  # (2, key heads, room, head size) each

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + len(self.ids)

    @property
    def held_bytes(self) -> int:
        """What its keys and values take, spare room included."""
        return sum(layer.nbytes for layer in self.layers)

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
        if layer == len(self.layers):
            self.layers.append(state.new_empty((*state.shape[:2], last + _SPARE_TOKENS, state.shape[3])))
        held = self.layers[layer]
        if held.shape[2] < last:
            grown = held.new_empty((*held.shape[:2], int(last * _GROWTH) + _SPARE_TOKENS, held.shape[3]))
            grown[:, :, :first] = held[:, :, :first]
            self.layers[layer] = held = grown
        held[:, :, first:last] = state

    def state(self, layer: int) -> Tensor:
        """Keys and values of its tokens in one layer: (2, key heads, tokens, head size)."""
        return self.layers[layer][:, :, : len(self.ids)]

    def take(self, other: Place, first: int, last: int) -> None:
        """Hold what `other` holds of its tokens from `first` to before `last`."""
        self.ids = other.ids[first:last]
        self.layers = [layer[:, :, first:last].clone() for layer in other.layers]  # a view would hold all of it


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
        found.touched = next(self._clock)
        return found

    def release(self, place: Place) -> None:
        """Its row writes no more. Places over the bound are dropped."""
        place.is_used = False
        place.touched = next(self._clock)
        over = sum(one.held_bytes for one in self._places()) - self._bytes_max
        while over > 0:  # unused ends go, the longest unused first
            ends = [end for end in self._places() if not end.children and not end.is_used]
            if not ends:
                return
            oldest = min(ends, key=lambda end: end.touched)
            assert oldest.parent is not None
            oldest.parent.children.remove(oldest)
            oldest.parent.touched = max(oldest.parent.touched, oldest.touched)
            over -= oldest.held_bytes

    def _longest(self, wanted: list[int]) -> Place:
        """The place at whose end the longest held beginning of `wanted` ends, made by a split where it has to be."""
        place = self._root
        while True:
            near, common = None, 0
            for child in place.children:
                pairs = enumerate(zip(child.ids, wanted[place.end :], strict=False))
                shared = next(
                    (at for at, (one, other) in pairs if one != other), min(len(child.ids), len(wanted) - place.end)
                )
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

    def _places(self) -> list[Place]:
        """All places but the root."""
        found, open_ = [], list(self._root.children)
        while open_:
            place = open_.pop()
            found.append(place)
            open_ += place.children
        return found


NAME = "arena_ragged"
_COLUMNS = 64  # room that slots are given at once
_SLOT_TOKENS_MAX = 512  # more of one row go to its place: each row pays for the columns of the fullest slot
_COPIED_TOKENS_MAX = 256  # of a place of one row: more are read where they stand, since short rows would wait for them
_OTHER_KINDS = ("sliding_window", "softcap", "s_aux", "position_bias")


class OneRow:
    """The next tokens of one row: `count` of them, which stand at the end of `place` already."""

    def __init__(self, place: Place, count: int) -> None:
        self._path, self._count = place.path(), count
        self._first = len(place.ids) - count
        self._mask: Tensor | None = None

    def attend(self, layer: int, query: Tensor, state: Tensor, scaling: float) -> Tensor:
        """`query` (heads, tokens, head size) and `state` (2, key heads, tokens, head size), the tokens' own keys and
        values, which are kept; gives (tokens, heads, head size)."""
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


@dataclass
class _Slot:
    """What a row alone attends to: `count` tokens from position `start` on. The last, `ids`, are in no place yet."""

    place: Place
    start: int
    count: int
    ids: list[int] = field(default_factory=list)


class ManyRows:
    """One token of each row a pass, after what stands in its place. Rows come and go between passes.

    What a row was given here, and the tokens of its own place where they are few, stand in a slot of one table, so that
    one product serves all rows, and a row that comes or goes moves no other. What a long turn has beyond a slot's bound
    goes to the end of its place; the rest by `put_back`.
    """

    def __init__(self) -> None:
        self.places: list[Place] = []  # of the rows, in their order
        self._slots: list[_Slot] = []
        self._tables: list[Tensor] = []  # (2, slots, key heads, columns, head size) of each layer, with room to spare
        self._room = (0, 0)  # slots and columns of each
        self._order: list[int] = []  # the slot of each row
        # what stands before a row's slot: place, its first row, the row after its last
        self._spans: list[tuple[Place, int, int]] = []
        self._shared: list[list[Tensor]] = []  # keys and values of each span, layer by layer
        # of the pass that runs, by `grow`
        self._columns, self._longest = 0, 0  # of a slot; before one
        self._pass: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def follow(self, places: Sequence[Place]) -> None:
        """Serve these rows, those of a common path side by side. They are all the rows there were, and new ones."""
        known = {slot.place for slot in self._slots}
        for place in places:
            if place in known:
                continue
            count = len(place.ids) if len(place.ids) <= _COPIED_TOKENS_MAX else 0
            self._slots.append(_Slot(place, place.end - count, count))
            self._make_room(len(places), count)
            for layer in range(len(place.layers) if count else 0):
                state = place.state(layer)
                self._table(layer, state)[:, len(self._slots) - 1, :, :count] = state
        self.places = list(places)
        self._set_order()

    def grow(self, ids: Sequence[int]) -> None:
        """A column for the token of each row that the pass to come is given."""
        slots = [self._slots[number] for number in self._order]
        if any(slot.count >= _SLOT_TOKENS_MAX for slot in slots):
            for number, slot in enumerate(self._slots):
                if slot.count >= _SLOT_TOKENS_MAX:
                    self._write(number)
                    slot.start, slot.count = slot.place.end, 0
            self._set_order()
        for slot, one in zip(slots, ids, strict=True):
            slot.ids.append(one)
            slot.count += 1
        self._columns = max(slot.count for slot in slots)
        self._make_room(len(slots), self._columns)
        self._pass = None

    def put_back(self, place: Place) -> None:
        """A row is over: all it was given here goes to the end of its place."""
        number = next(number for number, slot in enumerate(self._slots) if slot.place is place)
        self._write(number)
        last = self._slots.pop()
        if last.place is not place:
            self._slots[number] = last
            for table in self._tables:
                table[:, number, :, : last.count] = table[:, len(self._slots), :, : last.count]
        self.places = []  # until the others are followed anew

    def attend(self, layer: int, query: Tensor, state: Tensor, scaling: float) -> Tensor:
        """As `OneRow`. Scores of all rows are in one table, with -inf where a row has nothing."""
        if layer == len(self._shared):
            self._shared.append([place.state(layer) for place, _, _ in self._spans])
        slots, columns, rows_at, unseen = self._of_pass(query)
        table = self._table(layer, state)
        table[:, slots, :, columns] = state.permute(2, 0, 1, 3)
        keys, values = table[:, : len(self._slots), :, : self._columns]
        (heads, rows, size), groups = query.shape, state.shape[1]
        each = heads // groups  # query heads of one key head
        apart = (query * scaling).view(groups, each, rows, size).transpose(1, 2)
        asked = apart.reshape(groups, rows * each, size)
        scores = asked.new_full((groups, rows * each, self._longest + self._columns), -torch.inf)
        for (place, first, last), held in zip(self._spans, self._shared[layer], strict=True):
            wanted = slice(first * each, last * each)
            scores[:, wanted, place.start : place.end] = asked[:, wanted] @ held[0].transpose(1, 2)
        own = (apart.transpose(0, 1)[rows_at] @ keys.transpose(2, 3))[slots].transpose(0, 1)
        late = scores[:, :, self._longest :].view(groups, rows, each, self._columns)
        torch.add(own, unseen, out=late)
        shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        late = shares[:, :, self._longest :].view(groups, rows, each, self._columns)
        found: Tensor = (late.transpose(0, 1)[rows_at] @ values)[slots].transpose(0, 1).reshape_as(asked)
        for (place, first, last), held in zip(self._spans, self._shared[layer], strict=True):
            wanted = slice(first * each, last * each)
            found[:, wanted] += shares[:, wanted, place.start : place.end] @ held[1]
        return found.view(groups, rows, each, size).transpose(0, 1).reshape(rows, heads, size)

    def _make_room(self, slots: int, columns: int) -> None:
        """Tables of at least as many slots and columns."""
        if slots <= self._room[0] and columns <= self._room[1]:
            return
        room = (max(self._room[0], slots), max(self._room[1], -(-columns // _COLUMNS) * _COLUMNS))
        for layer, held in enumerate(self._tables):
            # zeros: what a slot never held must count nothing, times no share
            self._tables[layer] = held.new_zeros((2, room[0], held.shape[2], room[1], held.shape[4]))
            self._tables[layer][:, : self._room[0], :, : self._room[1]] = held
        self._room = room

    def _table(self, layer: int, like: Tensor) -> Tensor:
        """The table of one layer, made for such keys and values where there is none. Layers come in their order."""
        if layer == len(self._tables):
            self._tables.append(like.new_zeros((2, self._room[0], like.shape[1], self._room[1], like.shape[3])))
        return self._tables[layer]

    def _write(self, number: int) -> None:
        """Put what a slot was given to the end of its place."""
        slot = self._slots[number]
        first = len(slot.place.ids)
        slot.place.ids += slot.ids
        for layer, table in enumerate(self._tables):
            slot.place.write(layer, first, table[:, number, :, slot.count - len(slot.ids) : slot.count])
        slot.ids = []

    def _set_order(self) -> None:
        numbers = {slot.place: number for number, slot in enumerate(self._slots)}
        self._order = [numbers[place] for place in self.places]
        self._longest = max((slot.start for slot in self._slots), default=0)
        self._spans, self._shared = [], []
        open_: dict[Place, int] = {}
        for row, place in enumerate(self.places):
            for one in place.path():
                if one.start >= self._slots[self._order[row]].start:
                    break
                if one in open_ and self._spans[open_[one]][2] == row:
                    self._spans[open_[one]] = (one, self._spans[open_[one]][1], row + 1)
                else:
                    open_[one] = len(self._spans)
                    self._spans.append((one, row, row + 1))

    def _of_pass(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Slot and column of each row's token; row of each slot; (rows, 1, columns) -inf where a row has nothing."""
        if self._pass is None:
            slots = torch.tensor(self._order, device=like.device)
            last = torch.tensor([self._slots[number].count - 1 for number in self._order], device=like.device)
            columns = torch.arange(self._columns, device=like.device)
            nothing = like.new_zeros((len(slots), 1, len(columns)))
            unseen = nothing.masked_fill(columns > last[:, None, None], -torch.inf)
            self._pass = slots, last, slots.argsort(), unseen
        return self._pass


Attention = OneRow | ManyRows  # what the tokens of one forward pass attend to


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
    attending: Attention,
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
