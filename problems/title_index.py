"""A word index over catalogue titles that tells which products would satisfy a reward.

Exact answers under `lexical/1`, without comparing every title with every other, and the same whatever order
the products came in. It is built once (a few seconds per hundred thousand products) and asked many times: synthesis,
ambiguity and difficulty share one. The index is numpy arrays, so a catalogue costs little beyond its products; asking
is not thread-safe, since counters are reused.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from problems.axes import match
from problems.clusters import ProductClasses, find_classes
from problems.model import Product, RewardItem
from problems.titles import LexicalTitles, TitleMatcher, title_words

Numbers = npt.NDArray[np.int32]  # places in the index, ascending
_NOBODY: Numbers = np.empty(0, dtype=np.int32)


class TitleIndex:
    """Products by title word, ordered by product id."""

    def __init__(self, products: Iterable[Product]) -> None:
        self.products: Sequence[Product] = sorted(products, key=lambda product: product.product_id)
        self._place_of = {product.product_id: place for place, product in enumerate(self.products)}
        word_numbers: dict[str, int] = {}
        words, places = [], []
        self._sizes = np.zeros(len(self.products), dtype=np.int16)
        for place, product in enumerate(self.products):
            of_title = title_words(product.title)
            self._sizes[place] = len(of_title)
            words += [word_numbers.setdefault(word, len(word_numbers)) for word in of_title]
            places += [place] * len(of_title)
        order = np.argsort(np.array(words, dtype=np.int32), kind="stable")
        self._postings: Numbers = np.array(places, dtype=np.int32)[order]
        ends = np.cumsum(np.bincount(np.array(words, dtype=np.int64), minlength=len(word_numbers)))
        self._word_numbers = word_numbers
        self._bounds = np.concatenate(([0], ends)).astype(np.int64)
        self._counter = np.zeros(len(self.products), dtype=np.int16)

    @functools.cached_property
    def classes(self) -> ProductClasses:
        """The product classes of these products: near-identical listings are one (`problems.clusters`)."""
        return find_classes(self.products)

    @functools.cached_property
    def class_numbers(self) -> npt.NDArray[np.int32]:
        """Per place, the number of the product's class; equal numbers, equal classes."""
        numbers: dict[str, int] = {}
        keys, names = self.classes.key_of_product, self.classes.class_of_key
        of_place = (names.get(key, key) for key in (keys[product.product_id] for product in self.products))
        return np.fromiter((numbers.setdefault(name, len(numbers)) for name in of_place), np.int32, len(self.products))

    def place(self, product_id: str) -> int | None:
        """Where a product stands, or None when it is not here."""
        return self._place_of.get(product_id)

    def product(self, product_id: str) -> Product | None:
        """The product with that id, or None: a `problems.score.ProductOf`."""
        place = self._place_of.get(product_id)
        return None if place is None else self.products[place]

    def rarity(self, word: str) -> int:
        """How many titles hold the word: the rarer, the smaller."""
        return len(self._holders(word))

    def count_holding(self, words: Iterable[str]) -> int:
        """How many titles hold all of the words."""
        return len(self._places_holding(words))

    def holding(self, words: Iterable[str]) -> list[Product]:
        """The products whose title holds all of the words."""
        return [self.products[place] for place in self._places_holding(words)]

    def similar(self, title: str) -> Numbers:
        """The places of the products whose title `lexical/1` takes for `title`."""
        return self.near(title, 7_000)[0]

    def near(self, title: str, share_min_e4: int) -> tuple[Numbers, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The places of the titles that share at least so much (in ten-thousandths) of the words with `title`, and the
        numbers of words of both and of either.

        Such a title shares that part of this one's words, so it holds one of the rarest of the rest and one more: only
        the holders of those are compared.
        """
        words = sorted((self._holders(word) for word in title_words(title)), key=len)
        shared_min = max(1, -(-share_min_e4 * len(words) // 10_000))
        candidates = np.unique(np.concatenate([_NOBODY, *words[: len(words) - shared_min + 1]]))
        for places in words:
            self._counter[places] += 1
        shared = self._counter[candidates].astype(np.int64)
        for places in words:  # it is left as it was found: all zero
            self._counter[places] = 0
        union = self._sizes[candidates] + len(words) - shared
        near = (shared > 0) & (10_000 * shared >= share_min_e4 * union)
        return candidates[near], shared[near], union[near]

    def accepted(self, item: RewardItem, titles: TitleMatcher | None = None) -> tuple[Product, ...]:
        """Every product that satisfies the item, the answer among them, in order of id.

        Under another matcher than `lexical/1` the whole catalogue is compared, unless it lists what it accepts (a title
        release). Raises ArenaError V2040 when the matcher does not know a title.
        """
        matcher = LexicalTitles() if titles is None else titles
        listed: Mapping[str, frozenset[str]] = getattr(matcher, "accepted", {})
        places: set[int] = set(range(len(self.products)))
        if isinstance(matcher, LexicalTitles):
            places = {int(place) for place in self.similar(item.title[0])}
        elif item.title[0] in listed:
            places = {place for key in listed[item.title[0]] if (place := self._place_of.get(key)) is not None}
        if (own := self._place_of.get(item.product_id)) is not None:
            places.add(own)
        return tuple(self.products[place] for place in sorted(places) if _is_met(item, self.products[place], matcher))

    def count_rivals(self, item: RewardItem, at_most: int) -> int:
        """How many products other than the answer satisfy the item; counting stops beyond `at_most`."""
        rivals = 0
        for place in self.similar(item.title[0]):
            product = self.products[place]
            rivals += product.product_id != item.product_id and _is_met(item, product, LexicalTitles())
            if rivals > at_most:
                break
        return rivals

    def _places_holding(self, words: Iterable[str]) -> Numbers:
        holders = sorted((self._holders(word) for word in set(words)), key=len)
        if not holders:
            return np.arange(len(self.products), dtype=np.int32)
        left = holders[0]
        for others in holders[1:]:
            if not len(others):
                return _NOBODY
            at = np.searchsorted(others, left)
            at[at == len(others)] = 0
            left = left[others[at] == left]
        return left

    def _holders(self, word: str) -> Numbers:
        number = self._word_numbers.get(word)
        return _NOBODY if number is None else self._postings[self._bounds[number] : self._bounds[number + 1]]


def _is_met(item: RewardItem, product: Product, titles: TitleMatcher) -> bool:
    axes = match(item, product, titles)
    return axes.hits == axes.total
