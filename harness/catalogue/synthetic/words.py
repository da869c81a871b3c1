"""The synthetic catalogue's vocabulary and its dice: every choice comes from `Dice`, so a seed fixes a catalogue.

The words are the project's own (`synthetic_vocabulary.json`); none is copied from a real catalogue. `Dice` builds on
`random()` alone, the one method whose sequence Python promises to keep between versions.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Sequence
from importlib import resources
from statistics import NormalDist
from typing import TypeVar

import msgspec

T = TypeVar("T")
Quantiles = tuple[tuple[float, float], ...]  # (share, value), ascending in both

_NORMAL = NormalDist()


class Department(msgspec.Struct, frozen=True):
    """One kind of shop floor: category path, nouns, title words, and the attributes and options its products have."""

    path: tuple[str, ...]
    price_php: float  # median
    nouns: tuple[str, ...]
    words: tuple[str, ...]
    attributes: dict[str, tuple[str, ...]]
    options: dict[str, tuple[str, ...]]


class DirtWords(msgspec.Struct, frozen=True):
    """What sloppy sellers and broken converters leave behind."""

    mojibake: tuple[str, ...]
    escapes: tuple[str, ...]
    values: tuple[str, ...]
    logistics: dict[str, tuple[str, ...]]
    wrong: dict[str, tuple[str, ...]]
    near_keys: dict[str, str]


class MarketVocabulary(msgspec.Struct, frozen=True):
    """Every word the generator knows."""

    departments: tuple[Department, ...]
    syllables: tuple[str, ...]
    generic_words: tuple[str, ...]
    purposes: tuple[str, ...]
    tagalog: tuple[str, ...]
    cjk: tuple[str, ...]
    emoji: tuple[str, ...]
    brackets: tuple[str, ...]
    sentences: tuple[str, ...]
    bullets: tuple[str, ...]
    makers: tuple[str, ...]
    attribute_keys_anywhere: dict[str, tuple[str, ...]]
    dirt: DirtWords


@functools.cache
def load_vocabulary() -> MarketVocabulary:
    """The shipped vocabulary, read on first use."""
    raw = resources.files("harness.catalogue").joinpath("synthetic_vocabulary.json").read_bytes()
    return msgspec.json.decode(raw, type=MarketVocabulary)


class Dice:
    """Seeded choices. Two dice of one seed make the same choices on every machine and Python version."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"synthetic catalogue {seed}").random

    def chance(self, share: float) -> bool:
        """True in `share` of the throws."""
        return self._random() < share

    def below(self, bound: int) -> int:
        """An integer in 0..bound - 1."""
        return int(self._random() * bound)

    def between(self, low: int, high: int) -> int:
        """An integer in low..high."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        """One item, all equally likely."""
        return items[self.below(len(items))]

    def pick_early(self, items: Sequence[T]) -> T:
        """One item, the early ones far likelier: a long tail."""
        return items[int(self._random() ** 3 * len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items (all of them when there are fewer), in random order."""
        pool = list(items)
        last = min(count, len(pool))
        for place in range(last):
            other = place + self.below(len(pool) - place)
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:last]

    def weighted(self, table: Sequence[tuple[float, T]]) -> T:
        """The item whose share the throw falls into; shares sum to 1."""
        throw = self._random()
        for share, item in table:
            throw -= share
            if throw < 0:
                return item
        return table[-1][1]

    def quantile(self, table: Quantiles) -> float:
        """A value whose distribution has these quantiles, straight lines between them."""
        throw = self._random()
        for (low_share, low), (high_share, high) in itertools.pairwise(table):
            if throw < high_share:
                return low + (high - low) * (throw - low_share) / (high_share - low_share)
        return table[-1][1]

    def normal(self) -> float:
        """A standard normal value."""
        return _NORMAL.inv_cdf(min(max(self._random(), 1e-12), 1 - 1e-12))

    def invented_word(self, syllables: Sequence[str]) -> str:
        """A word nobody has used before, of two or three syllables."""
        return "".join(self.pick(syllables) for _ in range(self.between(2, 3)))
