"""What the scripted model says while it shops: visible reasoning, with prices and attributes quoted verbatim.

Everything cited is in a tool result of the same conversation, letter by letter. How much is said is the
skill's: the expert compares candidates, the careful one cites what it takes, the hasty one says next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.inference.scripted.offers import Fit, Offer
from harness.inference.scripted_brief import Brief, Skill, Wish

_HITS_CITED = 3
_WISH_CHARS = 160


def say_plan(brief: Brief, skill: Skill) -> str:
    """Before the first search."""
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


def say_hits(number: int, offers: Sequence[Offer], skill: Skill) -> str:
    """After the search for wish `number`."""
    if not skill.analyses:
        return ""
    if not offers:
        return f"Product {number}: this search found nothing."
    cited = "; ".join(_cite(offer) for offer in offers[: _HITS_CITED if skill.compares else 1])
    return f"Product {number}: {len(offers)} hits, the first of them {cited}."


def say_reading() -> str:
    """Before details are read."""
    return "Titles and prices alone do not settle the options and attributes, so I look at the details."


def say_again(wish: Wish, best: Fit | None) -> str:
    """Before a second search for one wish."""
    if best is None:
        return f"Nothing fits '{' '.join(wish.name)}' yet, so I search again without filters."
    lacking = ", ".join(best.missed)
    return (
        f"The best candidate so far, {_cite(best.offer)}, lacks: {lacking}. "
        "I search again with the option and attribute values among the words."
    )


def say_choice(number: int, fits: Sequence[Fit], chosen: Fit, skill: Skill) -> str:
    """Why one candidate is taken for one wish."""
    if not skill.analyses:
        return ""
    taken = f"Product {number}: I take {_cite(chosen.offer)}."
    met = f" It meets: {', '.join(chosen.met)}." if chosen.met else ""
    lacking = f" It does not show: {', '.join(chosen.missed)}." if chosen.missed else ""
    said = taken + met + lacking
    if not skill.compares:
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


def say_shop(shop_id: str, wanted: int, covered: int) -> str:
    """Which shop is chosen when one must sell everything."""
    return f"Shop {shop_id} has a fitting offer for {covered} of the {wanted} products, more than any other shop found."


def say_bill(total_php: float, after_php: float, budget_php: float) -> str:
    """The voucher arithmetic before it is checked by the tool."""
    relation = "within" if min(total_php, after_php) <= budget_php else "over"
    return (
        f"Together they cost {total_php:.2f} PHP and {after_php:.2f} PHP after the voucher, "
        f"which is {relation} the budget of {budget_php:g} PHP. I check this with the voucher tool."
    )


def say_check(tool: str, result: object) -> str:
    """What a verifying tool answered."""
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


def say_end(skill: Skill) -> str:
    """With terminate."""
    return "The recommendation is made and nothing is left to check, so I finish." if skill.analyses else ""


def say_recommendation(chosen: Sequence[Fit], skill: Skill) -> str:
    """With the recommendation."""
    if not skill.analyses:
        return "Recommending."
    ids = ", ".join(fit.offer.product_id for fit in chosen)
    return f"The choice is settled: {ids}, in the order of the request."


def say_preference(chosen: Sequence[Fit], fits: Sequence[Fit]) -> str:
    """The concise skill's one sentence: the first of the `chosen` against another hit of its search."""
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
