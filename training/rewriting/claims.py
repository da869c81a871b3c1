"""What a thought claims of products, held against what was known: services, options, prices, amounts, shops, vouchers.

Pure, and no reading of English: only claims of a fixed form are held. A claim that is denied, hoped for or asked about
is passed over. What a claim compares has to be found in what was returned. Each check yields why it does not stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from harness.emission.wording import words_of
from training.rewriting.known_facts import ID_DIGITS, KnownFacts, ids_in, is_plain, listed_words, numbers_of

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
        told = ids | {one for number in numbers_of(sentence) for one in prices if prices[one] == number}
        if not told:
            yield f"{found[0]!r}: say by id, title or price of which product"
        if len(told) == 1 and not found["most"]:
            (product,) = told
            others = [prices[one] for group in known.listings if product in group for one in group & prices.keys()]
            if others and not (prices[product] < max(others) if found["low"] else prices[product] > min(others)):
                yield f"{product} at {prices[product]} is not {found[0]}"


def absence_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """ "No kettle here is by Hanro", where the last result has one. Held only where every word of it can be."""
    listed = [known.products[one] for one in (known.listings[-1] if known.listings else ()) if one in known.products]
    for found in _ABSENT.finditer(thought):
        said = set(words_of(found[1])) - _NEUTRAL - listed_words("function_words")
        if said and any(said <= product.title for product in listed):
            yield f"{found[0].strip(' ,;:')!r}, but the last result has one"


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


_NUMBER = r"(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w-])"
_LESS = (
    r"below|under|beneath|less than|lower than|cheaper than|within|(?:stays? |fits? )(?:in|into|within|under)|at most"
    r"|no more than"
)
_MORE = r"above|over|more than|higher than|dearer than|exceeds?|beyond|at least"
_AMOUNTS = re.compile(
    rf"(?P<left>{_NUMBER})(?P<between>[^.;\d]{{0,40}}?)\b(?:(?P<less>{_LESS})|(?P<more>{_MORE}))\b"
    rf"(?P<gap>[^.;,\d]{{0,30}}?)(?P<right>{_NUMBER}|budget\b)",
    re.IGNORECASE,
)
_PRODUCT_AMOUNT = re.compile(
    rf"\b(?:(?P<less>{_LESS})|(?P<more>{_MORE}))\b[^.;,\d]{{0,30}}?(?P<right>{_NUMBER}|budget\b)", re.IGNORECASE
)
_BUDGET = re.compile(r"\bbudget\D{0,25}(\d+(?:,\d{3})*(?:\.\d+)?)", re.IGNORECASE)
_NEGATED = re.compile(r"\b(?:not|no|never|nor)\b|n['’]t\b", re.IGNORECASE)
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
_FUTURE = re.compile(
    r"\b(?P<who>\w+) (?:will|won['’]t|shall|(?:is|are) (?:going|about|bound|sure|certain) to)"
    r" (?:not |then |surely |certainly |also |both |all |just |still |well )*(?P<verb>\w+)(?: (?P<what>\w+))?",
    re.IGNORECASE,
)
# verbs that tell how something turns out; words after them that leave it open; words after "be" that do not
_TELLS, _OPEN_ENDED, _STATES = (
    frozenset(words_of(text))
    for text in (
        "come cost stay reach exceed sell apply return fit match bring meet pass say turn appear stand contain hold"
        " satisfy suffice work have offer win show include ship carry go remain need",
        "which whether if what how who where",
        "in on under below within above over cheaper dearer right fine there available the a an",
    )
)


def amount_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """An amount, or the price of the product named before, that is not below or above the other as is said."""
    prices = {one.price for one in known.products.values() if one.price is not None}
    amounts = prices | {number for result in known.calculated for number in result.values()}
    amounts |= known.sums | known.derived
    for sentence in SENTENCE_END.split(thought):
        for found in _AMOUNTS.finditer(sentence):
            left, right = _decimal(found["left"]), _limit(found["right"], known)
            if left in amounts and right is not None and not _NEGATED.search(found["between"] + found["gap"]):
                yield from _misplaced(found["left"], left, found, right)
        for found in _PRODUCT_AMOUNT.finditer(sentence):
            named = [(end, product) for end, product in known.named_in(sentence) if end <= found.start()]
            right = _limit(found["right"], known)
            between = sentence[named[-1][0] : found.start()] if named else ""
            if right is None or not named or re.search(r"\d", between) or OPEN_CLAIM.search(between):
                continue
            price = known.products[named[-1][1]].price
            if price is not None and len(found["right"]) < ID_DIGITS:
                yield from _misplaced(f"{named[-1][1]} at {price}", price, found, right)


def shop_together_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """Products that are said to come from one shop, and do not."""
    small = listed_words("function_words") | listed_words("openers")
    chosen = ids_in(known.step.arguments) if known.step.name.startswith("recommend") else []
    for sentence in SENTENCE_END.split(thought):
        found = _ONE_SHOP.search(sentence)
        if found is None or OPEN_CLAIM.search(sentence) or _WISHES.search(sentence):
            continue
        words = dict.fromkeys(words_of(sentence))
        meant = [known.titled(word) for word in words if word not in listed_words("plain_words") | small]
        groups = [group for group in meant if group] + [frozenset([one]) for one in chosen if one in known.products]
        shops = [{known.products[one].shop for one in group} for group in groups]
        if not shops:
            every = [one.shop for one in known.products.values() if one.shop]
            is_true = len(every) > len(set(every))
        else:
            is_true = bool(set.intersection(*shops) - {""})
        if not is_true:
            yield f"{found[0]!r}, but they are not of one shop"


def voucher_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """What a voucher did, against the last calculation; nothing it did can be told before one."""
    last = known.calculated[-1] if known.calculated else {}
    discount = last.get("discount")
    if (found := _DENIED.search(thought)) and discount:
        yield f"{found[0]!r}, but the calculation gave a discount of {discount}"


def future_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """What something will turn out to be; what the thinker does next is no such claim."""
    for found in _FUTURE.finditer(thought):
        verb, what = found["verb"].lower(), (found["what"] or "").lower()
        is_told = verb in _TELLS or (verb == "be" and what in _STATES)
        if is_told and what not in _OPEN_ENDED and found["who"].lower() not in ("i", "we"):
            yield f"{found[0]!r} tells what is not known yet"


def described_shop_claims(thought: str, known: KnownFacts) -> Iterator[str]:
    """A shop that is said to sell what only products of other shops answer to."""
    for sentence in SENTENCE_END.split(thought):
        for clause in re.split(r"[,;:()]", sentence):
            named = re.search(rf"\b[Ss](?:hop|tore|eller) (\d{{{ID_DIGITS - 1},}})\b", clause)
            if named is None or OPEN_CLAIM.search(clause) or _WISHES.search(clause):
                continue
            telling = {word for word in words_of(clause) if word.isalpha() and not is_plain(word)}
            telling = {word for word in telling if any(word in one.words for one in known.products.values())}
            meant = [one for one in known.products.values() if telling and telling <= one.words and one.shop]
            if meant and all(one.shop != named[1] for one in meant):
                yield f"what shop {named[1]} is said to sell is of shop {meant[0].shop}"


def _misplaced(name: str, left: Decimal, found: re.Match[str], right: Decimal) -> Iterator[str]:
    if left > right if found["less"] else left < right:
        yield f"{name} is not {(found['less'] or found['more']).lower()} {right}"


def _limit(text: str, known: KnownFacts) -> Decimal | None:
    if text[0].isdecimal():
        return _decimal(text)
    found = _BUDGET.search(known.query)
    return _decimal(found[1]) if found else None


def _decimal(text: str) -> Decimal:
    return Decimal(text.replace(",", ""))
