"""What counts as a datum: something a tool returned, which the request did not contain already.

A datum is a number of three or more digits, or two adjacent words, that stand in an earlier tool result and not in the
shopper's query. Both the check of citations and the scripted judge use this one definition. Results are read whole,
also where the judge was shown only their beginning and end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping

import msgspec

from judge.render import RenderedTrace

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
# Field names of the tools' results and glue words: a pair made of these alone proves nothing.
_FIELD_NAMES = (
    "product", "products", "id", "ids", "shop", "title", "price", "service", "services", "sku", "options", "option",
    "attributes", "attribute", "sold", "count", "brand", "category", "short", "description", "specification", "result",
    "results", "error", "true", "false", "null", "none", "found", "match", "matches",
)  # fmt: skip
_GLUE = (
    "a", "an", "the", "and", "or", "of", "in", "on", "at", "to", "for", "from", "with", "by", "is", "are", "was", "be",
    "it", "its", "this", "that", "these", "those", "as", "not", "no", "new",
)  # fmt: skip
_NO_DATA = frozenset((*_FIELD_NAMES, *_GLUE))
_DIGITS_MIN = 3
_PRODUCT_ID_DIGITS = 6


class Evidence(msgspec.Struct, frozen=True):
    """Tokens and adjacent pairs of tokens of all tool results, each with the span that returned it first.

    What the query says itself is no evidence and stands in `known`.
    """

    tokens: Mapping[str, int]
    pairs: Mapping[tuple[str, str], int]
    known: frozenset[str]

    def cited_in(self, quote: str, before: int) -> frozenset[str]:
        """The data in `quote` that spans before `before` returned, as text. Empty when it cites nothing."""
        said = tokenise(quote)
        numbers = {token for token in said if _is_telling(token) and self._is_returned(token, before)}
        pairs = {" ".join(pair) for pair in _pairs(said) if self._is_datum(pair, before)}
        return frozenset(numbers | pairs)

    def grounded_words(self, quote: str, before: int) -> frozenset[str]:
        """Longer words and numbers of `quote` that spans before `before` returned; the query's own words count too."""
        said = {token for token in tokenise(quote) if len(token) >= 4 or token[0].isdigit()}
        return frozenset(token for token in said - _NO_DATA if self.tokens.get(token, before) < before)

    def products_named(self, prose: str, before: int) -> frozenset[str]:
        """Product ids in `prose` that spans before `before` returned."""
        ids = {token for token in tokenise(prose) if token.isdecimal() and len(token) >= _PRODUCT_ID_DIGITS}
        return frozenset(token for token in ids if self.tokens.get(token, before) < before)

    def _is_returned(self, token: str, before: int) -> bool:
        return token not in self.known and self.tokens.get(token, before) < before

    def _is_datum(self, pair: tuple[str, str], before: int) -> bool:
        return (
            not _NO_DATA.issuperset(pair) and not self.known.issuperset(pair) and self.pairs.get(pair, before) < before
        )


def evidence_of(trace: RenderedTrace) -> Evidence:
    """Everything the tools of a trace returned. A tool's error message is no evidence."""
    tokens: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    for span in trace.spans:
        if span.kind != "result" or span.is_error:
            continue
        returned = tokenise(span.whole)
        for token in returned:
            tokens.setdefault(token, span.number)
        for pair in _pairs(returned):
            pairs.setdefault(pair, span.number)
    known = frozenset(token for span in trace.spans if span.kind == "query" for token in tokenise(span.whole))
    return Evidence(tokens, pairs, known)


def tokenise(text: str) -> tuple[str, ...]:
    """Words and numbers, lower case. Numbers lose thousands separators and zero decimals: `1,299.00` is `1299`."""
    return tuple(_plain(token) for token in _TOKEN.findall(text.lower()))


def _is_telling(token: str) -> bool:
    return token[0].isdigit() and sum(c.isdigit() for c in token) >= _DIGITS_MIN


def _plain(token: str) -> str:
    if not token[0].isdigit():
        return token
    plain = re.sub(r",(?=\d{3}\b)", "", token)
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _pairs(tokens: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    return itertools.pairwise(tokens)
