"""The shelf: a word index over catalogue titles that tells how many products would satisfy a reward.

Promise: exact counts under `lexical/1`, without comparing every title with every other. Used to make problems whose
answer few other products satisfy, and queries whose words lead to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from problems.axes import match
from problems.model import RewardItem
from problems.product import Product
from problems.titles import LexicalTitles, title_words

_TITLES = LexicalTitles()


class Shelf:
    """Products by title word, in a fixed order whatever order they came in."""

    def __init__(self, products: Iterable[Product]) -> None:
        self.products: Sequence[Product] = sorted(products, key=lambda product: product.product_id)
        self._holders: dict[str, set[int]] = defaultdict(set)
        for number, product in enumerate(self.products):
            for word in title_words(product.title):
                self._holders[word].add(number)

    def rarity(self, word: str) -> int:
        """How many titles hold the word: the rarer, the smaller."""
        return len(self._holders.get(word, ()))

    def count_holding(self, words: Iterable[str]) -> int:
        """How many titles hold all of the words."""
        holders = sorted((self._holders.get(word, set()) for word in words), key=len)
        return len(set.intersection(*holders)) if holders else len(self.products)

    def count_rivals(self, item: RewardItem, at_most: int) -> int:
        """How many products other than the answer satisfy the item; counting stops beyond `at_most`.

        A title similar to at least 7/10 shares at least 7/10 of the reward title's words, so it holds one of the
        rarest 3/10 plus one: only the holders of those are compared.
        """
        rivals = 0
        for number in sorted(self._candidates(item.title[0])):
            product = self.products[number]
            if product.product_id == item.product_id:
                continue
            axes = match(item, product, _TITLES)
            rivals += axes.hits == axes.total
            if rivals > at_most:
                break
        return rivals

    def _candidates(self, title: str) -> set[int]:
        words = sorted(title_words(title), key=lambda word: (self.rarity(word), word))
        shared_min = -(-7 * len(words) // 10)
        rare = words[: len(words) - shared_min + 1]
        return {
            number
            for number in set().union(*(self._holders.get(word, set()) for word in rare))
            if _TITLES.matches(self.products[number], title)
        }
