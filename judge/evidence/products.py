"""The products that tools returned, and by which marks a text can mean them.

A mark (`judge.evidence.mentions`) has a weight: an id or a price tells a product by itself; words of its title and
of its attributes have to be telling.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

import msgspec

from judge.evidence.mentions import price_marks, service_mark
from judge.evidence.tokens import is_everyday, is_gram, is_telling, plain_number, says_nothing, tokenise

FIRM, WORD, GRAM = 4, 2, 1  # weights of marks
_TITLE_FIELDS = ("title",)
_TRAIT_FIELDS = ("attributes", "sku_options")
_ID_DIGITS_MIN = 4


class ReturnedProduct(msgspec.Struct, frozen=True):
    """A product by its id. `names` are the marks of its id, price and title, `traits` those of its attributes, options
    and services; each with its weight and the number of the span that returned it first."""

    product_id: str
    names: Mapping[str, tuple[int, int]]
    traits: Mapping[str, tuple[int, int]]

    def joined(self, later: ReturnedProduct) -> ReturnedProduct:
        """This product with what a later result says of it."""
        return ReturnedProduct(
            self.product_id,
            self.names if self.names.keys() >= later.names.keys() else {**later.names, **self.names},
            self.traits if self.traits.keys() >= later.traits.keys() else {**later.traits, **self.traits},
        )

    def settled(self, planted: Collection[str], *, are_many: bool) -> ReturnedProduct:
        """This product as the whole trace leaves it: less the ways to write its price that the program said first. A
        rounded price weighs a word's weight where many products came back, since it is nearly always some product's."""
        names: dict[str, tuple[int, int]] = {}
        for mark, (weight, number) in self.names.items():
            price = mark.lstrip("~")
            is_rounded = mark != price and price not in self.names
            if price not in planted:
                names[mark] = (WORD if is_rounded and are_many else weight, number)
        return ReturnedProduct(self.product_id, names, self.traits)


def read_product(
    record: Mapping[str, object], number: int, known: Collection[str], wanted: Collection[str]
) -> ReturnedProduct:
    """The product of a record in span `number`. No mark is made of `known` words; only those `wanted` are kept."""
    product_id = str(record["product_id"])
    names: dict[str, int] = {}
    for field in _TITLE_FIELDS:
        names |= _words(tokenise(str(record.get(field, ""))), known)
    names |= {token: FIRM for token in tokenise(product_id) if len(token) >= _ID_DIGITS_MIN}
    said = record.get("price")
    price = said if isinstance(said, int | float) and not isinstance(said, bool) else None
    if price is not None:
        names |= {mark: FIRM for mark in price_marks(price, plain_number(str(price)))}
    traits: dict[str, int] = {}
    for value in itertools.chain.from_iterable(values_of(record.get(field)) for field in _TRAIT_FIELDS):
        traits |= _words(tokenise(value), known)
    traits |= {service_mark(value): WORD for value in values_of(record.get("service"))}
    return ReturnedProduct(
        product_id,
        {mark: (weight, number) for mark, weight in names.items() if mark in wanted and mark.lstrip("~") not in known},
        {mark: (weight, number) for mark, weight in traits.items() if mark in wanted and mark not in known},
    )


def fields_of(record: Mapping[str, object]) -> Iterator[str]:
    """The tokens of a record's fields, except of its descriptions."""
    for name in ("product_id", "shop_id", "price", "service", *_TITLE_FIELDS, *_TRAIT_FIELDS):
        for value in values_of(record.get(name)):
            yield from tokenise(value)


def values_of(value: object, *, are_keys_said: bool = False) -> Iterator[str]:
    """Every text and number in a JSON value, in its order, with the names of its fields where these are said."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            for key, item in reversed(one.items()):
                waiting += [item, key] if are_keys_said else [item]
        elif isinstance(one, list | tuple):
            waiting += reversed(one)
        elif isinstance(one, str | int | float) and not isinstance(one, bool):
            yield str(one)


def _words(tokens: tuple[str, ...], known: Collection[str]) -> dict[str, int]:
    """Marks of a title or value: its telling words, and pairs of neighbours that are more than glue and known words."""
    marks = {token: GRAM if is_gram(token) else WORD for token in tokens if is_telling(token) and token not in known}
    for one, two in itertools.pairwise(tokens):
        is_pair = not says_nothing(one) and not says_nothing(two) and not (is_everyday(one) and is_everyday(two))
        if is_pair and not (one in known and two in known) and not is_gram(one):
            marks[f"{one} {two}"] = GRAM if one in known or two in known else WORD
    return marks
