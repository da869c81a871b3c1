"""What counts as a datum: something a tool returned, which the request did not contain already.

A datum is a number of three or more digits, or two adjacent words, that stand in an earlier tool result and not in the
shopper's query. What a result repeats of its call's own arguments is the caller's word and no datum. Both the check of
citations and the scripted judge use this one definition. Results are read whole, also where the judge was shown only
their beginning and end.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import orjson

from judge.render import RenderedTrace, Span

_CONTINENTAL = re.compile(r"\d{1,3}(?:\.\d{3})*,\d{1,2}|\d{1,3}(?:\.\d{3}){2,}|\d+,\d{1,2}")
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
_SAY_NOTHING = ("recommend_product", "terminate")
_DIGITS_MIN = 3
_PRICE_CHARS, _TITLE_CHARS = 2, 4
# Words of praise and procedure that stand in titles too: they mean no product.
_ORDINARY = frozenset((
    "about", "above", "after", "again", "against", "answer", "because", "been", "before", "being", "below", "best",
    "better", "both", "buyer", "candidate", "candidates", "case", "cheap", "cheaper", "cheapest", "check", "choice",
    "choose", "chosen", "clean", "clear", "compare", "compared", "comparing", "comparison", "complete", "correct",
    "cost", "costs", "could", "days", "each", "easy", "every", "exact", "excellent", "find", "fine", "first", "fits",
    "flawless", "found", "free", "from", "full", "further", "good", "great", "have", "high", "ideal", "instead",
    "item", "items", "just", "last", "less", "like", "list", "lower", "make", "many", "match", "matched", "matching",
    "meet", "meets", "more", "most", "much", "must", "need", "needs", "next", "none", "nothing", "once", "only",
    "option", "order", "original", "other", "over", "perfect", "plus", "premium", "pretty", "price", "priced",
    "product", "quality", "ready", "really", "reason", "reasons", "request", "requirement", "right", "same", "score",
    "search", "second", "seller", "ship", "shop", "should", "since", "some", "still", "such", "suit", "suits",
    "super", "system", "take", "than", "then", "therefore", "they", "thing", "three", "through", "time", "total",
    "trace", "under", "unlike", "until", "used", "user", "using", "very", "want", "weighed", "well", "were", "what",
    "when", "where", "whereas", "which", "while", "whole", "will", "with", "within", "without", "work", "would",
    "your",
))  # fmt: skip


Passage = tuple[str, int]  # words of the model, and the number of the span they were said in


class ReturnedProduct(msgspec.Struct, frozen=True):
    """A product that a tool returned: the span that showed it first, and by which words a text can mean it.

    Its id, its price and the telling words of its title; none that the shopper used.
    """

    product_id: str
    span: int
    marks: frozenset[str]


class Evidence(msgspec.Struct, frozen=True):
    """Tokens and adjacent pairs of tokens of all tool results, each with the span that returned it first.

    What the query says itself is no evidence and stands in `known`.
    """

    tokens: Mapping[str, int]
    pairs: Mapping[tuple[str, str], int]
    known: frozenset[str]
    products: tuple[ReturnedProduct, ...]

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

    def weighs_two(self, passages: Iterable[Passage]) -> bool:
        """True when the passages mean two returned products, each by something the other lacks."""
        said = [(frozenset(tokenise(text)), before) for text, before in passages]
        meant = (
            product.marks & frozenset().union(*(words for words, before in said if product.span < before))
            for product in self.products
        )
        told = set(marks for marks in meant if marks)
        whole = [marks for marks in told if not any(marks < other for other in told)]  # a part names the same product
        return any(one - other and other - one for one, other in itertools.combinations(whole, 2))

    def _is_returned(self, token: str, before: int) -> bool:
        return token not in self.known and self.tokens.get(token, before) < before

    def _is_datum(self, pair: tuple[str, str], before: int) -> bool:
        return _NO_DATA.isdisjoint(pair) and not self.known.issuperset(pair) and self.pairs.get(pair, before) < before


def evidence_of(trace: RenderedTrace) -> Evidence:
    """Everything the tools of a trace returned. A tool's error message is no evidence, and neither is what a result
    repeats of its own call's arguments: only products are the catalogue's words whoever named them first."""
    tokens: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    products: dict[str, ReturnedProduct] = {}
    known = frozenset(token for span in trace.spans if span.kind == "query" for token in tokenise(span.whole))
    asked: frozenset[str] = frozenset()
    for span in trace.spans:
        if span.kind == "call":
            asked = frozenset(tokenise(span.whole))
        if span.kind != "result" or span.is_error:
            continue
        shown = tuple(_products_in(span.whole))
        for product in shown:
            found = _returned(product, span.number, known)
            before = products.get(found.product_id, found)
            products[found.product_id] = msgspec.structs.replace(before, marks=before.marks | found.marks)
            said = tokenise(orjson.dumps(product).decode())
            _note(tokens, pairs, said, span.number, frozenset())
        for text in _told(span):
            _note(tokens, pairs, tokenise(text), span.number, asked)
    return Evidence(tokens, pairs, known, tuple(products.values()))


def _told(span: Span) -> Iterator[str]:
    """What a result tells beside its products: the values of a JSON object, never its field names, its error sentence
    or what a tool always says; all of a result in another form."""
    try:
        waiting = [orjson.loads(span.whole)]
    except orjson.JSONDecodeError:
        yield span.whole
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [item for key, item in value.items() if key not in ("error", "message")]
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, str | int | float) and not isinstance(value, bool) and span.tool not in _SAY_NOTHING:
            yield str(value)


def _note(
    tokens: dict[str, int],
    pairs: dict[tuple[str, str], int],
    said: tuple[str, ...],
    number: int,
    asked: frozenset[str],
) -> None:
    for token in said:
        if token not in asked:
            tokens.setdefault(token, number)
    for pair in _pairs(said):
        if asked.isdisjoint(pair):
            pairs.setdefault(pair, number)


def _products_in(result: str) -> Iterator[dict[str, object]]:
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


def _returned(product: dict[str, object], number: int, known: frozenset[str]) -> ReturnedProduct:
    product_id = str(product["product_id"])
    price = [token for token in tokenise(str(product.get("price", ""))) if len(token) >= _PRICE_CHARS]
    title = (token for token in tokenise(str(product.get("title", ""))) if _names_a_product(token))
    return ReturnedProduct(product_id, number, frozenset((*tokenise(product_id), *price, *title)) - known)


def _names_a_product(token: str) -> bool:
    return len(token) >= _TITLE_CHARS and token not in _ORDINARY and token not in _NO_DATA


def tokenise(text: str) -> tuple[str, ...]:
    """Words and numbers, lower case, without accents and in plain digits. Numbers lose thousands separators and zero
    decimals, in either notation: `1,299.00` and `1.299,00` are `1299`."""
    folded = unicodedata.normalize("NFKD", text.lower())
    bare = folded if folded.isascii() else "".join(c for c in folded if not unicodedata.combining(c))
    return tuple(_plain(token) for token in _TOKEN.findall(bare))


def _is_telling(token: str) -> bool:
    return token[0].isdigit() and sum(c.isdigit() for c in token) >= _DIGITS_MIN


def _plain(token: str) -> str:
    if not token[0].isdigit():
        return token
    if not token.isascii():
        token = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in token)
    if _CONTINENTAL.fullmatch(token):
        token = token.replace(".", "").replace(",", ".")
    plain = re.sub(r",(?=\d{3}\b)", "", token)
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _pairs(tokens: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    return itertools.pairwise(tokens)
