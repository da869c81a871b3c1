"""What a thought claims of products, held against what was known: services, options, shops, prices, pages, absence.

Pure, and no reading of English: only claims of a fixed form are held, about products that are named in the
same sentence. A claim that is denied, hoped for or asked about is none. Each check yields why a claim does not stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from harness.emission.wording import words_of
from training.rewriting.known_facts import KnownFacts, ids_in
from training.rewriting.prompts import listed_words

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
_SHOP = re.compile(r"\b[Ss](?:hop|tore|eller) (\d{5,})\b")
_SUPERLATIVE = re.compile(r"\b(?:(cheapest|least expensive|lowest[- ]priced?)|dearest|most expensive|priciest)\b", re.I)
_COMPARED = re.compile(
    r"\b(?:(cheaper|less expensive|costs? (?:[\w.]+ ){0,3}less)|dearer|pricier|more expensive"
    r"|costs? (?:[\w.]+ ){0,3}more) than\b"
)
_PAGE = re.compile(
    r"\b(?:having|after|I(?:['’]ve| have| had)?) (?:compar|view|open|read|stud|check|inspect|look)\w*\b[^.;]{0,40}"
    r"\b(?:pages?|details|descriptions?)\b[^.;,]{0,60}",
    re.IGNORECASE,
)
_ABSENT = re.compile(
    r"(?:^|[,;:] (?:and |but )?|\bthat )"
    r"(?:there (?:is|are) no|there (?:isn|aren)['’]t (?:a|any)|no|not (?:one|a single))\b"
    r" ([^.,;:]+?)(?=,| so\b| and\b|[.;:]|$)",
    re.IGNORECASE,
)
_NEUTRAL = frozenset(words_of("is are was were by of among these single pair set product item one at all shown here"))
_CHOICE = re.compile(
    r"\bI(?:['’]ll| will| now| then| would)? (?:choose|take|pick|recommend|go with|went with|settle on)\b"
)


def service_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """A service that is told of the one product of a clause, and is not among those it was listed with."""
    for clause, product in _clauses(thought, known):
        for pattern, names in _SERVICES:
            if (
                product
                and (found := pattern.search(clause))
                and known.products[product].words.isdisjoint(names.split())
            ):
                yield f"{found[0]!r} is not told of {product}"


def option_claims(thought: str, known: KnownFacts) -> Iterator[str]:
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
            of_others = known.words_of_others(product) - listed_words("function_words") - listed_words("openers")
            if strange := sorted(of_others.intersection(words_of(found[1]))):
                yield f"{strange[0]!r} is told of another product than {product}"


def shop_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """A shop that is said to sell a product of another."""
    for clause, product in _clauses(thought, known):
        if product and (found := _SHOP.search(clause)) and found[1] not in known.products[product].words:
            yield f"{product} is not of shop {found[1]}"


def price_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """The cheapest that is not, among those it was listed with or those of its kind; cheaper that is dearer."""
    prices = {product: facts.price for product, facts in known.products.items() if facts.price is not None}
    for sentence in SENTENCE_END.split(thought):
        named = [(end, product) for end, product in known.named_in(sentence) if product in prices]
        ids = {product for _, product in named}
        if (found := _SUPERLATIVE.search(sentence)) and len(ids) == 1 and not OPEN_CLAIM.search(sentence):
            (product,) = ids
            kind = {word for word in words_of(sentence) if word in known.products[product].title}
            groups = [*known.listings, {one for one in prices if kind <= known.products[one].title}]
            best = min if found[1] else max
            if not any(
                product in group and prices[product] == best(prices[one] for one in group if one in prices)
                for group in groups
                if len(group) > 1
            ):
                yield f"{product} is not the {found[0].lower()}"
        if (found := _COMPARED.search(sentence)) and not re.search(r"n['’]t\b|\bnot\b", sentence[: found.start()]):
            left = {product for end, product in named if end <= found.start()}
            right = {product for end, product in named if end > found.end()}
            if len(left) == len(right) == 1 and left != right:
                (one,), (other,) = left, right
                difference: Decimal = prices[one] - prices[other]
                if difference >= 0 if found[1] else difference <= 0:
                    yield f"{one} at {prices[one]} is not {found[0]} {other} at {prices[other]}"


def page_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """A page that is said to have been read, of a product that no call before asked about."""
    asked = {
        one for step in known.before if not step.name.startswith(("find", "search")) for one in ids_in(step.arguments)
    }
    for found in _PAGE.finditer(thought):
        for _, product in known.named_in(found[0]):
            if product not in asked:
                yield f"{found[0]!r}, but {product} was not looked at"


def absence_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """ "No kettle here is by Hanro", where the last result has one. Held only where every word of it can be."""
    listed = [known.products[one] for one in (known.listings[-1] if known.listings else ()) if one in known.products]
    for found in _ABSENT.finditer(thought):
        said = set(words_of(found[1])) - _NEUTRAL - listed_words("function_words")
        if said and any(said <= product.title for product in listed):
            yield f"{found[0].strip(' ,;:')!r}, but the last result has one"


def choice_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """A choice of another product than the call recommends, or of one before a call that recommends none."""
    if not known.step.name.startswith("recommend"):
        return
    chosen = set(ids_in(known.step.arguments))
    for clause, product in _clauses(thought, known):
        if product and product not in chosen and _CHOICE.search(clause):
            yield f"{product} is not what this call recommends"


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
