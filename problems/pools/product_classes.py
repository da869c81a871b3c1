"""Product classes: which products of a catalogue are the same thing sold by several shops.

Two listings are one class when their title keys (`problems.pools.title_keys`) are equal, or differ by at most
two words that carry no meaning in this catalogue: words that are in many titles of most departments, and that name no
brand, colour, size, material, audience or grade. Words with a digit always carry meaning. Whatever is joined shares
every telling word, so a class cannot drift along a chain into another product.

A pure function of the products, whatever their order, exact (no hashing of similar things into one bucket by luck), and
near-linear: a title is compared through the few shorter forms it has, never with every other title. It looks at titles
alone, because a reward holds nothing else of a product; options, price and shop never part a class.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from problems.pools.disjoint_sets import DisjointSets
from problems.pools.title_keys import spoken_words, title_key
from problems.product import Product
from problems.word_lists import word_list

EXTRA_WORDS_MAX = 2  # words without meaning that two titles of one class may differ by
_TELLING_WORDS_MIN = 3  # below that, too little is left of a title to say that it is the same
_EMPTY_WORDS_MAX = 12  # a title of more is a pile of search words: its shorter forms are not tried
_COMMON_TITLES_MIN = 20
_COMMON_SHARE = 0.002  # of all titles
_DEPARTMENTS_MIN = 4
_DEPARTMENT_SHARE = 0.6  # of the departments, in each of which it stands at least twice

_BRAND_SHARE = 0.05  # of the titles with a word: as often named a brand there, the word is one
_DIGIT = re.compile(r"\d")


class ProductClasses(msgspec.Struct, frozen=True, kw_only=True):
    """The classes of one catalogue. Make it with `find_classes`; `NO_CATALOGUE` knows titles alone.

    A class is named by the smallest title key in it. Keys of classes with one key are not listed.
    """

    key_of_product: dict[str, str] = {}
    class_of_key: dict[str, str] = {}
    keys_of_class: dict[str, tuple[str, ...]] = {}

    def class_of(self, title: str) -> str:
        """The name of the class that a title belongs to; of its own key when the catalogue says nothing."""
        key = title_key(title)
        return self.class_of_key.get(key, key)

    def keys_of(self, product_id: str, titles: Iterable[str] = ()) -> frozenset[str]:
        """Every title key that means this product: of its titles, of its listing, and of the classes of both."""
        keys = {title_key(title) for title in titles}
        if product_id in self.key_of_product:
            keys.add(self.key_of_product[product_id])
        names = {self.class_of_key[key] for key in keys if key in self.class_of_key}
        return frozenset(keys.union(*(self.keys_of_class[name] for name in names)))


NO_CATALOGUE = ProductClasses()


def find_classes(products: Iterable[Product]) -> ProductClasses:
    """The classes of a catalogue. The products are read once; titles, departments and brands are kept, nothing else."""
    key_of_product: dict[str, str] = {}
    listings: dict[str, Listing] = defaultdict(Listing)
    for product in products:
        key = title_key(product.title)
        key_of_product[product.product_id] = key
        listings[key].departments.add(product.category.partition(" > ")[0])
        for brand in (product.brand, *product.attributes.get("brand", ())):
            if brand:
                listings[key].brand_words.update(spoken_words(brand))
    keys_of_class = _joined(listings, words_without_meaning(listings)).joined()
    return ProductClasses(
        key_of_product=key_of_product,
        class_of_key={key: name for name, keys in keys_of_class.items() for key in keys},
        keys_of_class=keys_of_class,
    )


class Listing:
    """Where a title key is listed: departments (first part of a category), and the words of the brands named there."""

    __slots__ = ("brand_words", "departments")

    def __init__(self) -> None:
        self.departments: set[str] = set()
        self.brand_words: set[str] = set()


def words_without_meaning(listings: Mapping[str, Listing]) -> frozenset[str]:
    """The words that tell nothing apart here: seen all over the catalogue, without a digit, no brand and no variant.

    Takes what is known of each title key. None are found in a catalogue of fewer than four departments: there, what is
    common may be what the shop is about.
    """
    departments = set().union(*(listing.departments for listing in listings.values())) - {""}
    if len(departments) < _DEPARTMENTS_MIN:
        return frozenset()
    titles_with: Counter[str] = Counter()
    named_brand: Counter[str] = Counter()
    seen_in: dict[str, Counter[str]] = defaultdict(Counter)
    for key, listing in listings.items():
        for word in key.split(" "):
            titles_with[word] += 1
            named_brand[word] += word in listing.brand_words
            seen_in[word].update(listing.departments - {""})
    titles_min = max(_COMMON_TITLES_MIN, _COMMON_SHARE * len(listings))
    return frozenset(
        word
        for word, titles in titles_with.items()
        if titles >= titles_min
        and named_brand[word] < _BRAND_SHARE * titles
        and word not in word_list("variant")
        and not _DIGIT.search(word)
        and sum(count >= 2 for count in seen_in[word].values()) >= _DEPARTMENT_SHARE * len(departments)
    )


def _joined(keys: Iterable[str], empty_words: frozenset[str]) -> DisjointSets:
    """Joins the keys that differ by at most two empty words.

    Two such keys either lose one word each and meet, or one of them loses one or two and becomes the other.
    """
    known = set(keys)
    meeting: dict[str, list[str]] = defaultdict(list)
    sets = DisjointSets()
    for key in sorted(known):
        words = key.split(" ")
        empty = [word for word in words if word in empty_words]
        if not 1 <= len(empty) <= _EMPTY_WORDS_MAX or len(words) - len(empty) < _TELLING_WORDS_MIN:
            continue
        for lost in range(1, EXTRA_WORDS_MAX + 1):
            for gone in itertools.combinations(empty, lost):
                shorter = " ".join(word for word in words if word not in gone)
                if lost == 1:
                    meeting[shorter].append(key)
                if shorter in known:
                    sets.join((key, shorter))
    for group in meeting.values():
        if len(group) > 1:
            sets.join(group)
    return sets
