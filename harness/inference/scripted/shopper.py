"""How the scripted model shops: a generator that yields turns and is sent their results.

It reads as one story (search, read details, search again, settle on a shop, verify, recommend, terminate) and
depends only on the request and the results, so a replay from the start gives the same turns. It calls only tools that
are on offer, and takes a result of another shape as nothing found. It never gives up without a recommendation when a
search found anything. Fits are compared in integers, so the same results rank the same everywhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import msgspec
import orjson

from foundation.canonical import foreign_text
from harness.inference.scripted.brief import Brief, Wish, content_words, read_brief

_SHOPS_SEARCHED = 2
_Q_CHARS = 200
_HITS_CITED = 3
_WISH_CHARS = 160
_TITLE_WORD = re.compile(r"[a-z0-9]+")
_MISSED_WORD, _MISSED_CONSTRAINT = 2, 3  # what a missed name word or constraint weighs
_FAR = 1_000  # heavier than any fit


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """How thoroughly a level shops."""

    name_words: int = 99  # how many words of a wish's name it searches for, counted from the end, where the noun stands
    minds_terms: bool = True  # sends price and service filters, and minds that products may have to come from one shop
    candidates: int = 0  # hits per wish whose details are read; 0 reads none
    analyses: bool = False  # says what it found
    is_thorough: bool = False  # ranks hits by how they fit, searches twice, compares in writing, verifies at the end
    is_concise: bool = False  # says one sentence in all, which compares what it takes with what it leaves


LEVELS: dict[str, Skill] = {  # what an endpoint lists
    "scripted-expert": Skill(candidates=4, analyses=True, is_thorough=True),
    "scripted-careful": Skill(name_words=2, candidates=2, analyses=True),
    "scripted-hasty": Skill(name_words=1, minds_terms=False),
}
CONCISE = "scripted-concise"  # for small models to learn from: everything it does fits 200 tokens
SKILLS: dict[str, Skill] = {**LEVELS, CONCISE: Skill(is_concise=True)}


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


class _Row(msgspec.Struct):
    """A product of a tool's result, as far as it is read."""

    product_id: str
    shop_id: str = ""
    title: str = ""
    price: int | float = 0
    service: list[str] = []
    sku_options: dict[str, dict[str, str]] = {}
    attributes: dict[str, list[str]] = {}


class _Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One search hit. `rank` counts hits of its wish from 1; `price` is its JSON text, to be quoted verbatim. Once
    viewed: options and attributes by the phrase `key value` in which a request would say them."""

    product_id: str
    shop_id: str
    title: str
    price: str
    services: tuple[str, ...]
    rank: int
    is_viewed: bool = False
    options: tuple[dict[str, _Pair], ...] = ()
    attributes: dict[str, _Pair] = {}

    @property
    def price_php(self) -> float:
        return float(self.price)

    def pairs(self, asked: Iterable[str]) -> dict[str, _Pair]:
        """The attributes together with the one option that meets most of the `asked` phrases."""
        wanted, none = frozenset(asked), dict[str, _Pair]()
        best = max((none, *self.options), key=lambda option: len(wanted & (option.keys() | self.attributes.keys())))
        return {**self.attributes, **best}

    def viewed(self, row: _Row | None) -> _Offer:
        """With what a view of it says."""
        if row is None:
            return self
        attributes = _phrases((key, value) for key, values in row.attributes.items() for value in values)
        options = tuple(_phrases(option.items()) for option in row.sku_options.values())
        return msgspec.structs.replace(self, is_viewed=True, options=options, attributes=attributes)

    def __str__(self) -> str:
        return f'{self.product_id} "{self.title}" at {self.price} PHP from shop {self.shop_id}'


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
    """One shopping trip. `_pools` holds, per wish, every offer found so far."""

    def __init__(self, brief: Brief, skill: Skill, has_tool: Callable[[str], bool]) -> None:
        self._brief = brief
        self._skill = skill
        self._has_tool = has_tool
        self._pools: list[list[_Offer]] = [[] for _ in brief.wishes]
        self._ranked: dict[int, Sequence[_Fit]] = {}  # per wish, until its pool changes
        self._notes: list[str] = []  # said with the next turn

    def run(self) -> Program:
        self._say_plan()
        yield from self._search([(index, self._query(wish)) for index, wish in enumerate(self._brief.wishes)])
        yield from self._read_details(range(len(self._pools)))
        if self._skill.is_thorough:
            yield from self._search_again()
            if self._brief.is_one_shop:
                yield from self._search_in_shops()
        chosen = self._choose()
        for index, fit in chosen:
            self._say(self._why(index, fit))
        if self._skill.is_thorough:
            yield from self._verify(chosen)
        offers = [fit.offer for _, fit in chosen]
        ids = [offer.product_id for offer in offers]
        if self._skill.is_concise:
            self._notes.append(_prefer(offers[0], self._fits(chosen[0][0])) if chosen else "Nothing was found.")
        elif self._skill.analyses:
            self._say(f"The choice is settled: {', '.join(ids)}, in the order of the request.")
        else:
            self._notes.append("Recommending.")
        yield from self._turn(_call("recommend_product", product_ids=",".join(ids)))
        self._say("The recommendation is made and nothing is left to check, so I finish.")
        status = "success" if len(chosen) == len(self._brief.wishes) else "failure"
        yield from self._turn(_call("terminate", status=status))

    def _search(self, queries: Iterable[tuple[int, dict[str, Any]]]) -> Program:
        """Search once per (wish index, arguments) in one turn, and add what is found to the pools."""
        queries = list(queries)
        results = yield from self._turn(*(_call("find_product", **arguments) for _, arguments in queries))
        for (index, _), result in zip(queries, results, strict=True):
            offers = _read_offers(result, 1 + len(self._pools[index]))
            self._add(index, offers)
            if offers:
                cited = "; ".join(map(str, offers[: _HITS_CITED if self._skill.is_thorough else 1]))
                self._say(f"Product {index + 1}: {len(offers)} hits, the first of them {cited}.")
            else:
                self._say(f"Product {index + 1}: this search found nothing.")

    def _query(
        self, wish: Wish, *, with_values: bool = False, with_filters: bool = True, **more: str
    ) -> dict[str, Any]:
        terms = list(wish.name[-self._skill.name_words :])
        if with_values:
            terms += [word for phrase in wish.phrases for word in phrase.split()[1:]]
        page = {} if self._skill.is_concise else {"page": 1}
        arguments: dict[str, Any] = {"q": " ".join(terms)[:_Q_CHARS], **page, **more}
        if with_filters and self._skill.minds_terms:
            filters = {"price": wish.price_filter, "service": ",".join(wish.services)}
            arguments |= {name: value for name, value in filters.items() if value}
        return arguments

    def _read_details(self, indexes: Iterable[int]) -> Program:
        """View the most promising offers that were not viewed yet, all wishes in one call."""
        if not self._has_tool("view_product_information"):
            return
        best = (fit.offer for index in indexes for fit in self._fits(index)[: self._skill.candidates])
        unread = dict.fromkeys(offer.product_id for offer in best if not offer.is_viewed)
        if not unread:
            return
        self._say("Titles and prices alone do not settle the options and attributes, so I look at the details.")
        (result,) = yield from self._turn(_call("view_product_information", product_ids=",".join(unread)))
        rows = {row.product_id: row for row in _rows(result)}
        self._pools = [[offer.viewed(rows.get(offer.product_id)) for offer in pool] for pool in self._pools]
        self._ranked.clear()

    def _search_again(self) -> Program:
        """For wishes that no candidate meets: the same words plus the values of options and attributes.

        Where nothing was found at all the filters are left out, since one of them may have been misread.
        """
        queries = []
        for index, wish in enumerate(self._brief.wishes):
            best = next(iter(self._fits(index)), None)
            if best is None:
                self._say(f"Nothing fits '{' '.join(wish.name)}' yet, so I search again without filters.")
            elif best.miss:
                self._say(
                    f"The best candidate so far, {best.offer}, lacks: {', '.join(best.missed)}. "
                    "I search again with the option and attribute values among the words."
                )
            else:
                continue
            queries.append((index, self._query(wish, with_values=True, with_filters=best is not None)))
        if queries:
            yield from self._search(queries)
            yield from self._read_details(index for index, _ in queries)

    def _search_in_shops(self) -> Program:
        """Inside the shops that cover most, look for what they seem to lack."""
        if any(self._lacking(shop_id) for shop_id in self._best_shops()[:1]):
            yield from self._ask_for_shop()
        wanted = len(self._pools)
        for shop_id in self._best_shops()[:_SHOPS_SEARCHED]:
            lacking = self._lacking(shop_id)
            if not lacking:
                return
            self._say(
                f"Shop {shop_id} has a fitting offer for {wanted - len(lacking)} of the {wanted} products, "
                "more than any other shop found."
            )
            wishes = self._brief.wishes
            yield from self._search([(index, self._query(wishes[index], shop_id=shop_id)) for index in lacking])
            yield from self._read_details(lacking)

    def _lacking(self, shop_id: str) -> list[int]:
        """The wishes that no offer of the shop meets in full."""
        best = (
            min((fit.miss for fit in self._fits(index) if fit.offer.shop_id == shop_id), default=_FAR)
            for index in range(len(self._pools))
        )
        return [index for index, miss in enumerate(best) if miss]

    def _ask_for_shop(self) -> Program:
        """Let find_products_in_same_shop propose a shop that sells something for every wish."""
        if not self._has_tool("find_products_in_same_shop"):
            return
        queries = [self._query(wish) for wish in self._brief.wishes]
        for query in queries:
            query.pop("page", None)
        self._say("No shop found so far sells a fitting offer for every product, so I ask for one that sells all.")
        (result,) = yield from self._turn(_call("find_products_in_same_shop", product_queries=foreign_text(queries)))
        offers = _read_offers(result.get("products") if isinstance(result, dict) else None)
        for index, offer in enumerate(offers[: len(self._pools)]):
            self._add(index, [msgspec.structs.replace(offer, rank=1 + len(self._pools[index]))])
        yield from self._read_details(range(len(self._pools)))

    def _choose(self) -> list[tuple[int, _Fit]]:
        """The best fit per wish, inside one shop where that is asked, within the budget where there is one."""
        fits = [list(self._fits(index)) for index in range(len(self._pools))]
        if self._brief.is_one_shop and self._skill.minds_terms:
            for shop_id in self._best_shops()[:1]:
                fits = [[fit for fit in row if fit.offer.shop_id == shop_id] or row for row in fits]
        chosen = [(index, row[0]) for index, row in enumerate(fits) if row]
        terms, total_php = self._brief.voucher, sum(fit.offer.price_php for _, fit in chosen)
        if terms is None or not self._skill.is_thorough:
            return chosen
        if min(total_php, terms.after_php(total_php)) <= terms.budget_php:
            return chosen
        return [
            (index, min((fit for fit in fits[index] if fit.miss <= best.miss), key=lambda fit: fit.offer.price_php))
            for index, best in chosen
        ]

    def _best_shops(self) -> list[str]:
        """Shops by how little their best offers miss over all wishes."""
        least: dict[str, list[int]] = {}  # by shop, for each wish
        for index in range(len(self._pools)):
            for fit in self._fits(index):
                of_shop = least.setdefault(fit.offer.shop_id, [_FAR] * len(self._pools))
                of_shop[index] = min(fit.miss, of_shop[index])
        return sorted(least, key=lambda shop: (sum(least[shop]), shop))

    def _verify(self, chosen: Sequence[tuple[int, _Fit]]) -> Program:
        """Check what was chosen with the tools that can tell, all in one turn."""
        calls: list[WrittenCall] = []
        for index, fit in chosen if self._has_tool("check_product_match") else ():
            asked = _pairs_to_check(self._brief.wishes[index], fit.offer)
            if asked:
                product_id, requirements = fit.offer.product_id, foreign_text(asked)
                calls.append(_call("check_product_match", product_id=product_id, requirements=requirements))
        if self._brief.voucher is not None and chosen and self._has_tool("calculate_voucher"):
            calls.append(self._voucher_call([fit.offer for _, fit in chosen]))
        if calls:
            results = yield from self._turn(*calls)
            for call, result in zip(calls, results, strict=True):
                self._say(_check(call.name, result))

    def _voucher_call(self, offers: Sequence[_Offer]) -> WrittenCall:
        terms = self._brief.voucher
        assert terms is not None
        total_php = sum(offer.price_php for offer in offers)
        after_php = terms.after_php(total_php)
        relation = "within" if min(total_php, after_php) <= terms.budget_php else "over"
        self._say(
            f"Together they cost {total_php:.2f} PHP and {after_php:.2f} PHP after the voucher, "
            f"which is {relation} the budget of {terms.budget_php:g} PHP. I check this with the voucher tool."
        )
        arguments: dict[str, object] = {
            "product_prices": ",".join(offer.price for offer in offers),
            "voucher_type": "fixed" if terms.percent is None else "percentage",
            "discount_value": (terms.face_value_php or 0.0) if terms.percent is None else terms.percent,
            "threshold": terms.threshold_php,
            "budget": terms.budget_php,
        }
        if terms.cap_php is not None:
            arguments["cap"] = terms.cap_php
        if terms.scope == "shop":
            arguments["shop_ids"] = ",".join(offer.shop_id for offer in offers)
        return _call("calculate_voucher", **arguments)

    def _turn(self, *calls: WrittenCall) -> Generator[ShopperTurn, list[Any], list[Any]]:
        think, self._notes = "\n".join(self._notes), []
        results = yield ShopperTurn(think=think, calls=calls)
        return results

    def _fits(self, index: int) -> Sequence[_Fit]:
        """Offers for one wish, best first; without weighing the search's own order stands. Of an offer found by several
        searches the first counts."""
        if index not in self._ranked:
            first: dict[str, _Offer] = {}
            for offer in self._pools[index]:
                first.setdefault(offer.product_id, offer)
            fits = [_weigh(self._brief.wishes[index], offer) for offer in first.values()]
            if self._skill.is_thorough:
                fits.sort(key=lambda fit: (fit.miss, fit.offer.rank, fit.offer.product_id))
            self._ranked[index] = fits
        return self._ranked[index]

    def _add(self, index: int, offers: Iterable[_Offer]) -> None:
        self._pools[index] += offers
        self._ranked.pop(index, None)

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
            self._say(f"The total after the voucher must stay within the budget of {brief.voucher.budget_php:g} PHP.")
        self._say("I start by searching for the words that describe each product itself.")

    def _why(self, index: int, fit: _Fit) -> str:
        chosen = fit.offer
        said = f"Product {index + 1}: I take {chosen}."
        said += f" It meets: {', '.join(fit.met)}." if fit.met else ""
        said += f" It does not show: {', '.join(fit.missed)}." if fit.missed else ""
        if not self._skill.is_thorough:
            return said
        other = next((one for one in self._fits(index) if one.offer.product_id != chosen.product_id), None)
        if other is None:
            return f"{said} No other candidate came up for it."
        said += f" Compared with {other.offer}:"
        if ahead := [term for term in other.missed if term in fit.met]:
            return f"{said} that one lacks {', '.join(ahead)}, which the chosen one has, so the chosen one is better."
        prices = f"{chosen.price} PHP against {other.offer.price} PHP"
        if chosen.price_php <= other.offer.price_php:
            return f"{said} both fit equally well, and the chosen one is not dearer ({prices})."
        return f"{said} both fit equally well ({prices}), but the search ranks the chosen one higher."


def _prefer(taken: _Offer, fits: Sequence[_Fit]) -> str:
    other = next((fit.offer for fit in fits if fit.offer.product_id != taken.product_id), None)
    mine = f"{taken.product_id} at {taken.price} PHP"
    if other is None:
        return f"{mine} is the only hit."
    left = f"{other.title} at {other.price} PHP"
    if taken.rank < other.rank:
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


def _rows(result: object) -> list[_Row]:
    """The products of a result; none of one in another shape."""
    try:
        return msgspec.convert(result, list[_Row])
    except msgspec.ValidationError:
        return []


def _read_offers(result: object, first_rank: int = 1) -> list[_Offer]:
    """Search hits in order."""
    return [
        _Offer(
            product_id=row.product_id,
            shop_id=row.shop_id,
            title=row.title,
            price=orjson.dumps(row.price).decode(),
            services=tuple(row.service),
            rank=rank,
        )
        for rank, row in enumerate(_rows(result), first_rank)
    ]


def _phrases(pairs: Iterable[tuple[str, str]]) -> dict[str, _Pair]:
    return {f"{key.replace('_', ' ')} {value}": (key, value) for key, value in pairs}


def _weigh(wish: Wish, offer: _Offer) -> _Fit:
    """How `offer` fits `wish`, as far as it is known: without details, option and attribute phrases count as missed."""
    terms = [(service, service in offer.services) for service in wish.services]
    if wish.price_filter:
        low, high = wish.price_low_php or 0.0, float("inf") if wish.price_high_php is None else wish.price_high_php
        terms.append((f"price {wish.price_filter}", low <= offer.price_php <= high))
    known = offer.pairs(wish.phrases)
    terms += [(phrase, phrase in known) for phrase in wish.phrases]
    words = _name_words(wish, offer)
    miss = _MISSED_WORD * sum(not met for _, met in words) + _MISSED_CONSTRAINT * sum(not met for _, met in terms)
    known_of = tuple(tuple(said for said, met in (*words, *terms) if met is is_met) for is_met in (True, False))
    return _Fit(offer, miss, *known_of)


def _name_words(wish: Wish, offer: _Offer) -> list[tuple[str, bool]]:
    """Each name word and whether the title has it; for free prose, options and attributes count as well."""
    said = _title_words(offer.title)
    if wish.phrases:
        return [(word, word in said) for word in wish.name]
    phrases = (phrase for known in (offer.attributes, *offer.options) for phrase in known)
    words = said.union(word for phrase in phrases for word in content_words(phrase))
    words |= {_singular(word) for word in words}
    return [(word, _singular(word) in words) for word in wish.name]


def _pairs_to_check(wish: Wish, offer: _Offer) -> dict[str, str]:
    """The pairs of the offer that the wish asks for, by key: requirements worth checking with the tool."""
    offered = offer.pairs(wish.phrases)
    if wish.phrases:
        return dict(offered[phrase] for phrase in wish.phrases if phrase in offered)
    said = f" {' '.join(wish.name)} "
    return dict(pair for pair in offered.values() if f" {pair[1]} " in said)


@functools.lru_cache(maxsize=4_096)
def _title_words(title: str) -> frozenset[str]:
    return frozenset(_TITLE_WORD.findall(title.lower()))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word
