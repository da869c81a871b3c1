"""Whether a thought stands on what was known when it is said to have been thought.

Pure. A thought before a call may name what the shopper asked, what the results so far hold, and what its own
call says; nothing of later results, and nothing that stands nowhere. README.md lists what is refused, and what code
cannot see. Endings of words are set aside by rule ("prices", "price"): two words that share a stem may differ, and no
harm comes of it but a word more that is let pass.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import accumulate, pairwise

import msgspec
import orjson

from foundation.canonical import objects_in
from harness.emission.wording import Passage, words_of
from training.trac.asking import prompt_text

THOUGHT_CHARS = (40, 1_200)
_STEM_LETTERS = 3
_ENDINGS = (
    ("ies", "y"), ("ied", "y"), ("ier", "y"), ("iest", "y"), ("ily", "y"), ("ves", "f"), ("es", ""), ("s", ""),
    ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"), ("er", ""), ("er", "e"), ("est", ""), ("est", "e"),
    ("ly", ""), ("ly", "le"), ("ness", ""),
)  # fmt: skip
ID_DIGITS = 6  # a number of so many digits is a product's or a shop's
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_SHORT_LEAF = 200  # characters of a value such as a title; longer ones are descriptions
_MARK_LETTERS = 4  # of a word of one title alone, that may stand for its product
_AFTER_THE = re.compile(r"\b[Tt]h(?:e|is|at) (?:\w+ )?\Z")
_SPEAKING_OF_OTHERS = ("service", "matches", "mismatches")  # fields whose values are words of the request
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
_TELLING_LETTERS = 4  # of a word of a later result, two of which side by side foretell it
_ENGLISH_SHARE = 0.3  # of a thought's words, that plain sentences are held together by
_REPEATED = 0.8  # share of equal word triples from which two thoughts are one


class CallStep(msgspec.Struct, frozen=True, kw_only=True):
    """One call that code chose, with what came back. `arguments` is JSON text, both byte for byte as recorded."""

    name: str
    arguments: str
    result: str


class CallTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its calls in the order in which they were made."""

    query: str
    steps: tuple[CallStep, ...]


@functools.cache
def is_plain(word: str) -> bool:
    """Whether a word says nothing of a product by itself."""
    return not stems(word).isdisjoint(listed_words("plain_words") | small_words())


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
        own = ids_in(self.step.arguments)
        counts.update((len(own), *range(max(wishes, len(self.before) + 1) + 1)))
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
        return tuple(filter(None, found))

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
        objects = (found for step in self._later_steps for found in objects_in(decoded(step.result)))
        told = (value for found in objects for name, value in found.items() if name not in _SPEAKING_OF_OTHERS)
        fields = (field for value in told for field in (value if isinstance(value, list) else [value]))
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
def small_words() -> frozenset[str]:
    """The words that hold plain sentences together."""
    return listed_words("function_words") | listed_words("openers")


@functools.cache
def listed_words(name: str) -> frozenset[str]:
    """The words of a list of a name."""
    return frozenset(prompt_text("rewriting", name).split())


def clause_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """What the one product of a clause is said to offer, to come in or to have, and was not told of it."""
    for clause, product in _clauses(thought, known):
        own = known.products[product].words if product else frozenset[str]()
        for pattern, names in _SERVICES:
            if product and (found := pattern.search(clause)) and own.isdisjoint(names.split()):
                yield f"{found[0]!r} is not told of {product}"
        if found := _COMES_IN.search(clause):
            said = set(words_of(found[1])) - _IDLE
            told = [own] if product else [facts.words for facts in known.products.values()]
            if told and said and not any(said <= words for words in told):
                yield f"{found[0].strip()!r} is not told of {product or 'any product'}"
        if found := _HAS.search(clause):
            subject = {one for _, one in known.named_in(clause[: found.start()])}
            product = subject.pop() if len(subject) == 1 else product
            others = {word for one, facts in known.products.items() if one != product for word in facts.words}
            strange = set(words_of(found[1])) & others - small_words()
            if product and (strange := strange - known.products[product].words):
                yield f"{min(strange)!r} is told of another product than {product}"


def price_claims(thought: str, known: KnownFacts) -> Iterator[str]:
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
        if (found := _DEGREE.search(sentence)) is None:
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
        told = ids | {one for number in numbers_of(sentence) for one in prices if prices[one] == number}
        if not told:
            yield f"{found[0]!r}: say by id, title or price of which product"
        if len(told) == 1 and not found["most"]:
            (product,) = told
            others = [prices[one] for group in known.listings if product in group for one in group & prices.keys()]
            if others and not (prices[product] < max(others) if found["low"] else prices[product] > min(others)):
                yield f"{product} at {prices[product]} is not {found[0]}"


def denials(thought: str, known: KnownFacts) -> Iterator[str]:
    """What is said to be nowhere, and stands in the last result, listing or calculation. "No kettle here is by Hanro"
    is held only where every word of it can be."""
    last = known.results[-1] if known.results else None
    if (found := _NOTHING_FOUND.search(thought)) and (not known.results or (isinstance(last, list) and last)):
        yield f"{found[0]!r}, but the last result is not empty"
    listed = [known.products[one] for one in (known.listings[-1] if known.listings else ()) if one in known.products]
    for found in _ABSENT.finditer(thought):
        said = set(words_of(found[1])) - _NEUTRAL - listed_words("function_words")
        if said and any(said <= product.title for product in listed):
            yield f"{found[0].strip(' ,;:')!r}, but the last result has one"
    made = zip(known.before, known.results, strict=True)
    calculated = [result for step, result in made if step.name.startswith("calc") and isinstance(result, dict)]
    discount = calculated[-1].get("discount") if calculated else None
    if (found := _DENIED.search(thought)) and discount:
        yield f"{found[0]!r}, but the calculation gave a discount of {discount}"


def _clauses(thought: str, known: KnownFacts) -> Iterator[tuple[str, str]]:
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


def shop_together_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """Products that are said to come from one shop, and do not."""
    chosen = ids_in(known.step.arguments) if known.step.name.startswith("recommend") else []
    for sentence in SENTENCE_END.split(thought):
        found = _ONE_SHOP.search(sentence)
        if found is None or OPEN_CLAIM.search(sentence) or _WISHES.search(sentence):
            continue
        words = dict.fromkeys(words_of(sentence))
        meant = [known.titled(word) for word in words if word not in listed_words("plain_words") | small_words()]
        groups = [group for group in meant if group] + [frozenset([one]) for one in chosen if one in known.products]
        shops = [{known.products[one].shop for one in group} for group in groups]
        every = [one.shop for one in known.products.values() if one.shop]
        if not (set.intersection(*shops) - {""} if shops else len(every) > len(set(every))):
            yield f"{found[0]!r}, but they are not of one shop"


def refusal(thought: str, timeline: CallTimeline, number: int, earlier: Sequence[str]) -> str | None:
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
    if sum(word in small_words() for word in words) < _ENGLISH_SHARE * len(words):
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
            yield f"{word!r} is not a count that was seen"


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
    for size in (3, 2):
        for run in zip(*(words[start:] for start in range(size)), strict=False):
            telling = [word for word in run if len(word) >= _TELLING_LETTERS and word not in small_words()]
            if len(telling) > 1 and known.later.holds("".join(run)) and not known.passage.holds("".join(run)):
                yield f"{' '.join(run)!r} is known only from a later result"
    for word in words:
        if any(map(str.isdigit, word)) and not word.isdecimal() and word not in known.passage.vocabulary:
            yield f"{word!r} stands nowhere yet"


def _claims(thought: str, known: KnownFacts) -> Iterator[str]:
    made = [step.name for step in known.before]
    for claim, tools in _CLAIMS:
        if (found := claim.search(thought)) and not any(name.startswith(tools) for name in made):
            yield f"{found[0]!r} claims a step that was not made yet"
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
    fine = missed | _KNOWN_NAMES | _NUMBER_WORDS.keys()
    for word in (word for word in words_of(thought) if len(word) > 1 and word.isalpha() and word not in fine):
        if not is_plain(word) and stems(word).isdisjoint(known.stems):
            yield f"{word!r} stands neither in the request nor in a result so far, and is not a plain word"


_CHECKS = (
    _numbers,
    _pairings,
    _passages,
    _claims,
    clause_claims,
    price_claims,
    denials,
    shop_together_claims,
    _commits,
    _strangers,
)


def _triples(text: str) -> set[tuple[str, ...]]:
    words = [word for word in words_of(text) if not word.isdecimal()]
    return set(zip(words, words[1:], words[2:], strict=False))
