"""The products that tools returned, and by which marks a text can mean them.

A mark (`judge.mentions`) has a weight: an id or a price tells a product by itself; words of its title and of its
attributes have to be telling, and products that only the program's own searches returned need two of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

import msgspec
import orjson

from judge.mentions import price_marks, service_mark
from judge.tokens import is_everyday, is_gram, is_telling, plain_number, says_nothing, tokenise

FIRM, WORD, GRAM = 4, 2, 1  # weights of marks
_TITLE_FIELDS = ("title",)
_TRAIT_FIELDS = ("attributes", "sku_options")
_ID_DIGITS_MIN = 4


class ReturnedProduct(msgspec.Struct, frozen=True):
    """A product by its id. `names` are the marks of its id, price and title, `traits` those of its attributes, options
    and services; each with its weight and the number of the span that returned it first."""

    product_id: str
    is_found_by_model: bool  # some result of a call that the model wrote holds it
    names: Mapping[str, tuple[int, int]]
    traits: Mapping[str, tuple[int, int]]

    def joined(self, later: ReturnedProduct) -> ReturnedProduct:
        """This product with what a later result says of it."""
        return ReturnedProduct(
            self.product_id,
            self.is_found_by_model or later.is_found_by_model,
            {**later.names, **self.names},
            {**later.traits, **self.traits},
        )


def products_in(result: str) -> Iterator[dict[str, object]]:
    """The product records in a result, at any depth; none in a result that is not JSON."""
    try:
        waiting = [orjson.loads(result)]
    except orjson.JSONDecodeError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(value.get("product_id"), str | int):
                yield value
                continue
            waiting += value.values()
        elif isinstance(value, list):
            waiting += reversed(value)


def read_product(
    record: Mapping[str, object], number: int, known: Collection[str], wanted: Collection[str], *, is_models: bool
) -> ReturnedProduct:
    """The product of a record in span `number`. No mark is made of `known` words; only those `wanted` are kept."""
    product_id = str(record["product_id"])
    names: dict[str, int] = {}
    for field in _TITLE_FIELDS:
        names |= _words(tokenise(str(record.get(field, ""))), known)
    names |= {token: FIRM for token in tokenise(product_id) if len(token) >= _ID_DIGITS_MIN}
    price = record.get("price")
    if isinstance(price, int | float) and not isinstance(price, bool):
        names |= {mark: FIRM for mark in price_marks(price, plain_number(str(price)))}
    traits: dict[str, int] = {}
    for value in itertools.chain.from_iterable(_values(record.get(field)) for field in _TRAIT_FIELDS):
        traits |= _words(tokenise(value), known)
    traits |= {service_mark(value): WORD for value in _values(record.get("service"))}
    return ReturnedProduct(
        product_id,
        is_models,
        {mark: (weight, number) for mark, weight in names.items() if mark in wanted and mark.lstrip("~") not in known},
        {mark: (weight, number) for mark, weight in traits.items() if mark in wanted and mark not in known},
    )


def fields_of(record: Mapping[str, object]) -> Iterator[str]:
    """The tokens of a record's fields, except of its descriptions."""
    for name in ("product_id", "shop_id", "price", "service", *_TITLE_FIELDS, *_TRAIT_FIELDS):
        for value in _values(record.get(name)):
            yield from tokenise(value)


def _words(tokens: tuple[str, ...], known: Collection[str]) -> dict[str, int]:
    """Marks of a title or value: its telling words, and pairs of neighbours that are more than glue and known words."""
    marks = {token: GRAM if is_gram(token) else WORD for token in tokens if is_telling(token) and token not in known}
    for one, two in itertools.pairwise(tokens):
        is_pair = not says_nothing(one) and not says_nothing(two) and not (is_everyday(one) and is_everyday(two))
        if is_pair and not (one in known and two in known) and not is_gram(one):
            marks[f"{one} {two}"] = GRAM if one in known or two in known else WORD
    return marks


def _values(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, str | int | float) and not isinstance(one, bool):
            yield str(one)
