"""Whether a thought stands on what was known when it is said to have been thought.

Pure. A thought before a call may name what the shopper asked, what the results so far hold, and what its own
call says; nothing of later results, and nothing that stands nowhere. README.md lists what is refused, and what code
cannot see.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise

from harness.emission.wording import words_of
from training.rewriting.claims import (
    SENTENCE_END,
    absence_claims,
    amount_claims,
    described_shop_claims,
    future_claims,
    option_claims,
    price_claims,
    service_claims,
    shop_together_claims,
    voucher_claims,
)
from training.rewriting.known_facts import NUMBER, CallTimeline, KnownFacts, is_plain, listed_words, numbers_of, stems

THOUGHT_CHARS = (40, 1_200)

_NUMBER_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "dozen": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17,
    "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
    "eighty": 80, "ninety": 90, "hundred": 100, "thousand": 1_000,
}  # fmt: skip
_QUOTED = re.compile(r"""["“”«»]([^"“”«»]+)["“”«»]|(?<!\w)['‘]([^'‘’\n]{6,}?)['’](?!\w)""")
_FOREIGN_WORD = re.compile(r"\w*[^\W\x00-\x7f]\w*")
_MARKUP = re.compile(
    r"[<>{}\[\]|`\\#*=]|(?<!\w)_|_(?!\w)|_\w*\(|^\s*[-•]|https?:|www\.|\b(?:system|user|assistant|tool|observation)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_META = re.compile(
    r"\b(?:rewr\w+|transcripts?|traces?|trajector\w+|recorded|hindsight|python|scripts?|source code|by code|program"
    r"|dataset|training data|language model|the model|the (?:agent|assistant|log)|this run|ground truth|my job|prompt"
    r"|instructions?|(?:expected|reference|correct) answer|full (?:points|marks|score)"
    r"|scor(?:er|ed|es)|judges?|rewards?|grad(?:er|ed)|whoever reads"
    r"|from now on|(?:picked|chosen|laid out) (?:for|to) me|as expected|already know|was accepted|in the end|turns? out"
    r"|later result|will (?:return|show|reveal) that|will (?:confirm|prove|pass|be the one)"
    r"|(?:shopper|seller) (?:told|said|thanked|insisted)|asked the seller)\b",
    re.IGNORECASE,
)
_NOTHING_FOUND = re.compile(
    r"\b(?:no (?:results?|hits?|products?|matches)|nothing (?:was |has been )?(?:found|returned)"
    r"|(?:found|returned|shows?|showed) nothing|came (?:back|up) (?:empty|with nothing))\b",
    re.IGNORECASE,
)
# Words that claim a step, other ways to say so, and the beginnings of the names of tools that make it.
_STEPS = (
    (
        "searched|found",
        r"search (?:returned|gave|shows?|brought)|results? (?:so far )?(?:shows?|lists?)",
        ("find", "search"),
    ),
    (
        "viewed|opened|inspected|looked (?:at|through|over|into)|read|studied|browsed|took a look"
        "|went (?:through|over)",
        r"product pages? (?:says?|shows?)|details (?:say|show|list)|(?:page|details|description) (?:was|were) \w+ed"
        r"|(?:having|after) (?:view|open|read|stud)\w*",
        ("view", "open", "get"),
    ),
    (
        "verified|confirmed|checked",
        r"checks? [^.;]{0,40}\b(?:says?|shows?|came back|went|passed)\b|(?:having|after) (?:check|verif|confirm)\w+",
        ("check", "view", "verify", "calc"),
    ),
    ("calculated|computed", r"calculat(?:ion|or) (?:says|shows)", ("calc", "check")),
    ("recommended", r"recommendation (?:is|was) made", ("recommend",)),
)
_CLAIMS = tuple(
    (re.compile(rf"\b(?:I|we)(?:['’]ve| have| had)?(?: now| just| already)? (?:{did})\b|\b(?:{said})\b", re.I), tools)
    for did, said, tools in _STEPS
)
# What the thought says it does now, and the beginnings of the tools that do it.
_DECLARED = re.compile(
    r"(?<!before )(?<!until )(?<!when )(?<!once )(?<!if )\b"
    r"I(?:['’]ll| will| now| then)* (?:(recommend)|search|look for)\b"
)
_FIGURE = re.compile(rf"(?<![\w.-]){NUMBER.pattern}(?![\w-])")
_UNTOLD = re.compile(  # "neither title mentions a charging port"
    r"(?:\b(?:no|not|neither|none|nothing|never|without)\b|n['’]t\b)[^.;,]{0,30}?"
    r"\b(?:mention|say|tell|show|stat|list|see|nam|specif|giv|find|spell|describ)\w*([^.;,]*)",
    re.IGNORECASE,
)
_RECKONS = re.compile(  # words of a sum or a difference
    r"\b(?:together|total|sum|combined|both|makes?|adds? up|more|less|cheaper|dearer|difference|remains?|left|over"
    r"|above|under|below|within|budget)\b",
    re.IGNORECASE,
)
_KNOWN_NAMES = frozenset(("php", "cod", "lazmall", "lazflash", "sku", "id", "ids", "ok", "usb"))
_RUN_WORDS = 3  # a run of words of a later result
_PAIR_LETTERS = 4  # of later words side by side
_ENGLISH_SHARE = 0.3  # of a thought's words, that plain sentences are held together by
_REPEATED = 0.8  # share of equal word triples from which two thoughts are one


def refusal(thought: str, timeline: CallTimeline, number: int, earlier: Sequence[str]) -> str | None:
    """Why the thought before step `number` (from 0) may not stand, in words for whoever wrote it; None where it may.

    `earlier` are the thoughts before the steps before it.
    """
    least, most = THOUGHT_CHARS
    if not least <= len(thought) <= most:
        return f"it has {len(thought)} characters, not {least} to {most}"
    dotted = thought.replace("…", "...")
    if dotted != unicodedata.normalize("NFKC", dotted) or not dotted.replace("\n", " ").isprintable():
        return "it holds characters that are not plain text"
    if found := _MARKUP.search(thought):
        return f"it holds markup: {found[0]!r}"
    if found := _META.search(thought):
        return f"it speaks of the record or of what comes later: {found[0]!r}"
    words = [word for word in words_of(thought) if word.isalpha()]
    plain = listed_words("function_words") | listed_words("openers")
    if sum(word in plain for word in words) < _ENGLISH_SHARE * len(words):
        return "it is not in plain English"
    known = KnownFacts(timeline, number)
    for check in _CHECKS:
        if (reason := next(check(thought, known), None)) is not None:
            return reason
    own = _triples(thought)
    for step, other in enumerate(earlier, start=1):
        theirs = _triples(other)
        if own and len(own & theirs) >= _REPEATED * min(len(own), len(theirs) or 1):
            return f"it repeats the thought before step {step}"
    return None


def _numbers(thought: str, known: KnownFacts) -> Iterator[str]:
    for sentence in SENTENCE_END.split(thought):
        reckoned = known.derived if _RECKONS.search(sentence) else frozenset()
        for number in numbers_of(sentence):
            if number not in known.numbers and number not in reckoned:
                yield f"{number} stands neither in the request nor in a result so far nor in this call"
    for word in words_of(thought):
        value = _NUMBER_WORDS.get(word)
        if value is not None and Decimal(value) not in known.numbers and word not in known.passage.vocabulary:
            yield f"{word!r} is no count that was seen"


def _pairings(thought: str, known: KnownFacts) -> Iterator[str]:
    """The first figure after a product, or after several side by side, has to be theirs; "It costs" goes on with the
    product of the sentence before."""
    before: set[str] = set()
    for sentence in SENTENCE_END.split(thought):
        marks = known.named_in(sentence)
        if not marks and before and re.match(r"It\b|Its\b", sentence):
            yield from _strange_figure(sentence, before, known)
        named: set[str] = set()
        for (start, product), (end, _) in pairwise([*marks, (len(sentence), "")]):
            named.add(product)
            stretch = sentence[start:end]
            if any(found[0] not in known.products for found in _FIGURE.finditer(stretch)):
                yield from _strange_figure(stretch, named, known)
                named = set()
        before = {product for _, product in marks} if len({product for _, product in marks}) == 1 else set()


def _strange_figure(text: str, products: set[str], known: KnownFacts) -> Iterator[str]:
    own = frozenset[Decimal]().union(*(known.products[product].numbers for product in products))
    figures = [found[0] for found in _FIGURE.finditer(text) if found[0] not in known.products]
    if figures and Decimal(figures[0].replace(",", "")) not in own | known.common:
        yield f"{figures[0]} is not of {', '.join(sorted(products))}"


def _passages(thought: str, known: KnownFacts) -> Iterator[str]:
    for quoted in ("".join(found) for found in _QUOTED.findall(thought)):
        if not known.passage.holds("".join(words_of(quoted))):
            yield f"the passage {quoted[:60]!r} stands nowhere yet"
    for found in _FOREIGN_WORD.finditer(thought):
        if found[0] not in known.text:
            yield f"{found[0]!r} is written with letters that are not English, and stands so nowhere yet"
    words = words_of(thought)
    plain = listed_words("function_words") | listed_words("openers")
    for size, letters in ((_RUN_WORDS, 3), (2, _PAIR_LETTERS - 1)):
        for run in zip(*(words[start:] for start in range(size)), strict=False):
            telling = [word for word in run if len(word) > letters and word not in plain]
            if len(telling) > 1 and known.later.holds("".join(run)) and not known.passage.holds("".join(run)):
                yield f"{' '.join(run)!r} is known only from a later result"
    for word in words:
        is_code = any(map(str.isdigit, word)) and not word.isdecimal()
        if is_code and word not in known.passage.vocabulary:
            yield f"{word!r} stands nowhere yet"


def _claims(thought: str, known: KnownFacts) -> Iterator[str]:
    made = [step.name for step in known.before]
    for claim, tools in _CLAIMS:
        if (found := claim.search(thought)) and not any(name.startswith(tools) for name in made):
            yield f"{found[0]!r} claims a step that was not made yet"
    if found := _NOTHING_FOUND.search(thought):
        last = known.results[-1] if known.results else None
        if not known.results or (isinstance(last, list) and last):
            yield f"{found[0]!r}, but the last result is not empty"
    declared = [(found[0], ("recommend",) if found[1] else ("find", "search")) for found in _DECLARED.finditer(thought)]
    if declared and not any(known.step.name.startswith(tools) for _, tools in declared):
        yield f"{declared[0][0]!r}, but another call follows"


def _commits(thought: str, known: KnownFacts) -> Iterator[str]:
    """A recommendation has a reason: something of a product that it names, its id, a price or words of its title."""
    if not known.step.name.startswith("recommend"):
        return
    chosen = [word for word in words_of(known.step.arguments) if word in known.products]
    said, numbers = set(words_of(thought)), set(numbers_of(thought))
    for product in chosen:
        title = {word for word in known.products[product].title if len(word) > 3}
        if product in said or len(said & title) > 1 or known.products[product].price in numbers:
            return
    if chosen:
        yield "it names nothing of what it recommends: no id, price or title"


def _strangers(thought: str, known: KnownFacts) -> Iterator[str]:
    """Words that were not told, and are not plain ones: an attribute, a brand or a hint in small letters. What is
    said to be told nowhere is no claim, unless a later result tells it."""
    missed = set(words_of(" ".join(_UNTOLD.findall(thought)))) - known.later.vocabulary
    for word in words_of(thought):
        is_known = word in known.passage.vocabulary | missed | _KNOWN_NAMES or word in _NUMBER_WORDS
        if (
            len(word) > 1
            and word.isalpha()
            and not (is_known or is_plain(word))
            and stems(word).isdisjoint(known.stems)
        ):
            yield f"{word!r} stands neither in the request nor in a result so far, and is no plain word"


_CHECKS = (
    _numbers,
    _pairings,
    _passages,
    _claims,
    service_claims,
    option_claims,
    price_claims,
    absence_claims,
    amount_claims,
    shop_together_claims,
    described_shop_claims,
    voucher_claims,
    future_claims,
    _commits,
    _strangers,
)


def _triples(text: str) -> set[tuple[str, ...]]:
    words = [word for word in words_of(text) if not word.isdecimal()]
    return set(zip(words, words[1:], words[2:], strict=False))
