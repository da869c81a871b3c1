"""What counts as evidence: something a tool returned, that nobody had said before, and that nobody says by the way.

Never evidence: what the shopper's query says, what the agent's program said first (in a request, or in a call that the
model did not write: the first to say a word owns it), a tool's error message, what a result repeats of its own call's
arguments, everyday words, and numbers of fewer than three significant digits unless they are said as a price. The check
of citations, the ceiling and the scripted judge use this one definition. Results are read whole, also where the
judge was shown only their beginning and end, and once: the cost is linear in what was sent and returned.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import orjson

from harness.emission.wording import texts_in
from judge.evidence.mentions import (
    EVERYDAY,
    Sentence,
    is_exact,
    is_gram,
    is_telling,
    plain_number,
    price_marks,
    says_nothing,
    sentences,
    spoken_in,
    tokenise,
)
from judge.render import RenderedTrace, Span, neutral_text

FIRM, WORD, GRAM = 4, 2, 1  # weights of marks
_SAY_NOTHING = ("recommend_product", "terminate")
_HOLDERS_MAX = 12  # products that share a mark: more, and it names none of them
_FEW = 20  # returned products: among more, some word of theirs stands in anything that is said (judge/README.md)
_ID_DIGITS_MIN = 7  # of an id that says by itself which product is meant, among however many
_OWN_PAIRS_MIN = 3  # of words that no result holds: below, a passage is a copy and compares nothing

Passage = tuple[str, int]  # words of the model, and the number of the span they were said in
Pair = tuple[str, str]
Marks = Mapping[str, int]  # mark -> the last span in which the model says it


class ReturnedProduct(msgspec.Struct):
    """A product by its id. `names` are the marks of its id, price and title, `traits` those of its attributes, options
    and services; each with its weight and the number of the span that returned it first."""

    product_id: str
    names: dict[str, tuple[int, int]] = {}
    traits: dict[str, tuple[int, int]] = {}

    def read(self, record: Mapping[str, object], number: int, known: Collection[str], wanted: Collection[str]) -> None:
        """Take up what a record in span `number` says: marks that are `wanted`, none of them made of `known` words."""
        names = _words(tokenise(str(record.get("title", ""))), known)
        names |= {token: FIRM for token in tokenise(self.product_id) if len(token) >= _ID_DIGITS_MIN}
        price = record.get("price")
        if isinstance(price, int | float) and not isinstance(price, bool):
            names |= {mark: FIRM for mark in price_marks(price, plain_number(str(price)))}
        traits: dict[str, int] = {}
        for field in ("attributes", "sku_options"):
            for value in values_of(record.get(field)):
                traits |= _words(tokenise(value), known)
        traits |= {f"={value.lower()}": WORD for value in values_of(record.get("service"))}
        for found, kept in ((names, self.names), (traits, self.traits)):
            for mark, weight in found.items():
                if mark in wanted and mark.lstrip("~") not in known:
                    kept.setdefault(mark, (weight, number))

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


def fields_of(record: Mapping[str, object]) -> Iterator[str]:
    """The tokens of a record's fields, except of its descriptions."""
    for name in ("product_id", "shop_id", "price", "service", "title", "attributes", "sku_options"):
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
        is_pair = not says_nothing(one) and not says_nothing(two) and not EVERYDAY.issuperset((one, two))
        if is_pair and not (one in known and two in known) and not is_gram(one):
            marks[f"{one} {two}"] = GRAM if one in known or two in known else WORD
    return marks


class Evidence:
    """What the results of a trace hold of what its completions say: tokens and adjacent pairs, each with the span that
    returned it first, and products with their marks."""

    def __init__(self, trace: RenderedTrace) -> None:
        said = [one for span in trace.spans if span.kind == "completion" for one in sentences(span.content)]
        asked = [one for span in trace.spans if span.kind == "query" for one in sentences(span.whole)]
        self.tokens: dict[str, int] = {}
        self.pairs: dict[Pair, int] = {}
        self.known = frozenset(mark for sentence in asked for mark in sentence.marks)
        self.fields: set[str] = set()  # tokens of products' fields, descriptions left out
        self.returned: list[int] = []  # span of each product's first record, also of those that nothing said means
        self._wanted = frozenset(mark for sentence in said for mark in sentence.marks)
        self._wanted_pairs = frozenset(pair for sentence in said for pair in itertools.pairwise(sentence.tokens))
        self._planted: set[str] = set()  # tokens that the program said first
        self._unfit = set(self.known)  # and those of the query: no mark is made of them
        self._owned = set(self.known)  # tokens that anybody said so far
        self._asked: frozenset[str] = frozenset()
        self._records: dict[str, ReturnedProduct] = {}
        notes = {"completion": self._completed, "call": self._called, "result": self._returned}
        for span in trace.spans:
            if span.kind in notes:
                notes[span.kind](span)
        self.are_many = len(self.returned) > _FEW  # a single word means none of them
        self._least = WORD if self.are_many else GRAM  # of what has to be said of a product that is compared
        self._most = WORD + GRAM if self.are_many else GRAM  # and of one of them
        found = (one.settled(self._planted, are_many=self.are_many) for one in self._records.values())
        self.products = tuple(one for one in found if one.names or one.traits)
        self.holders: dict[str, list[int]] = {}  # mark -> the products that have it as a name or trait
        for place, product in enumerate(self.products):
            for mark in {*product.names, *product.traits}:
                self.holders.setdefault(mark, []).append(place)

    def cited_in(self, quote: str, before: int) -> frozenset[str]:
        """The data in `quote` that spans before `before` returned, as text. Empty when it cites nothing."""
        data: set[str] = set()
        for sentence in sentences(quote):
            data |= {
                mark
                for mark in sentence.marks
                if mark[0].isdecimal() and mark not in self.known and self.tokens.get(mark, before) < before
            }
            data |= {" ".join(pair) for pair in itertools.pairwise(sentence.tokens) if self._is_datum(pair, before)}
        marks = dict.fromkeys((mark for sentence in sentences(quote) for mark in sentence.marks), before)
        for product in self.told(marks):
            traits = [mark for mark in self._said(product.traits, marks) if self._splits(mark, before)]
            if _weight(traits, product.traits) >= FIRM:
                data.update(traits)
            data.update(mark for mark in self._said(product.names, marks) if mark.startswith("~"))
        return frozenset(data)

    def grounded_words(self, quote: str, before: int) -> frozenset[str]:
        """Telling words and exact numbers of `quote` that spans before `before` returned; the query's own words count
        too. Two are needed where a great many products came back; or a product's whole id, which nobody says by the
        way."""
        said = {
            mark for sentence in sentences(quote) for mark in sentence.marks if self.tokens.get(mark, before) < before
        }
        if self.are_many and sum(map(self._heft, said)) < FIRM:
            return frozenset()
        return frozenset(said)

    def _heft(self, token: str) -> int:
        is_id = any(self.products[place].product_id == token for place in self.holders.get(token, ()))
        return FIRM if is_id and len(token) >= _ID_DIGITS_MIN else GRAM if is_gram(token) else WORD

    def weighs_two(self, passages: Iterable[Passage]) -> bool:
        """True when the passages, in words of their own, mean two returned products: whichever product one takes, they
        say something of another that this one lacks. Or when a sentence tells "the first" and "the other" apart by
        what one returned product has and another lacks."""
        told: dict[str, int] = {}
        own = 0
        is_contrast = False
        for text, before in passages:
            said = sentences(text)
            told.update((mark, max(before, told.get(mark, 0))) for sentence in said for mark in sentence.marks)
            is_about = [not self.holders.keys().isdisjoint(sentence.marks) for sentence in said]
            # adjacent words that stand so in no result, one of them in no product's fields
            own += sum(
                pair not in self.pairs and any(token not in self.fields and not token[0].isdecimal() for token in pair)
                for place, sentence in enumerate(said)
                if any(is_about[max(0, place - 1) : place + 2])
                for pair in itertools.pairwise(sentence.tokens)
            )
            is_contrast = is_contrast or self._contrasts(said, before)
        return own >= _OWN_PAIRS_MIN and (is_contrast or self._names_two(told))

    def _names_two(self, marks: Marks) -> bool:
        named = [(frozenset(self._said(product.names, marks)), product) for product in self.told(marks)]
        meant = [(said, product) for said, product in named if _weight(said, product.names) >= self._least]
        if not any(_weight(said, product.names) >= self._most for said, product in meant):
            return False
        first, _ = min(meant, key=lambda one: len(one[0]))
        places = {place for mark in first for place in self.holders[mark][:_HOLDERS_MAX]}
        rivals = [frozenset(self._said(self.products[place].names, marks)) for place in places]
        return all(
            any(_weight(said - rival, product.names) >= self._least for said, product in meant) for rival in rivals
        )

    def _contrasts(self, said: Sequence[Sentence], before: int) -> bool:
        for place, sentence in enumerate(said):
            if not sentence.is_first and not sentence.is_other:
                continue
            near = said[max(0, place - 1) : place + 2]
            is_placed = any(one.is_first for one in near) and any(one.is_other for one in near)
            marks = dict.fromkeys(sentence.marks, before)
            for product in self.told(marks):
                names = self._said(product.names, marks)
                traits = [mark for mark in self._said(product.traits, marks) if self._splits(mark, before)]
                is_named = sentence.is_other and _weight(names, product.names) >= self._most
                if (is_placed or is_named) and _weight(traits, product.traits) >= WORD:
                    return True
        return False

    def told(self, marks: Collection[str]) -> Iterator[ReturnedProduct]:
        """Products that some mark may mean."""
        places = {place for mark in marks for place in self.holders.get(mark, ())[:_HOLDERS_MAX]}
        return (self.products[place] for place in places)

    def _said(self, marks: Mapping[str, tuple[int, int]], said: Marks) -> list[str]:
        return [
            mark
            for mark, (_, number) in marks.items()
            if number < said.get(mark, 0) and (mark[0] == "=" or len(self.holders[mark]) <= _HOLDERS_MAX)
        ]

    def _splits(self, mark: str, before: int) -> bool:
        """Some returned product has it and some other lacks it."""
        return len(self.holders[mark]) < bisect_left(self.returned, before)

    def _is_datum(self, pair: Pair, before: int) -> bool:
        if self.pairs.get(pair, before) >= before or any(map(says_nothing, pair)) or self.known.issuperset(pair):
            return False
        everyday = sum(token in EVERYDAY for token in pair)
        is_short = any(not is_telling(token) for token in pair) if is_gram(pair[0]) else not any(map(_is_solid, pair))
        is_sure = not self.are_many and self.fields.issuperset(pair)
        return not is_short and everyday <= is_sure

    def _completed(self, span: Span) -> None:
        """Note what the request of a completion said before it, and then its own words."""
        self._plant(span.sent)
        self._owned |= self._spoken((span.whole,))
        self._owned |= self._spoken(text for arguments in span.calls for text in _texts(arguments))

    def _called(self, span: Span) -> None:
        """Remember whose call it is, and what it says, as it stands and as a tool decodes it."""
        texts = [text for said in texts_in(span.whole) for text in dict.fromkeys((said, neutral_text(said)))]
        self._asked = frozenset(token for text in texts for token in tokenise(text))
        if span.emitter != "llm":
            self._plant((span.whole, *texts))

    def _returned(self, span: Span) -> None:
        """Note what a result says; what an error says is only nobody else's from then on."""
        if span.is_error:
            self._owned |= self._spoken((span.whole,))
            return
        for part in _parts(span):
            if not isinstance(part, dict):
                self._note(part, span.number, self._asked)
                continue
            product_id = str(part["product_id"])
            if product_id not in self._records:
                self.returned.append(span.number)
                self._records[product_id] = ReturnedProduct(product_id)
            self._records[product_id].read(part, span.number, self._unfit, self._wanted)
            self.fields.update(self._wanted.intersection(fields_of(part)))
            self._note("\n".join(values_of(part, are_keys_said=True)), span.number, frozenset())

    def _plant(self, said: Iterable[str]) -> None:
        new = self._spoken(text for message in said for text in _texts(message)) - self._owned
        self._planted |= new
        self._unfit |= new
        self._owned |= new

    def _spoken(self, texts: Iterable[str]) -> frozenset[str]:
        """Of what the texts say, what some completion says: nothing else can be cited."""
        spoken = (tokens for text in texts for tokens in spoken_in(text))
        return self._wanted.intersection(itertools.chain.from_iterable(spoken))

    def _note(self, text: str, number: int, asked: Collection[str]) -> None:
        tokens, numbers = spoken_in(text)
        said = self._wanted.intersection(tokens)
        self._owned |= said | (self._wanted & numbers)
        new = {token for token in said if token not in asked and token not in self._planted and _is_solid(token)}
        for token in new:
            self.tokens.setdefault(token, number)
        for pair in self._wanted_pairs.intersection(itertools.pairwise(tokens)):
            if not any(token in asked or token in self._planted for token in pair):
                self.pairs.setdefault(pair, number)


def _parts(span: Span) -> Iterator[dict[str, object] | str]:
    """What a result tells: product records, and the other values of a JSON object, never its field names, its error
    sentence or what a tool always says; all of a result in another form."""
    try:
        waiting = [orjson.loads(span.whole)]
    except orjson.JSONDecodeError:
        yield span.whole
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and isinstance(value.get("product_id"), str | int):
            yield value
        elif isinstance(value, dict):
            waiting += [item for key, item in value.items() if key not in ("error", "message")]
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, str | int | float) and not isinstance(value, bool) and span.tool not in _SAY_NOTHING:
            yield str(value)


def _texts(said: str) -> Iterator[str]:
    """Every text in a JSON text, field names left out; the text itself where it is none."""
    try:
        value = orjson.loads(said)
    except orjson.JSONDecodeError:
        yield said
        return
    yield from values_of(value)


def _weight(marks: Iterable[str], weights: Mapping[str, tuple[int, int]]) -> int:
    return sum(weights[mark][0] for mark in marks)


def _is_solid(token: str) -> bool:
    return is_exact(token) if token[0].isdecimal() else is_telling(token)
