"""What is known before a call of a run, what only later results tell, and which words say nothing of a product.

Endings of words are set aside by rule ("prices", "price"): two words that share a stem may differ, and no harm comes of
it but a word more that is let pass.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from functools import cached_property
from importlib.resources import files
from itertools import accumulate

import msgspec
import orjson

from foundation.canonical import objects_in
from harness.emission.wording import Passage, words_of


class CallStep(msgspec.Struct, frozen=True, kw_only=True):
    """One call that code chose, with what came back. `arguments` is JSON text, both byte for byte as recorded."""

    name: str
    arguments: str
    result: str


class CallTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its calls in the order in which they were made."""

    query: str
    steps: tuple[CallStep, ...]


_STEM_LETTERS = 3
_ENDINGS = (
    ("ies", "y"), ("ied", "y"), ("ier", "y"), ("iest", "y"), ("ily", "y"), ("ves", "f"), ("es", ""), ("s", ""),
    ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"), ("er", ""), ("er", "e"), ("est", ""), ("est", "e"),
    ("ly", ""), ("ly", "le"), ("ness", ""),
)  # fmt: skip
_TOLD_OF_PRODUCTS = frozenset(("black", "white"))  # in the list of openers, and no words of reasoning


@functools.cache
def is_plain(word: str) -> bool:
    """Whether a word says nothing of a product by itself."""
    plain = listed_words("plain_words") | listed_words("function_words") | listed_words("openers") - _TOLD_OF_PRODUCTS
    return not stems(word).isdisjoint(plain)


@functools.lru_cache(maxsize=1 << 14)
def stems(word: str) -> frozenset[str]:
    """The word, and what it may be a form of."""
    found = {word}
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_LETTERS:
            stem = word[: len(word) - len(ending)]
            found.add(stem + instead)
            if not instead and stem[-1] == stem[-2]:  # "fitting"
                found.add(stem[:-1])
    return frozenset(found)


ID_DIGITS = 6  # a number of so many digits is a product's or a shop's
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")

_SHORT_LEAF = 200  # characters of a value such as a title; longer ones are descriptions
_MARK_LETTERS = 4  # of a word of one title alone, that may stand for its product
_AFTER_THE = re.compile(r"\b[Tt]h(?:e|is|at) (?:\w+ )?\Z")
_SPEAKING_OF_OTHERS = ("service", "matches", "mismatches")  # fields whose values are words of the request


class ProductFacts(msgspec.Struct, frozen=True):
    """What results so far say of one product."""

    numbers: frozenset[Decimal] = frozenset()
    title: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()  # of everything that was told of it
    price: Decimal | None = None
    shop: str = ""


class KnownFacts:
    """What is known before a call: the query, the results so far, and the arguments of the call itself."""

    def __init__(self, timeline: CallTimeline, number: int) -> None:
        """`number` is the step, from 0, that the thought stands before."""
        self.before, self.step = timeline.steps[:number], timeline.steps[number]
        self.results = tuple(decoded(step.result) for step in self.before)
        self.query, self._later_steps = timeline.query, timeline.steps[number:]
        texts = [timeline.query, self.step.arguments, *(f"{step.arguments}\n{step.result}" for step in self.before)]
        self.text = "\n".join(texts)
        self.passage = Passage(word for text in texts for word in (*words_of(text), Passage.BREAK))
        self._seen = {seen for text in texts for seen in numbers_of(text)}

    @cached_property
    def numbers(self) -> frozenset[Decimal]:
        """Every number that may be named: what was seen, lengths of results, parts of the request, sums of prices."""
        counts = {len(found) for found in self.results if isinstance(found, list)}
        answers = [step for step in (*self.before, *self._later_steps) if step.name.startswith("recommend")]
        wishes = max((len(ids_in(step.arguments)) for step in answers), default=0)
        counts.update(range(max(wishes, len(self.before) + 1) + 1))
        own = ids_in(self.step.arguments)
        counts.add(len(own))
        prices = [price for one in own if one in self.products and (price := self.products[one].price) is not None]
        sums = accumulate(prices or numbers_of(self.step.arguments))  # of this call's products, one after another
        return frozenset(self._seen | {Decimal(count) for count in counts}).union(sums)

    @cached_property
    def derived(self) -> frozenset[Decimal]:
        """What two prices make together, and what is between two prices, or between a price and a limit asked for."""
        prices = {one.price for one in self.products.values() if one.price is not None}
        limits = set(numbers_of(self.query))
        return frozenset(
            {one + other for one in prices for other in prices}
            | {abs(one - other) for one in prices for other in prices | limits}
        )

    @cached_property
    def stems(self) -> frozenset[str]:
        """Whatever a word that was seen may be a form of."""
        return frozenset(stem for word in self.passage.vocabulary for stem in stems(word))

    def titled(self, word: str) -> frozenset[str]:
        """The products that have a word, or another form of it, in their title."""
        forms = stems(word)
        return frozenset(
            product_id
            for product_id, product in self.products.items()
            if any(not forms.isdisjoint(stems(other)) for other in product.title)
        )

    @cached_property
    def common(self) -> frozenset[Decimal]:
        """Numbers that may stand beside any product: the request's, the call's, and small counts."""
        given = {number for text in (self.query, self.step.arguments) for number in numbers_of(text)}
        return frozenset(given | {Decimal(count) for count in range(1, 11)})

    @cached_property
    def products(self) -> dict[str, ProductFacts]:
        """What is known of each product, by id."""
        products: dict[str, ProductFacts] = {}
        for found in (found for result in self.results for found in objects_in(result)):
            product_id, price = str(found.get("product_id", "")), found.get("price")
            if product_id.isdecimal():
                known = products.get(product_id, ProductFacts())
                products[product_id] = ProductFacts(
                    numbers=known.numbers.union(numbers_of(orjson.dumps(found).decode())),
                    title=known.title.union(words_of(str(found.get("title", "")))),
                    words=known.words.union(words_of(orjson.dumps(found).decode())),
                    price=Decimal(str(price)) if isinstance(price, int | float) else known.price,
                    shop=str(found.get("shop_id") or known.shop),
                )
        return products

    @cached_property
    def listings(self) -> tuple[frozenset[str], ...]:
        """The products of each result that lists some, by id."""
        found = (
            frozenset(str(one["product_id"]) for one in result if isinstance(one, dict) and "title" in one)
            for result in self.results
            if isinstance(result, list)
        )
        return tuple(listed for listed in found if listed)

    @cached_property
    def marks(self) -> dict[str, str]:
        """Words that stand for one product: its id, and words of its title that no other title has."""
        owners: dict[str, set[str]] = {}
        function_words = listed_words("function_words")
        for product_id, product in self.products.items():
            for word in product.title:
                owners.setdefault(word, set()).add(product_id)
        alone = {
            word: min(ids)
            for word, ids in owners.items()
            if len(ids) == 1 and len(word) >= _MARK_LETTERS and not word.isdecimal() and word not in function_words
        }
        return alone | {product_id: product_id for product_id in self.products}

    def named_in(self, text: str) -> list[tuple[int, str]]:
        """Products that a text names, in order, each with the place behind its name: by id, by a word of its title
        alone that is written like a name, or by such a word soon after "the" ("the glass one")."""
        return [
            (word.end(), product)
            for word in re.finditer(r"[^\W_]+", text)
            if (product := self.marks.get(word[0].lower())) is not None
            and (word[0].isdecimal() or word[0][0].isupper() or _AFTER_THE.search(text, 0, word.start()))
        ]

    @cached_property
    def later(self) -> Passage:
        """Titles and other short values of this call's result and of all after it."""
        fields = (
            field
            for step in self._later_steps
            for found in objects_in(decoded(step.result))
            for name, value in found.items()
            if name not in _SPEAKING_OF_OTHERS
            for field in (value if isinstance(value, list) else [value])
        )
        short = (words_of(field) for field in fields if isinstance(field, str) and len(field) <= _SHORT_LEAF)
        return Passage(word for words in short if words for word in (*words, Passage.BREAK))


def numbers_of(text: str) -> Iterator[Decimal]:
    """Every number written in digits, thousands set apart by commas or not."""
    for found in NUMBER.findall(unicodedata.normalize("NFKC", text)):
        yield Decimal(found.replace(",", ""))


def ids_in(arguments: str) -> list[str]:
    """The ids in a call's arguments, in order, each once."""
    return list(dict.fromkeys(word for word in words_of(arguments) if word.isdecimal() and len(word) >= ID_DIGITS))


def decoded(result: str) -> object:
    """A result that is JSON; None for one that is not."""
    try:
        return orjson.loads(result)
    except orjson.JSONDecodeError:
        return None


@functools.cache
def prompt_text(name: str) -> str:
    """The prompt of a name, package data."""
    return files("training.rewriting").joinpath("prompts", f"{name}.txt").read_text("utf-8")


@functools.cache
def listed_words(name: str) -> frozenset[str]:
    """The words of a list of a name."""
    return frozenset(prompt_text(name).split())
