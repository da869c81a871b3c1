"""Whether a thought stands on what was known when it is said to have been thought.

Promise: pure. A thought before a call may name what the shopper asked, what the results so far hold, and what its own
call says; nothing of later results, and nothing that stands nowhere. Refused is what code can see: ids, numbers, quoted
passages and names that had not been returned, a number beside an id whose product does not have it, passages of later
results, claims of steps that were not made, markup, talk about the record itself, and one sentence for every step. What
it cannot see: an invented name in small letters, a wrong comparison of true figures, and praise.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache

import msgspec
import orjson

from harness.emission.wording import Passage, words_of
from training.rewriting.model import CallTimeline
from training.rewriting.prompts import prompt_text

THOUGHT_CHARS = (40, 1_200)

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_NUMBER_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "dozen": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17,
    "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "hundred": 100,
    "thousand": 1_000,
}  # fmt: skip
_CROWDS = re.compile(r"\b(?:dozens|hundreds|thousands|millions?|half|twice|double|triple)\b", re.IGNORECASE)
_QUOTED = re.compile(r'["“”«»]([^"“”«»]+)["“”«»]')
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_NAME = re.compile(r"\b[A-Z][\w'’-]*")
_MARKUP = re.compile(
    r"[<>{}\[\]|`\\#*_=]|https?:|www\.|\b(?:system|user|assistant|tool|observation)\s*:", re.IGNORECASE
)
_META = re.compile(
    r"\b(?:rewr\w+|transcripts?|traces?|trajector\w+|recorded|hindsight|python|scripts?|source code|program|dataset"
    r"|training data|language model|the agent|in the end|turns? out|later result|will (?:return|show|reveal) that)\b",
    re.IGNORECASE,
)
_NOTHING_FOUND = re.compile(
    r"\b(?:no (?:results?|hits?|products?|matches)|nothing (?:was |has been )?(?:found|returned)|came back empty)\b",
    re.IGNORECASE,
)
# Words that claim a step, and the beginnings of the names of tools that make it.
_CLAIMS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (
        re.compile(rf"\b(?:I|we)(?:'ve|’ve| have| had)?(?: now| just| already)? (?:{verbs})\b|\b(?:{facts})\b", re.I),
        names,
    )
    for verbs, facts, names in (
        (
            "searched|found",
            "search (?:returned|gave|shows?|brought)|results? (?:so far )?(?:shows?|lists?)",
            ("find", "search"),
        ),
        (
            "viewed|opened|inspected|looked at|read",
            "product pages? (?:says?|shows?)|details (?:say|show)",
            ("view", "open", "get"),
        ),
        ("verified|confirmed|checked", "checks? (?:says?|shows?)", ("check", "view", "verify", "find")),
        ("calculated|computed", "calculation (?:says|shows)", ("calc", "check")),
        ("recommended", "recommendation (?:is|was) made", ("recommend",)),
    )
)
_KNOWN_NAMES = frozenset(("php", "cod", "lazmall", "lazflash", "sku", "id", "ids", "ok", "usb"))
_LIST_WORDS = 3  # a run of words of a later result
_REPEATED = 0.8  # share of equal word triples from which two thoughts are one
_VALUE_LETTERS = 6  # of a single word that is all a later result says somewhere
_SHORT_LEAF = 200  # characters of a value such as a title; longer ones are descriptions


class ProductFacts(msgspec.Struct, frozen=True):
    """What results so far say of one product."""

    numbers: frozenset[Decimal] = frozenset()
    title: frozenset[str] = frozenset()


class KnownFacts:
    """What is known before a call: the query, the results so far, and the arguments of the call itself."""

    def __init__(self, timeline: CallTimeline, number: int) -> None:
        """`number` is the step, from 0, that the thought stands before."""
        before, self.step = timeline.steps[:number], timeline.steps[number]
        self.tools = tuple(step.name for step in before)
        self.results = tuple(step.result for step in before)
        texts = [timeline.query, self.step.arguments, *(f"{step.arguments}\n{step.result}" for step in before)]
        self.passage = Passage(word for text in texts for word in (*words_of(text), Passage.BREAK))
        self.numbers = {number for text in texts for number in numbers_of(text)}
        self.numbers |= {Decimal(len(found)) for found in map(_decoded, self.results) if isinstance(found, list)}
        self.common = {number for text in (timeline.query, self.step.arguments) for number in numbers_of(text)} | {
            Decimal(count) for count in range(1, 11)
        }
        self.products: dict[str, ProductFacts] = {}
        for found in (found for result in self.results for found in _objects(_decoded(result))):
            words = words_of(str(found.get("product_id", "")))
            if len(words) == 1:
                text = orjson.dumps(found).decode()
                known = self.products.get(words[0], ProductFacts())
                self.products[words[0]] = ProductFacts(
                    numbers=known.numbers.union(numbers_of(text)),
                    title=known.title.union(words_of(str(found.get("title", "")))),
                )
        later = [_decoded(step.result) for step in timeline.steps[number:]]
        leaves = (
            leaf for found in later for each in _objects(found) for leaf in each.values() if isinstance(leaf, str)
        )
        short = [words_of(leaf) for leaf in leaves if len(leaf) <= _SHORT_LEAF]
        self.later = Passage(word for words in short for word in (*words, Passage.BREAK))
        whole = {"".join(words) for words in short if len(words) > 1 or len("".join(words)) >= _VALUE_LETTERS}
        self.later_values = sorted(value for value in whole if not self.passage.holds(value))


def refusal(thought: str, timeline: CallTimeline, number: int, earlier: Sequence[str]) -> str | None:
    """Why the thought before step `number` (from 0) may not stand, in words for whoever wrote it; None where it may.

    `earlier` are the thoughts before the steps before it.
    """
    if reason := _form(thought):
        return reason
    evidence = KnownFacts(timeline, number)
    reasons = (*_numbers(thought, evidence), *_passages(thought, evidence), *_names(thought, evidence))
    reasons += (*_claims(thought, evidence), *_repeats(thought, earlier))
    if evidence.step.name.startswith("recommend") and not reasons:
        reasons += tuple(_commits(thought, evidence))
    return next(iter(reasons), None)


def numbers_of(text: str) -> Iterator[Decimal]:
    """Every number written in digits, thousands set apart by commas or not."""
    for found in _NUMBER.findall(unicodedata.normalize("NFKC", text)):
        yield Decimal(found.replace(",", ""))


def _form(thought: str) -> str | None:
    least, most = THOUGHT_CHARS
    if not least <= len(thought) <= most:
        return f"it has {len(thought)} characters, not {least} to {most}"
    if thought != unicodedata.normalize("NFKC", thought) or not thought.replace("\n", " ").isprintable():
        return "it holds characters that are not plain text"
    if found := _MARKUP.search(thought):
        return f"it holds markup: {found[0]!r}"
    if found := _META.search(thought):
        return f"it speaks of the record or of what comes later: {found[0]!r}"
    return None


def _numbers(thought: str, evidence: KnownFacts) -> Iterator[str]:
    for number in numbers_of(thought):
        if number not in evidence.numbers:
            yield f"{number} stands neither in the request nor in a result so far nor in this call"
    for word in words_of(thought):
        value = _NUMBER_WORDS.get(word)
        if value is not None and Decimal(value) not in evidence.numbers and word not in evidence.passage.vocabulary:
            yield f"{word!r} is no count that was seen"
    if (found := _CROWDS.search(thought)) and found[0].lower() not in evidence.passage.vocabulary:
        yield f"{found[0]!r} is no count that was seen"
    for sentence in _SENTENCE_END.split(thought):
        named = [word for word in words_of(sentence) if word in evidence.products]
        if len(set(named)) == 1:
            own = evidence.products[named[0]].numbers | evidence.common
            for number in numbers_of(sentence):
                if number not in own:
                    yield f"{number} is not of product {named[0]}"


def _passages(thought: str, evidence: KnownFacts) -> Iterator[str]:
    for quoted in _QUOTED.findall(thought):
        if not evidence.passage.holds("".join(words_of(quoted))):
            yield f"the passage {quoted[:60]!r} stands nowhere yet"
    words = words_of(thought)
    for value in filter(Passage(words).holds, evidence.later_values):
        yield f"{value[:60]!r} is known only from a later result"
    for start in range(len(words) - _LIST_WORDS + 1):
        run = words[start : start + _LIST_WORDS]
        if sum(len(word) > 3 for word in run) < 2:
            continue
        if evidence.later.holds("".join(run)) and not evidence.passage.holds("".join(run)):
            yield f"{' '.join(run)!r} is known only from a later result"
    for word in words:
        is_marked = not word.isascii() or (any(map(str.isdigit, word)) and not word.isdecimal())
        if is_marked and word not in evidence.passage.vocabulary:
            yield f"{word!r} stands nowhere yet"


def _names(thought: str, evidence: KnownFacts) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(thought):
        for found in _NAME.finditer(sentence):
            words = words_of(found[0])
            is_first = not sentence[: found.start()].strip(" \"'“(-")
            if is_first and all(word in _openers() or word in _NUMBER_WORDS or len(word) == 1 for word in words):
                continue
            strange = [
                word
                for word in words
                if word not in evidence.passage.vocabulary and word not in _KNOWN_NAMES and len(word) > 1
            ]
            if strange and not (is_first and _is_plain(words[0], evidence)):
                yield f"the name {found[0]!r} stands neither in the request nor in a result so far"


def _is_plain(word: str, evidence: KnownFacts) -> bool:
    """Whether a sentence may begin with the word though nothing holds it: a verb or an adverb, not a name."""
    return word.endswith(("ing", "ly", "ed")) and word not in evidence.later.vocabulary


def _claims(thought: str, evidence: KnownFacts) -> Iterator[str]:
    for claim, beginnings in _CLAIMS:
        if (found := claim.search(thought)) and not any(name.startswith(beginnings) for name in evidence.tools):
            yield f"{found[0]!r} claims a step that was not made yet"
    if found := _NOTHING_FOUND.search(thought):
        last = _decoded(evidence.results[-1]) if evidence.results else None
        if not evidence.results or (isinstance(last, list) and last):
            yield f"{found[0]!r}, but the last result is not empty"


def _repeats(thought: str, earlier: Sequence[str]) -> Iterator[str]:
    own = _triples(thought)
    for number, other in enumerate(earlier, start=1):
        theirs = _triples(other)
        if own and len(own & theirs) >= _REPEATED * min(len(own), len(theirs) or 1):
            yield f"it repeats the thought before step {number}"
            return


def _commits(thought: str, evidence: KnownFacts) -> Iterator[str]:
    """A recommendation has a reason: something of a product that it names, its id, a price or words of its title."""
    chosen = [word for word in words_of(evidence.step.arguments) if word in evidence.products]
    if not chosen:
        return
    said, numbers = set(words_of(thought)), set(numbers_of(thought))
    for product in chosen:
        title = {word for word in evidence.products[product].title if len(word) > 3}
        if product in said or len(said & title) >= 2 or not evidence.products[product].numbers.isdisjoint(numbers):
            return
    yield "it names nothing of what it recommends: no id, price or title"


def _triples(text: str) -> set[tuple[str, ...]]:
    words = [word for word in words_of(text) if not word.isdecimal()]
    return set(zip(words, words[1:], words[2:], strict=False))


def _decoded(result: str) -> object:
    """A result that is JSON; None for one that is not."""
    try:
        return orjson.loads(result)
    except orjson.JSONDecodeError:
        return None


def _objects(value: object) -> Iterator[dict[str, object]]:
    """Every object in a decoded value, without recursion."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


@cache
def _openers() -> frozenset[str]:
    """Words that plain sentences begin with."""
    return frozenset(prompt_text("openers").split())
