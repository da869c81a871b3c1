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
from training.rewriting import known_facts

SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")

_CLAUSE_END = re.compile(r"[,;:()]|\b(?:and|but|while|whereas|although|though|because|since|so|which|as)\b")
OPEN_CLAIM = re.compile(  # a claim that is denied, hoped for, asked or limited
    r"\b(?:no|not|nor|never|neither|none|nothing|without|unlike|only|if|whether|than|could|may|might|should|would|want\w*"
    r"|need\w*|wish\w*|ask\w*|hope\w*|must|perhaps|probably|another|other|instead|missing)\b|n['’]t\b|\?"
)
_SERVICES = (
    (re.compile(r"\b(?:ships? (?:for )?free|free (?:shipping|delivery))\b", re.I), "freeshipping"),
    (re.compile(r"\b(?:cod|(?:cash|pay\w*) on delivery)\b", re.I), "cod"),
    (re.compile(r"\b(?:on|by|with|from) lazmall\b", re.I), "official lazmall"),
    (re.compile(r"\b(?:laz ?flash|flash (?:sale|deal))\b", re.I), "flashsale lazflash"),
)
_COMES_IN = re.compile(r"\b(?:comes?|available|offered) in (?!at\b|handy\b|useful\b)((?:[\w-]+ ?){1,3})")
_HAS = re.compile(r"\b(?:has|have|holds?|features?|includes?|(?:is|are) made of) ((?:[\w-]+ ?)+)")
_IDLE = frozenset(words_of("a an the in of size sizes color colour colors shade both too two three single this that"))
_COMPARED = re.compile(
    r"\b(?:(cheaper|less expensive|costs? (?:[\w.]+ ){0,3}less)|dearer|pricier|more expensive"
    r"|costs? (?:[\w.]+ ){0,3}more) than\b"
)
_ABSENT = re.compile(
    r"(?:^|[,;:] (?:and |but )?|\bthat )"
    r"(?:there (?:is|are) no|there (?:isn|aren)['’]t (?:a|any)|no|not (?:one|a single))\b"
    r" ([^.,;:]+?)(?=,| so\b| and\b|[.;:]|$)",
    re.IGNORECASE,
)
_NEUTRAL = frozenset(words_of("is are was were by of among these single pair set product item one at all shown here"))


def service_claims(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    """A service that is told of the one product of a clause, and is not among those it was listed with."""
    for clause, product in _clauses(thought, known):
        for pattern, names in _SERVICES:
            if (
                product
                and (found := pattern.search(clause))
                and known.products[product].words.isdisjoint(names.split())
            ):
                yield f"{found[0]!r} is not told of {product}"


def option_claims(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    """What a product is said to come in, or to have, and was not told of it."""
    for clause, product in _clauses(thought, known):
        owners = [known.products[product]] if product else list(known.products.values())
        if found := _COMES_IN.search(clause):
            said = set(words_of(found[1])) - _IDLE
            if owners and said and not any(said <= owner.words for owner in owners):
                yield f"{found[0].strip()!r} is not told of {product or 'any product'}"
        found = _HAS.search(clause)
        subject = {one for _, one in known.named_in(clause[: found.start()])} if found else set()
        product = subject.pop() if len(subject) == 1 else product
        if product and found:
            own = (
                known.products[product].words
                | known_facts.listed_words("function_words")
                | known_facts.listed_words("openers")
            )
            others = (facts.words for one, facts in known.products.items() if one != product)
            if strange := sorted(set(words_of(found[1])).intersection(frozenset().union(*others)) - own):
                yield f"{strange[0]!r} is told of another product than {product}"


def price_claims(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    """The cheapest that is not, among those it was listed with or those of its kind; a cheaper one that is dearer than
    the other named, or than all it was listed with; and neither of them without a product that can be told."""
    prices = {product: facts.price for product, facts in known.products.items() if facts.price is not None}
    for sentence in SENTENCE_END.split(thought):
        named = [(end, product) for end, product in known.named_in(sentence) if product in prices]
        ids = {product for _, product in named}
        if (found := _COMPARED.search(sentence)) and not re.search(r"n['’]t\b|\bnot\b", sentence[: found.start()]):
            left = {product for end, product in named if end <= found.start()}
            right = {product for end, product in named if end > found.end()}
            if len(left) == len(right) == 1 and left != right:
                (one,), (other,) = left, right
                difference: Decimal = prices[one] - prices[other]
                if difference >= 0 if found[1] else difference <= 0:
                    yield f"{one} at {prices[one]} is not {found[0]} {other} at {prices[other]}"
        found = _DEGREE.search(sentence)
        if found is None:
            continue
        if found["most"] and len(ids) == 1 and not OPEN_CLAIM.search(sentence):
            (product,) = ids
            kind = {word for word in words_of(sentence) if word in known.products[product].title}
            groups = [*known.listings, {one for one in prices if kind <= known.products[one].title}]
            best = min if found["least"] else max
            if not any(
                product in group and prices[product] == best(prices[one] for one in group if one in prices)
                for group in groups
                if len(group) > 1
            ):
                yield f"{product} is not the {found[0].lower()}"
        clause = next((one for one in re.split("[,;:]", sentence) if found[0] in one), "")
        if not _ASSERTS.search(clause) or OPEN_CLAIM.search(clause) or _WISHES.search(clause):
            continue
        told = ids | {one for number in known_facts.numbers_of(sentence) for one in prices if prices[one] == number}
        if not told:
            yield f"{found[0]!r}: say by id, title or price of which product"
        if len(told) == 1 and not found["most"]:
            (product,) = told
            others = [prices[one] for group in known.listings if product in group for one in group & prices.keys()]
            if others and not (prices[product] < max(others) if found["low"] else prices[product] > min(others)):
                yield f"{product} at {prices[product]} is not {found[0]}"


def absence_claims(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    """ "No kettle here is by Hanro", where the last result has one. Held only where every word of it can be."""
    listed = [known.products[one] for one in (known.listings[-1] if known.listings else ()) if one in known.products]
    for found in _ABSENT.finditer(thought):
        said = set(words_of(found[1])) - _NEUTRAL - known_facts.listed_words("function_words")
        if said and any(said <= product.title for product in listed):
            yield f"{found[0].strip(' ,;:')!r}, but the last result has one"


def _clauses(thought: str, known: known_facts.KnownFacts) -> Iterator[tuple[str, str]]:
    """Clauses that claim something, each with the one product it speaks of: its own, or else that of the clause before
    in its sentence; "" for none or several."""
    for sentence in SENTENCE_END.split(thought):
        product = ""
        for clause in _CLAUSE_END.split(sentence):
            named = {one for _, one in known.named_in(clause) if one in known.products}
            if named:
                product = named.pop() if len(named) == 1 else ""
            if not OPEN_CLAIM.search(clause):
                yield clause, product


_DEGREE = re.compile(
    r"\b(?:(?P<low>cheaper|less expensive)|dearer|pricier|more expensive"
    r"|(?P<most>(?P<least>cheapest|least expensive|lowest[- ]priced?)|dearest|priciest|most expensive))\b(?! than\b)",
    re.IGNORECASE,
)
_ASSERTS = re.compile(r"\b(?:is|are|was|were|remains?|looks?|seems?|being)\b|['’]s\b")
_WISHES = re.compile(
    r"\b(?:asks?|asked|wants?|wanted|wish\w*|prefers?|hopes?|search\w*|looking for|look for|need\w*|must|has to"
    r"|have to)\b"
)
_ONE_SHOP = re.compile(
    r"\b(?:comes?|came|coming|sold|sells?|are|is|shares?|offered|available|stocked|found)\b[^.;]{0,25}"
    r"\b(?:same|one|single) (?:shop|seller|store)\b|\bshares? (?:a|the) (?:shop|seller|store)\b"
    r"|\b(?:one|the same) (?:shop|seller|store) (?:sells|has|carries|offers)\b",
    re.IGNORECASE,
)
_VOUCHER = r"\b(?:voucher|discount|coupon)\b"
_DENIED = re.compile(
    rf"{_VOUCHER}[^.;]{{0,30}}(?:\bnot\b|n['’]t\b|\bfail\w*)[^.;]{{0,12}}\b(?:appl|count|help|work|chang|lower|reduc)"
    rf"|\b(?:no|without (?:a|any|the)) (?:voucher|discount|coupon)",
    re.IGNORECASE,
)


def shop_together_claims(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    """Products that are said to come from one shop, and do not."""
    small = known_facts.listed_words("function_words") | known_facts.listed_words("openers")
    chosen = known_facts.ids_in(known.step.arguments) if known.step.name.startswith("recommend") else []
    for sentence in SENTENCE_END.split(thought):
        found = _ONE_SHOP.search(sentence)
        if found is None or OPEN_CLAIM.search(sentence) or _WISHES.search(sentence):
            continue
        words = dict.fromkeys(words_of(sentence))
        meant = [known.titled(word) for word in words if word not in known_facts.listed_words("plain_words") | small]
        groups = [group for group in meant if group] + [frozenset([one]) for one in chosen if one in known.products]
        shops = [{known.products[one].shop for one in group} for group in groups]
        if not shops:
            every = [one.shop for one in known.products.values() if one.shop]
            is_true = len(every) > len(set(every))
        else:
            is_true = bool(set.intersection(*shops) - {""})
        if not is_true:
            yield f"{found[0]!r}, but they are not of one shop"


def voucher_claims(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    """What a voucher did, against the last calculation; nothing it did can be told before one."""
    made = zip(known.before, known.results, strict=True)
    results = [result for step, result in made if step.name.startswith("calc") and isinstance(result, dict)]
    discount = results[-1].get("discount") if results else None
    if (found := _DENIED.search(thought)) and discount:
        yield f"{found[0]!r}, but the calculation gave a discount of {discount}"


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
_FIGURE = re.compile(rf"(?<![\w.-]){known_facts.NUMBER.pattern}(?![\w-])")
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
_TELLING_LETTERS = 4  # of a word of a later result, two of which side by side foretell it
_ENGLISH_SHARE = 0.3  # of a thought's words, that plain sentences are held together by
_REPEATED = 0.8  # share of equal word triples from which two thoughts are one


def refusal(thought: str, timeline: known_facts.CallTimeline, number: int, earlier: Sequence[str]) -> str | None:
    """Why the thought before step `number` (from 0) may not stand, in words for its writer; None where it may.

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
    plain = known_facts.listed_words("function_words") | known_facts.listed_words("openers")
    if sum(word in plain for word in words) < _ENGLISH_SHARE * len(words):
        return "it is not in plain English"
    known = known_facts.KnownFacts(timeline, number)
    for check in _CHECKS:
        if (reason := next(check(thought, known), None)) is not None:
            return reason
    own = _triples(thought)
    for step, other in enumerate(earlier, start=1):
        theirs = _triples(other)
        if own and len(own & theirs) >= _REPEATED * min(len(own), len(theirs) or 1):
            return f"it repeats the thought before step {step}"
    return None


def _numbers(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    for sentence in SENTENCE_END.split(thought):
        reckoned = known.derived if _RECKONS.search(sentence) else frozenset()
        for number in known_facts.numbers_of(sentence):
            if number not in known.numbers and number not in reckoned:
                yield f"{number} stands neither in the request nor in a result so far nor in this call"
    for word in words_of(thought):
        value = _NUMBER_WORDS.get(word)
        if value is not None and Decimal(value) not in known.numbers and word not in known.passage.vocabulary:
            yield f"{word!r} is not a count that was seen"


def _pairings(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
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


def _strange_figure(text: str, products: set[str], known: known_facts.KnownFacts) -> Iterator[str]:
    own = frozenset[Decimal]().union(*(known.products[product].numbers for product in products))
    figures = [found[0] for found in _FIGURE.finditer(text) if found[0] not in known.products]
    if figures and Decimal(figures[0].replace(",", "")) not in own | known.common:
        yield f"{figures[0]} is not of {', '.join(sorted(products))}"


def _passages(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    for quoted in ("".join(found) for found in _QUOTED.findall(thought)):
        if not known.passage.holds("".join(words_of(quoted))):
            yield f"the passage {quoted[:60]!r} stands nowhere yet"
    for found in _FOREIGN_WORD.finditer(thought):
        if found[0] not in known.text:
            yield f"{found[0]!r} is written with letters that are not English, and stands so nowhere yet"
    words = words_of(thought)
    plain = known_facts.listed_words("function_words") | known_facts.listed_words("openers")
    for size in (3, 2):
        for run in zip(*(words[start:] for start in range(size)), strict=False):
            telling = [word for word in run if len(word) >= _TELLING_LETTERS and word not in plain]
            if len(telling) > 1 and known.later.holds("".join(run)) and not known.passage.holds("".join(run)):
                yield f"{' '.join(run)!r} is known only from a later result"
    for word in words:
        is_code = any(map(str.isdigit, word)) and not word.isdecimal()
        if is_code and word not in known.passage.vocabulary:
            yield f"{word!r} stands nowhere yet"


def _claims(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
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


def _commits(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    """A recommendation has a reason: something of a product that it names, its id, a price or words of its title."""
    if not known.step.name.startswith("recommend"):
        return
    chosen = [word for word in words_of(known.step.arguments) if word in known.products]
    said, numbers = set(words_of(thought)), set(known_facts.numbers_of(thought))
    for product in chosen:
        title = {word for word in known.products[product].title if len(word) > 3}
        if product in said or len(said & title) > 1 or known.products[product].price in numbers:
            return
    if chosen:
        yield "it names nothing of what it recommends: no id, price or title"


def _strangers(thought: str, known: known_facts.KnownFacts) -> Iterator[str]:
    """Words that were not told, and are not plain ones: an attribute, a brand or a hint in small letters. What is
    said to be told nowhere is no claim, unless a later result tells it."""
    missed = set(words_of(" ".join(_UNTOLD.findall(thought)))) - known.later.vocabulary
    for word in words_of(thought):
        is_known = word in known.passage.vocabulary | missed | _KNOWN_NAMES or word in _NUMBER_WORDS
        if (
            len(word) > 1
            and word.isalpha()
            and not (is_known or known_facts.is_plain(word))
            and known_facts.stems(word).isdisjoint(known.stems)
        ):
            yield f"{word!r} stands neither in the request nor in a result so far, and is not a plain word"


_CHECKS = (
    _numbers,
    _pairings,
    _passages,
    _claims,
    service_claims,
    option_claims,
    price_claims,
    absence_claims,
    shop_together_claims,
    voucher_claims,
    _commits,
    _strangers,
)


def _triples(text: str) -> set[tuple[str, ...]]:
    words = [word for word in words_of(text) if not word.isdecimal()]
    return set(zip(words, words[1:], words[2:], strict=False))
