"""How the scripted model shops: a generator that yields turns and is sent their results.

It reads as one story (search, read details, search again, settle on a shop, verify, recommend, terminate) and
depends only on the request and the results, so a replay from the start gives the same turns. It calls only tools that
are on offer. It never gives up without a recommendation when a search found anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from foundation.canonical import foreign_text
from harness.inference.scripted.brief import Brief, Wish, read_brief
from harness.inference.scripted.offers import (
    FAR,
    Fit,
    Offer,
    pairs_to_check,
    rank_offers,
    read_details,
    read_offers,
    with_details,
)

_SHOPS_SEARCHED = 2
_Q_CHARS = 200
_HITS_CITED = 3
_WISH_CHARS = 160


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


def shop(question: str, skill: Skill, has_tool: Callable[[str], bool]) -> Program:
    """The shopping program for `question` at one skill level, with the tools that are on offer."""
    return _Shopper(read_brief(question), skill, has_tool).run()


class _Shopper:
    """One shopping trip. `_pools` holds, per wish, every offer found so far."""

    def __init__(self, brief: Brief, skill: Skill, has_tool: Callable[[str], bool]) -> None:
        self._brief = brief
        self._skill = skill
        self._has_tool = has_tool
        self._pools: list[list[Offer]] = [[] for _ in brief.wishes]
        self._ranked: dict[int, Sequence[Fit]] = {}  # per wish, until its pool changes
        self._notes: list[str] = []  # said with the next turn

    def run(self) -> Program:
        self._notes.append(_say_plan(self._brief, self._skill))
        yield from self._search([(index, self._query(wish)) for index, wish in self._numbered()])
        yield from self._read_details()
        if self._skill.is_thorough:
            yield from self._search_again()
            if self._brief.is_one_shop:
                yield from self._search_in_shops()
        chosen = self._choose()
        for index, fit in chosen:
            self._notes.append(_say_choice(index + 1, self._fits(index), fit, self._skill))
        if self._skill.is_thorough:
            yield from self._verify(chosen)
        fits = [fit for _, fit in chosen]
        if self._skill.is_concise:
            self._notes.append(_say_preference(fits[:1], self._fits(chosen[0][0]) if chosen else ()))
        else:
            self._notes.append(_say_recommendation(fits, self._skill))
        yield from self._turn(_call("recommend_product", product_ids=",".join(fit.offer.product_id for fit in fits)))
        status = "success" if len(fits) == len(self._brief.wishes) else "failure"
        self._notes.append(_say_end(self._skill))
        yield from self._turn(_call("terminate", status=status))

    # -- finding

    def _search(self, queries: Iterable[tuple[int, dict[str, Any]]]) -> Program:
        """Search once per (wish index, arguments) in one turn, and add what is found to the pools."""
        queries = list(queries)
        results = yield from self._turn(*(_call("find_product", **arguments) for _, arguments in queries))
        for (index, _), result in zip(queries, results, strict=True):
            offers = read_offers(result, 1 + len(self._pools[index]))
            self._add(index, offers)
            self._notes.append(_say_hits(index + 1, offers, self._skill))

    def _query(
        self, wish: Wish, *, with_values: bool = False, with_filters: bool = True, **more: str
    ) -> dict[str, Any]:
        terms = list(wish.name[-self._skill.name_words :])
        if with_values:
            terms += [word for phrase in wish.phrases for word in phrase.split()[1:]]
        arguments: dict[str, Any] = {"q": " ".join(terms)[:_Q_CHARS], "page": 1, **more}
        if self._skill.is_concise:
            del arguments["page"]
        is_filtered = with_filters and self._skill.minds_terms
        if is_filtered and wish.price_filter:
            arguments["price"] = wish.price_filter
        if is_filtered and wish.services:
            arguments["service"] = ",".join(wish.services)
        return arguments

    def _read_details(self, indexes: Iterable[int] | None = None) -> Program:
        """View the most promising offers that were not viewed yet, all wishes in one call."""
        if not self._skill.candidates or not self._has_tool("view_product_information"):
            return
        unread: list[str] = []
        for index in range(len(self._pools)) if indexes is None else indexes:
            best = [fit.offer for fit in self._fits(index)][: self._skill.candidates]
            unread += [offer.product_id for offer in best if offer.details is None]
        if not unread:
            return
        asked = ",".join(dict.fromkeys(unread))
        self._notes.append(_say_reading())
        (result,) = yield from self._turn(_call("view_product_information", product_ids=asked))
        details = read_details(result)
        self._pools = [with_details(pool, details) for pool in self._pools]
        self._ranked.clear()

    def _search_again(self) -> Program:
        """For wishes that no candidate meets: the same words plus the values of options and attributes.

        Where nothing was found at all the filters are left out, since one of them may have been misread.
        """
        queries = []
        for index, wish in self._numbered():
            best = next(iter(self._fits(index)), None)
            if best is not None and not best.miss:
                continue
            self._notes.append(_say_again(wish, best))
            queries.append((index, self._query(wish, with_values=True, with_filters=best is not None)))
        if queries:
            yield from self._search(queries)
            yield from self._read_details(index for index, _ in queries)

    def _search_in_shops(self) -> Program:
        """Inside the shops that cover most, look for what they seem to lack."""
        if any(self._lacking(shop_id) for shop_id in self._best_shops()[:1]):
            yield from self._ask_for_shop()
        for shop_id in self._best_shops()[:_SHOPS_SEARCHED]:
            lacking = self._lacking(shop_id)
            if not lacking:
                return
            covered = len(self._brief.wishes) - len(lacking)
            self._notes.append(_say_shop(shop_id, len(self._brief.wishes), covered))
            yield from self._search((index, self._query(wish, shop_id=shop_id)) for index, wish in lacking)
            yield from self._read_details(index for index, _ in lacking)

    def _lacking(self, shop_id: str) -> list[tuple[int, Wish]]:
        """The wishes that no offer of the shop meets in full."""
        lacking: list[tuple[int, Wish]] = []
        for index, wish in self._numbered():
            if min((fit.miss for fit in self._fits(index) if fit.offer.shop_id == shop_id), default=FAR):
                lacking.append((index, wish))
        return lacking

    def _ask_for_shop(self) -> Program:
        """Let find_products_in_same_shop propose a shop that sells something for every wish."""
        if not self._has_tool("find_products_in_same_shop"):
            return
        fields = ("q", "price", "service")
        queries = [
            {key: value for key, value in self._query(wish).items() if key in fields} for _, wish in self._numbered()
        ]
        self._notes.append(
            "No shop found so far sells a fitting offer for every product, so I ask for one that sells all."
        )
        (result,) = yield from self._turn(_call("find_products_in_same_shop", product_queries=foreign_text(queries)))
        products = result.get("products") if isinstance(result, dict) else None
        for index, offer in enumerate(read_offers(products)[: len(self._pools)]):
            self._add(index, (msgspec.structs.replace(offer, rank=1 + len(self._pools[index])),))
        yield from self._read_details()

    # -- choosing

    def _choose(self) -> list[tuple[int, Fit]]:
        """The best fit per wish, inside one shop where that is asked, within the budget where there is one."""
        fits = [self._fits(index) for index in range(len(self._pools))]
        if self._brief.is_one_shop and self._skill.minds_terms:
            for shop_id in self._best_shops()[:1]:
                fits = [[fit for fit in row if fit.offer.shop_id == shop_id] or row for row in map(list, fits)]
        chosen = [(index, row[0]) for index, row in enumerate(fits) if row]
        terms, total_php = self._brief.voucher, sum(fit.offer.price_php for _, fit in chosen)
        if (
            terms is None
            or not self._skill.is_thorough
            or min(total_php, terms.after_php(total_php)) <= terms.budget_php
        ):
            return chosen
        return [
            (index, min((fit for fit in fits[index] if fit.miss <= best.miss), key=lambda fit: fit.offer.price_php))
            for index, best in chosen
        ]

    def _best_shops(self) -> list[str]:
        """Shops by how little their best offers miss over all wishes."""
        least: dict[str, dict[int, int]] = {}  # by shop, then wish
        for index in range(len(self._pools)):
            for fit in self._fits(index):
                by_wish = least.setdefault(fit.offer.shop_id, {})
                by_wish[index] = min(fit.miss, by_wish.get(index, FAR))
        wishes = len(self._pools)
        return sorted(least, key=lambda shop: (sum(least[shop].values()) + FAR * (wishes - len(least[shop])), shop))

    # -- verifying

    def _verify(self, chosen: Sequence[tuple[int, Fit]]) -> Program:
        """Check what was chosen with the tools that can tell, all in one turn."""
        calls: list[WrittenCall] = []
        for index, fit in chosen if self._has_tool("check_product_match") else ():
            asked = pairs_to_check(self._brief.wishes[index], fit.offer)
            if asked:
                product_id, requirements = fit.offer.product_id, foreign_text(asked)
                calls.append(_call("check_product_match", product_id=product_id, requirements=requirements))
        calls += self._voucher_calls([fit for _, fit in chosen])
        if calls:
            results = yield from self._turn(*calls)
            self._notes += [_say_check(call.name, result) for call, result in zip(calls, results, strict=True)]

    def _voucher_calls(self, fits: Sequence[Fit]) -> Iterator[WrittenCall]:
        terms = self._brief.voucher
        if terms is None or not fits or not self._has_tool("calculate_voucher"):
            return
        total_php = sum(fit.offer.price_php for fit in fits)
        self._notes.append(_say_bill(total_php, terms.after_php(total_php), terms.budget_php))
        arguments: dict[str, object] = {
            "product_prices": ",".join(fit.offer.price for fit in fits),
            "voucher_type": "fixed" if terms.percent is None else "percentage",
            "discount_value": (terms.face_value_php or 0.0) if terms.percent is None else terms.percent,
            "threshold": terms.threshold_php,
            "budget": terms.budget_php,
        }
        if terms.cap_php is not None:
            arguments["cap"] = terms.cap_php
        if terms.scope == "shop":
            arguments["shop_ids"] = ",".join(fit.offer.shop_id for fit in fits)
        yield _call("calculate_voucher", **arguments)

    # -- speaking

    def _turn(self, *calls: WrittenCall) -> Generator[ShopperTurn, list[Any], list[Any]]:
        think, self._notes = "\n".join(note for note in self._notes if note), []
        results = yield ShopperTurn(think=think, calls=calls)
        return results

    def _fits(self, index: int) -> Sequence[Fit]:
        """Offers for one wish, best first; without weighing the search's own order stands."""
        if index not in self._ranked:
            fits = rank_offers(self._brief.wishes[index], self._pools[index])
            self._ranked[index] = fits if self._skill.is_thorough else sorted(fits, key=lambda fit: fit.offer.rank)
        return self._ranked[index]

    def _add(self, index: int, offers: Iterable[Offer]) -> None:
        self._pools[index] += offers
        self._ranked.pop(index, None)

    def _numbered(self) -> list[tuple[int, Wish]]:
        return list(enumerate(self._brief.wishes))


def _call(name: str, **arguments: object) -> WrittenCall:
    return WrittenCall(name=name, arguments=arguments)


# What it says: visible reasoning. Everything cited is in a tool result of the same conversation, letter by letter.


def _say_plan(brief: Brief, skill: Skill) -> str:
    if skill.is_concise:
        return ""
    if not skill.analyses:
        return "Searching."
    lines = [f"The request asks for {len(brief.wishes)} product(s) ({brief.bucket} request)."]
    for number, wish in enumerate(brief.wishes, 1):
        bounds = [f"price filter {wish.price_filter}"] if wish.price_filter else []
        bounds += [f"service {name}" for name in wish.services]
        lines.append(f"{number}. {wish.text[:_WISH_CHARS]}" + (f" [{', '.join(bounds)}]" if bounds else ""))
    if brief.is_one_shop:
        lines.append("All of them must come from one shop, so the shop_id has to be the same for each.")
    if brief.voucher is not None:
        lines.append(f"The total after the voucher must stay within the budget of {brief.voucher.budget_php:g} PHP.")
    lines.append("I start by searching for the words that describe each product itself.")
    return "\n".join(lines)


def _say_hits(number: int, offers: Sequence[Offer], skill: Skill) -> str:
    if not skill.analyses:
        return ""
    if not offers:
        return f"Product {number}: this search found nothing."
    cited = "; ".join(_cite(offer) for offer in offers[: _HITS_CITED if skill.is_thorough else 1])
    return f"Product {number}: {len(offers)} hits, the first of them {cited}."


def _say_reading() -> str:
    return "Titles and prices alone do not settle the options and attributes, so I look at the details."


def _say_again(wish: Wish, best: Fit | None) -> str:
    if best is None:
        return f"Nothing fits '{' '.join(wish.name)}' yet, so I search again without filters."
    lacking = ", ".join(best.missed)
    return (
        f"The best candidate so far, {_cite(best.offer)}, lacks: {lacking}. "
        "I search again with the option and attribute values among the words."
    )


def _say_choice(number: int, fits: Sequence[Fit], chosen: Fit, skill: Skill) -> str:
    if not skill.analyses:
        return ""
    taken = f"Product {number}: I take {_cite(chosen.offer)}."
    met = f" It meets: {', '.join(chosen.met)}." if chosen.met else ""
    lacking = f" It does not show: {', '.join(chosen.missed)}." if chosen.missed else ""
    said = taken + met + lacking
    if not skill.is_thorough:
        return said
    other = next((fit for fit in fits if fit.offer.product_id != chosen.offer.product_id), None)
    if other is None:
        return f"{said} No other candidate came up for it."
    said += f" Compared with {_cite(other.offer)}:"
    ahead = [term for term in other.missed if term in chosen.met]
    if ahead:
        return f"{said} that one lacks {', '.join(ahead)}, which the chosen one has, so the chosen one is better."
    prices = f"{chosen.offer.price} PHP against {other.offer.price} PHP"
    if chosen.offer.price_php <= other.offer.price_php:
        return f"{said} both fit equally well, and the chosen one is not dearer ({prices})."
    return f"{said} both fit equally well ({prices}), but the search ranks the chosen one higher."


def _say_shop(shop_id: str, wanted: int, covered: int) -> str:
    return f"Shop {shop_id} has a fitting offer for {covered} of the {wanted} products, more than any other shop found."


def _say_bill(total_php: float, after_php: float, budget_php: float) -> str:
    relation = "within" if min(total_php, after_php) <= budget_php else "over"
    return (
        f"Together they cost {total_php:.2f} PHP and {after_php:.2f} PHP after the voucher, "
        f"which is {relation} the budget of {budget_php:g} PHP. I check this with the voucher tool."
    )


def _say_check(tool: str, result: object) -> str:
    if not isinstance(result, dict) or "error" in result:
        return f"{tool} gave no usable answer; I rely on what I read."
    if tool == "calculate_voucher":
        return (
            f"calculate_voucher: total_before {result.get('total_before')}, total_after {result.get('total_after')}, "
            f"within_budget {_truth(result.get('within_budget'))}."
        )
    summary = result.get("product_summary")
    product_id = summary.get("product_id", "") if isinstance(summary, dict) else ""
    return f"check_product_match for {product_id}: matched {_truth(result.get('matched'))}."


def _say_end(skill: Skill) -> str:
    return "The recommendation is made and nothing is left to check, so I finish." if skill.analyses else ""


def _say_recommendation(chosen: Sequence[Fit], skill: Skill) -> str:
    if not skill.analyses:
        return "Recommending."
    ids = ", ".join(fit.offer.product_id for fit in chosen)
    return f"The choice is settled: {ids}, in the order of the request."


def _say_preference(chosen: Sequence[Fit], fits: Sequence[Fit]) -> str:
    if not chosen:
        return "Nothing was found."
    taken = chosen[0].offer
    other = next((fit.offer for fit in fits if fit.offer.product_id != taken.product_id), None)
    mine = f"{taken.product_id} at {taken.price} PHP"
    if other is None:
        return f"{mine} is the only hit."
    left = f"{other.title} at {other.price} PHP"
    if taken.rank < other.rank:
        return f"{mine} ranks above {left}, so I prefer it."
    return f"{mine} fits shop {taken.shop_id}, unlike {left}."


def _cite(offer: Offer) -> str:
    return f'{offer.product_id} "{offer.title}" at {offer.price} PHP from shop {offer.shop_id}'


def _truth(value: object) -> str:
    return "true" if value is True else "false"
