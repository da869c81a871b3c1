"""How the scripted model shops: a generator that yields turns and is sent their results.

What the user asked for is read out of the request's words, total on any text: every phrasing of `problems.constraints`;
of free prose prices and services, and every other word is searched for. The rest reads as one story (search, read
details, settle on a shop, verify, recommend, terminate) and depends only on the request and the results, so a replay
from the start gives the same turns. It calls only tools that are on offer, and takes a result of another shape as
nothing found. It never gives up without a recommendation when a search found anything. Fits are compared in integers,
so the same results rank the same everywhere.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import msgspec
import orjson

from foundation.canonical import foreign_text
from problems.clusters import content_words
from problems.constraints import SERVICE_WORDS
from problems.model import Bucket, Voucher
from problems.score import Bill, settle_bill
from problems.titles import title_words
from problems.wording import Bounds, read_money, read_services

_VOUCHER_START = re.compile(r"\bmy budget is\b", re.I)
_VOUCHER_TERM = re.compile(
    r"(my budget is(?: only)?|exceeds|fixed discount of|percentage discount of|cap of)\W+(\d[\d,]*(?:\.\d+)?)", re.I
)
# The two list forms of `problems.constraints`, and the frame around a wish.
_NUMBERED = re.compile(r"(?:^|\s)\([1-9]\)\s+")
_ORDINAL = re.compile(r"(?:^|[.:]\s+)(?:First|Second|Third|Fourth|Fifth|Lastly),\s+")
_ONE_SHOP = re.compile(r"\b(?:shops?|stores?|sellers?)\b", re.I)
_OPENING = re.compile(
    r"^\s*(?:i'm looking for|looking for|show me|can you help me find|i want to buy|find)\s+(?:(?:an?|the)\s+)?", re.I
)
_CLOSING = re.compile(r"[.;]\s+(?:Can you|Please)\b.*$", re.S)
_CONSTRAINT = re.compile(r"(?:in|with|from|by|priced|costing|payable|sold|available)\s")
_NO_CAP_PHP = 1e9
_PRICE = ("priced ", "costing ", "with a price ")
_LEADING = re.compile(r"^(?:(?:from|by) the (?=brand )|in |with )")
_NAME = re.compile(r"[a-z0-9]+(?: [a-z0-9]+){0,9}")
_SERVICE_OF = {words: name for name, spellings in SERVICE_WORDS.items() for words in spellings}


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One requested product. `name` holds the words that describe the product itself.

    `phrases` are constraints as `key value`; they are empty when the text is free prose, and then every word of it is
    in `name`.
    """

    text: str
    name: tuple[str, ...]
    phrases: tuple[str, ...] = ()
    price: Bounds = Bounds()
    services: tuple[str, ...] = ()

    @property
    def price_filter(self) -> str:
        """The bounds as find_product's `price` argument; empty when both sides are open."""
        low, high = ("" if side is None else f"{side:g}" for side in (self.price.low, self.price.high))
        return f"{low}-{high}" if low or high else ""


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """The whole request."""

    bucket: Bucket
    wishes: tuple[Wish, ...]
    voucher: Voucher | None = None

    @property
    def is_one_shop(self) -> bool:
        """True when every product must come from the same shop."""
        if self.voucher is not None:
            return self.voucher.voucher_type == "shop" and len(self.wishes) > 1
        return self.bucket == "shop"


@functools.lru_cache(maxsize=256)
def read_brief(text: str) -> Brief:
    """The request in `text`; always at least one wish. Kept, since a model without state reads it at each turn."""
    found = _VOUCHER_START.search(text)
    goods = (text[: found.start()] if found else text).strip()
    wishes = tuple(map(_read_wish, _split(goods)))
    if found is not None:
        return Brief(bucket="voucher", wishes=wishes, voucher=_read_voucher(text[found.start() :]))
    is_shop = len(wishes) > 1 and _ONE_SHOP.search(goods) is not None
    return Brief(bucket="shop" if is_shop else "product", wishes=wishes)


def _split(text: str) -> list[str]:
    for marker in (_NUMBERED, _ORDINAL):
        if len(parts := marker.split(text)[1:]) > 1:
            return [part.strip() for part in parts]
    return [text]


def _read_wish(text: str) -> Wish:
    """A name, then constraints between commas; or free prose."""
    body = _OPENING.sub("", _CLOSING.sub("", text.strip()))
    name, *parts = re.sub(r"[.;?]$", "", body).split(", ")
    is_plain = _NAME.fullmatch(name) and not read_services(name) and not read_money(name)[0]
    if not is_plain or not all(map(_CONSTRAINT.match, parts)):
        words, services = sorted(content_words(text)), sorted(read_services(text))
        return Wish(text=text.strip(), name=tuple(words), price=_read_price(text), services=tuple(services))
    prices = [part for part in parts if part.startswith(_PRICE)]
    phrases = [part for part in parts if part not in prices and part not in _SERVICE_OF]
    return Wish(
        text=body.rstrip(".;?"),
        name=tuple(name.split()),
        phrases=tuple(_LEADING.sub("", phrase) for phrase in phrases),
        price=_read_price(" ".join(prices)),
        services=tuple(_SERVICE_OF[part] for part in parts if part in _SERVICE_OF),
    )


def _read_price(text: str) -> Bounds:
    return next(iter(read_money(text)[0]), Bounds())


def _read_voucher(text: str) -> Voucher:
    """The terms in the sentences that follow "My budget is"; one that is not there costs and gives nothing."""
    terms = {words.lower(): float(amount.replace(",", "")) for words, amount in _VOUCHER_TERM.findall(text)}
    percent = terms.get("percentage discount of")
    return Voucher(
        voucher_type="shop" if "same shop" in text else "platform",
        discount_type="fixed" if percent is None else "percentage",
        threshold=terms.get("exceeds", 0.0),
        budget=next((amount for words, amount in terms.items() if words.startswith("my budget")), 0.0),
        face_value=terms.get("fixed discount of", 0.0) if percent is None else None,
        discount=None if percent is None else percent / 100,
        cap=None if percent is None else terms.get("cap of", _NO_CAP_PHP),
    )


_Q_CHARS = 200
_HITS_CITED = 3
_GLANCED = 2  # hits that the toy looks at where nothing tells it to compare
_WISH_CHARS = 160
_MISSED_WORD, _MISSED_CONSTRAINT = 2, 3  # what a missed name word or constraint weighs
_FAR = 1_000  # heavier than any fit


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """How thoroughly it shops."""

    name_words: int = 99  # how many words of a wish's name it searches for, counted from the end, where the noun stands
    minds_terms: bool = True  # sends price and service filters
    minds_shop: bool = True  # and minds that products may have to come from one shop
    minds_budget: bool = False  # checks the total after the voucher, and takes cheaper ones where it is over
    candidates: int = 0  # hits per wish whose details are read; 0 reads none
    analyses: bool = False  # says what it found
    is_thorough: bool = False  # ranks hits by how they fit, compares in writing, verifies at the end
    is_concise: bool = False  # says one sentence in all, which compares what it takes with what it leaves
    is_naive: bool = False  # one call a turn; the cheapest of the first hits; no discount that no tool worked out


LEVELS: dict[str, Skill] = {  # what an endpoint lists
    "scripted-expert": Skill(candidates=4, analyses=True, is_thorough=True, minds_budget=True),
    "scripted-careful": Skill(name_words=2, candidates=2, analyses=True),
    "scripted-hasty": Skill(name_words=1, minds_terms=False, minds_shop=False),
}
CONCISE = "scripted-concise"  # for small models to learn from: everything it does fits 200 tokens
SKILLS: dict[str, Skill] = {**LEVELS, CONCISE: Skill(is_concise=True)}
TOY = "scripted-toy"  # shops as well as its instructions say
_OBEYED = {
    "every word": re.compile(r"\b(?:all|every|each)(?: the| of the)? words?\b|\b(?:whole|full) name\b"),
    "few words": re.compile(r"\bfew\b.{0,20}\bwords\b"),
    "filter": re.compile(r"\bfilter"),
    "shop": re.compile(r"\bshop_id\b"),
    "voucher": re.compile(r"\bcalculate_voucher\b"),
    "details": re.compile(r"\bview_product_information\b"),
    "compare": re.compile(r"\bcompar(?:e|ing|ison)\b"),
    "say": re.compile(r"\b(?:say|quote|explain|think|own words)\b"),
}


def skill_of(instructions: str) -> Skill:
    """What the toy model does of what it is asked to: it looks for a few phrases, and knows no others."""
    text = " ".join(instructions.lower().split())
    obeyed = {name for name, phrase in _OBEYED.items() if phrase.search(text)}
    return Skill(
        name_words=99 if "every word" in obeyed else 2 if "few words" in obeyed else 1,
        minds_terms="filter" in obeyed,
        minds_shop="shop" in obeyed,
        minds_budget="voucher" in obeyed,
        candidates=2 * ("details" in obeyed),
        analyses="say" in obeyed or "compare" in obeyed,
        is_thorough="compare" in obeyed,
        is_naive=True,
    )


class WrittenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call in a message, native or as text."""

    name: str
    arguments: dict[str, Any]


class ShopperTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One assistant turn: visible thinking, then calls (none only at the very end)."""

    think: str
    calls: tuple[WrittenCall, ...]


Program = Generator[ShopperTurn, list[Any], None]
_Pair = tuple[str, str]  # key and value as the catalogue writes them


class _Offer(msgspec.Struct):
    """One search hit, as far as it is read. Options and attributes are known once it was viewed."""

    product_id: str
    shop_id: str = ""
    title: str = ""
    price: int | float = 0
    service: list[str] = []
    sku_options: dict[str, dict[str, str]] = {}
    attributes: dict[str, list[str]] = {}

    @property
    def php(self) -> str:
        """The price as the result writes it."""
        return orjson.dumps(self.price).decode()

    def known(self) -> tuple[dict[str, _Pair], list[dict[str, _Pair]]]:
        """Attributes, and those of each option, by the phrase `key value` in which a request would say them."""
        attributes = _phrases((key, value) for key, values in self.attributes.items() for value in values)
        return attributes, [_phrases(option.items()) for option in self.sku_options.values()]

    def pairs(self, asked: Iterable[str]) -> dict[str, _Pair]:
        """The attributes together with the one option that meets most of the `asked` phrases."""
        wanted, none = frozenset(asked), dict[str, _Pair]()
        attributes, options = self.known()
        return attributes | max((none, *options), key=lambda one: len(wanted & (one.keys() | attributes.keys())))

    def __str__(self) -> str:
        return f'{self.product_id} "{self.title}" at {self.php} PHP from shop {self.shop_id}'


class _Fit(msgspec.Struct, frozen=True):
    """How an offer fits a wish. Lower `miss` is better; 0 means that nothing asked for is known to be missing."""

    offer: _Offer
    miss: int
    met: tuple[str, ...]
    missed: tuple[str, ...]


def shop(question: str, skill: Skill, has_tool: Callable[[str], bool]) -> Program:
    """The shopping program for `question` at one skill level, with the tools that are on offer."""
    return _Shopper(read_brief(question), skill, has_tool).run()


class _Shopper:
    """One shopping trip."""

    def __init__(self, brief: Brief, skill: Skill, has_tool: Callable[[str], bool]) -> None:
        self._brief, self._skill, self._has_tool = brief, skill, has_tool
        self._found: list[list[_Offer]] = []  # per wish
        self._notes: list[str] = []  # said with the next turn

    def run(self) -> Program:
        self._say_plan()
        yield from self._search()
        if self._has_tool("view_product_information"):
            yield from self._read_details()
        fits = self._fits()
        chosen = self._choose(fits)
        for index, fit in chosen:
            self._say(self._why(index, fit, fits[index]))
        yield from self._verify(chosen)
        ids = [fit.offer.product_id for _, fit in chosen]
        if self._skill.is_concise:
            self._notes.append(_prefer(chosen[0][1].offer, fits[chosen[0][0]]) if chosen else "Nothing was found.")
        elif self._skill.analyses:
            self._say(f"The choice is settled: {', '.join(ids)}, in the order of the request.")
        else:
            self._notes.append("Recommending.")
        yield from self._turn(_call("recommend_product", product_ids=",".join(ids)))
        self._say("The recommendation is made and nothing is left to check, so I finish.")
        status = "success" if len(chosen) == len(self._brief.wishes) else "failure"
        yield from self._turn(_call("terminate", status=status))

    def _search(self) -> Program:
        """Search once for each wish, all in one turn."""
        results = yield from self._turn(*(_call("find_product", **self._query(wish)) for wish in self._brief.wishes))
        self._found = list(map(_read_offers, results))
        for number, offers in enumerate(self._found, 1):
            if offers:
                cited = "; ".join(map(str, offers[: _HITS_CITED if self._skill.is_thorough else 1]))
                self._say(f"Product {number}: {len(offers)} hits, the first of them {cited}.")
            else:
                self._say(f"Product {number}: this search found nothing.")

    def _query(self, wish: Wish) -> dict[str, Any]:
        arguments: dict[str, Any] = {"q": " ".join(wish.name[-self._skill.name_words :])[:_Q_CHARS]}
        if not self._skill.is_concise:
            arguments["page"] = 1
        if self._skill.minds_terms:
            filters = {"price": wish.price_filter, "service": ",".join(wish.services)}
            arguments |= {name: value for name, value in filters.items() if value}
        return arguments

    def _read_details(self) -> Program:
        """View the most promising offers, of all wishes in one call."""
        best = dict.fromkeys(fit.offer.product_id for fits in self._fits() for fit in fits[: self._skill.candidates])
        if not best:
            return
        self._say("Titles and prices alone do not settle the options and attributes, so I look at the details.")
        (result,) = yield from self._turn(_call("view_product_information", product_ids=",".join(best)))
        rows = {row.product_id: row for row in _read_offers(result)}
        for offer in itertools.chain(*self._found):
            if (row := rows.get(offer.product_id)) is not None:
                offer.sku_options, offer.attributes = row.sku_options, row.attributes

    def _fits(self) -> list[list[_Fit]]:
        """Per wish its offers, best first; without weighing the search's own order stands."""
        found = zip(self._brief.wishes, self._found, strict=True)
        fits = [[_Fit(one, *_weigh(wish, msgspec.json.encode(one))) for one in offers] for wish, offers in found]
        if self._skill.is_thorough:
            for row in fits:
                row.sort(key=lambda fit: fit.miss)
        elif self._skill.is_naive:
            fits = [sorted(row[:_GLANCED], key=lambda fit: fit.offer.price) for row in fits]
        return fits

    def _choose(self, fits: list[list[_Fit]]) -> list[tuple[int, _Fit]]:
        """The best fit per wish, inside one shop where that is asked, within the budget where there is one."""
        if self._brief.is_one_shop and self._skill.minds_shop and (shop_id := _best_shop(fits)):
            fits = [[fit for fit in row if fit.offer.shop_id == shop_id] or row for row in fits]
        chosen = [(index, row[0]) for index, row in enumerate(fits) if row]
        terms, skill = self._brief.voucher, self._skill
        if terms is None or not (skill.minds_budget or skill.is_naive):
            return chosen
        bill = _bill([fit.offer for _, fit in chosen], terms)
        if bill.is_within_budget if skill.minds_budget else bill.total_php <= terms.budget:
            return chosen
        worst = {index: best.miss if skill.minds_budget else _FAR for index, best in chosen}  # that may be taken
        return [
            (index, min((fit for fit in fits[index] if fit.miss <= most), key=lambda fit: fit.offer.price))
            for index, most in worst.items()
        ]

    def _verify(self, chosen: Sequence[tuple[int, _Fit]]) -> Program:
        """Check what was chosen with the tools that can tell, all in one turn."""
        calls: list[WrittenCall] = []
        for index, fit in chosen if self._skill.is_thorough and self._has_tool("check_product_match") else ():
            asked = _pairs_to_check(self._brief.wishes[index], fit.offer)
            if asked:
                product_id, requirements = fit.offer.product_id, foreign_text(asked)
                calls.append(_call("check_product_match", product_id=product_id, requirements=requirements))
        terms = self._brief.voucher
        if terms is not None and chosen and self._skill.minds_budget and self._has_tool("calculate_voucher"):
            calls.append(self._voucher_call(terms, [fit.offer for _, fit in chosen]))
        if calls:
            results = yield from self._turn(*calls)
            for call, result in zip(calls, results, strict=True):
                self._say(_check(call.name, result))

    def _voucher_call(self, terms: Voucher, offers: Sequence[_Offer]) -> WrittenCall:
        bill = _bill(offers, terms)
        relation = "within" if bill.is_within_budget else "over"
        self._say(
            f"Together they cost {bill.total_php:.2f} PHP and {bill.after_php:.2f} PHP after the voucher, "
            f"which is {relation} the budget of {terms.budget:g} PHP. I check this with the voucher tool."
        )
        arguments: dict[str, object] = {
            "product_prices": ",".join(offer.php for offer in offers),
            "voucher_type": terms.discount_type,
            "discount_value": terms.face_value if terms.discount is None else float(round(100 * terms.discount)),
            "threshold": terms.threshold,
            "budget": terms.budget,
        }
        if terms.cap is not None:
            arguments["cap"] = terms.cap
        if terms.voucher_type == "shop":
            arguments["shop_ids"] = ",".join(offer.shop_id for offer in offers)
        return _call("calculate_voucher", **arguments)

    def _turn(self, *calls: WrittenCall) -> Generator[ShopperTurn, list[Any], list[Any]]:
        think, self._notes = "\n".join(self._notes), []
        return (yield ShopperTurn(think=think, calls=calls))

    # What it says: visible reasoning. Everything cited is in a tool result of the same conversation, letter by letter.

    def _say(self, note: str) -> None:
        if self._skill.analyses:
            self._notes.append(note)

    def _say_plan(self) -> None:
        brief = self._brief
        if not self._skill.analyses and not self._skill.is_concise:
            self._notes.append("Searching.")
        self._say(f"The request asks for {len(brief.wishes)} product(s) ({brief.bucket} request).")
        for number, wish in enumerate(brief.wishes, 1):
            bounds = [f"price filter {wish.price_filter}"] if wish.price_filter else []
            bounds += [f"service {name}" for name in wish.services]
            self._say(f"{number}. {wish.text[:_WISH_CHARS]}" + (f" [{', '.join(bounds)}]" if bounds else ""))
        if brief.is_one_shop:
            self._say("All of them must come from one shop, so the shop_id has to be the same for each.")
        if brief.voucher is not None:
            self._say(f"The total after the voucher must stay within the budget of {brief.voucher.budget:g} PHP.")
        self._say("I start by searching for the words that describe each product itself.")

    def _why(self, index: int, fit: _Fit, fits: Sequence[_Fit]) -> str:
        chosen = fit.offer
        said = f"Product {index + 1}: I take {chosen}."
        said += f" It meets: {', '.join(fit.met)}." if fit.met else ""
        said += f" It does not show: {', '.join(fit.missed)}." if fit.missed else ""
        if not self._skill.is_thorough:
            return said
        other = next((one for one in fits if one.offer.product_id != chosen.product_id), None)
        if other is None:
            return f"{said} No other candidate came up for it."
        said += f" Compared with {other.offer}:"
        if ahead := [term for term in other.missed if term in fit.met]:
            return f"{said} that one lacks {', '.join(ahead)}, which the chosen one has, so the chosen one is better."
        prices = f"{chosen.php} PHP against {other.offer.php} PHP"
        if chosen.price <= other.offer.price:
            return f"{said} both fit equally well, and the chosen one is not dearer ({prices})."
        return f"{said} both fit equally well ({prices}), but the search ranks the chosen one higher."


def _prefer(taken: _Offer, fits: Sequence[_Fit]) -> str:
    other = next((fit.offer for fit in fits if fit.offer.product_id != taken.product_id), None)
    mine = f"{taken.product_id} at {taken.php} PHP"
    if other is None:
        return f"{mine} is the only hit."
    left = f"{other.title} at {other.php} PHP"
    if taken is fits[0].offer:
        return f"{mine} ranks above {left}, so I prefer it."
    return f"{mine} fits shop {taken.shop_id}, unlike {left}."


def _check(tool: str, result: object) -> str:
    if not isinstance(result, dict) or "error" in result:
        return f"{tool} gave no usable answer; I rely on what I read."

    if tool == "calculate_voucher":
        before, after, fits = (result.get(name) for name in ("total_before", "total_after", "within_budget"))
        return f"{tool}: total_before {before}, total_after {after}, within_budget {str(fits is True).lower()}."
    summary = result.get("product_summary")
    product_id = summary.get("product_id", "") if isinstance(summary, dict) else ""
    return f"{tool} for {product_id}: matched {str(result.get('matched') is True).lower()}."


def _call(name: str, **arguments: object) -> WrittenCall:
    return WrittenCall(name=name, arguments=arguments)


def _read_offers(result: object) -> list[_Offer]:
    """The products of a result, in order; none of one in another shape."""
    try:
        return msgspec.convert(result, list[_Offer])
    except msgspec.ValidationError:
        return []


def _best_shop(fits: Sequence[Sequence[_Fit]]) -> str:
    """The shop whose best offers miss least over all wishes."""
    least: dict[str, list[int]] = {}  # by shop, for each wish
    for index, fit in ((index, fit) for index, row in enumerate(fits) for fit in row):
        of_shop = least.setdefault(fit.offer.shop_id, [_FAR] * len(fits))
        of_shop[index] = min(fit.miss, of_shop[index])
    return min(least, key=lambda shop: (sum(least[shop]), shop), default="")


def _bill(offers: Sequence[_Offer], terms: Voucher) -> Bill:
    return settle_bill([offer.price for offer in offers], [offer.shop_id for offer in offers], terms)


def _phrases(pairs: Iterable[tuple[str, str]]) -> dict[str, _Pair]:
    return {f"{key.replace('_', ' ')} {value}": (key, value) for key, value in pairs}


@functools.lru_cache(maxsize=4_096)
def _weigh(wish: Wish, text: bytes) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """How an offer, JSON text, fits `wish`, as far as it is known: without details, option and attribute phrases count
    as missed. Kept as a brief is, for the turns to come."""
    offer = msgspec.json.decode(text, type=_Offer)
    terms = [(service, service in offer.service) for service in wish.services]
    if price_filter := wish.price_filter:
        low, high = wish.price.low or 0.0, math.inf if wish.price.high is None else wish.price.high
        terms.append((f"price {price_filter}", low <= offer.price <= high))
    known = offer.pairs(wish.phrases) if wish.phrases else ()
    terms += [(phrase, phrase in known) for phrase in wish.phrases]
    words = _name_words(wish, offer)
    miss = _MISSED_WORD * sum(not met for _, met in words) + _MISSED_CONSTRAINT * sum(not met for _, met in terms)
    met, missed = (tuple(said for said, met in (*words, *terms) if met is is_met) for is_met in (True, False))
    return miss, met, missed


def _name_words(wish: Wish, offer: _Offer) -> list[tuple[str, bool]]:
    """Each name word and whether the title has it; for free prose, options and attributes count as well."""
    if wish.phrases:
        return [(word, word in title_words(offer.title)) for word in wish.name]
    attributes, options = offer.known()
    words = title_words(" ".join((offer.title, *attributes, *(phrase for option in options for phrase in option))))
    singular = words.union(map(_singular, words))
    return [(word, _singular(word) in singular) for word in wish.name]


def _pairs_to_check(wish: Wish, offer: _Offer) -> dict[str, str]:
    """The pairs of the offer that the wish asks for, by key: requirements worth checking with the tool."""
    offered = offer.pairs(wish.phrases)
    if wish.phrases:
        return dict(offered[phrase] for phrase in wish.phrases if phrase in offered)
    said = f" {' '.join(wish.name)} "
    return dict(pair for pair in offered.values() if f" {pair[1]} " in said)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word
