"""What decided a race, as sentences that each link to what they follow from. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from arena.api.reads.answers import PairResult
from arena.policy import PromotionRules
from arena.race.settlement.promotion import margin_e4
from arena.race.settlement.provenance import policy_of
from arena.records.model import SettlementRecord, Standing
from arena.web.model import Leader, Reason
from foundation.errors import ArenaError

DECIDING = 6  # problems named on each side
_Scored = Mapping[str, Mapping[str, PairResult]]  # by problem and agent


def reasons(
    settlement: SettlementRecord,
    leaders: Sequence[Leader],
    results: Mapping[str, Sequence[PairResult]],
    now_ms: int,
    *,
    is_open: bool,
) -> Iterator[Reason]:
    """Why the first is before the second, why the top is who it is, and what it takes to take the top today.

    `results`: of the race, as far as they are public; `is_open`: their traces are public, too.
    """
    race_id = settlement.race_id
    counted = {name: _first(given) for name, given in results.items() if name not in settlement.void}
    if len(leaders) > 1:
        first, second = leaders[0], leaders[1]
        gap_e4 = first.standing.race_score_e4 - second.standing.race_score_e4
        yield Reason(
            text=f"{first.agent.name} scored {_share(gap_e4)} more than {second.agent.name}:"
            f" {_interval(first.standing)} against {_interval(second.standing)}.",
            links=((f"/v1/races/{race_id}/leaderboard", "standings"),),
        )
        yield from _duel(race_id, first, second, counted, is_open=is_open)
        yield from _axes(race_id, (first, second), counted)
    yield from _top(settlement, leaders)
    yield from _margin(settlement, now_ms)


def _first(given: Sequence[PairResult]) -> dict[str, PairResult]:
    """The first result of each agent."""
    found: dict[str, PairResult] = {}
    for one in given:
        found.setdefault(one.agent_version_id, one)
    return found


def _score_e4(one: PairResult) -> int:
    return (one.coefficient_e4 or 0) if one.is_success else 0


def _duel(race_id: str, first: Leader, second: Leader, counted: _Scored, *, is_open: bool) -> Iterator[Reason]:
    mine, theirs = first.agent.agent_version_id, second.agent.agent_version_id
    both = {name: pair for name, pair in sorted(counted.items()) if mine in pair and theirs in pair}
    for better, worse, who in ((mine, theirs, first), (theirs, mine, second)):
        won = [name for name, pair in both.items() if _score_e4(pair[better]) > _score_e4(pair[worse])]
        if not won:
            continue
        links = []
        for name in won[:DECIDING]:
            left, right = both[name][better], both[name][worse]
            beside = f"/traces/{left.validator}/{left.seq}?with={right.validator}/{right.seq}"
            links.append((beside if is_open else f"/races/{race_id}/problems/{name}", name))
        more = len(won) - len(links)
        yield Reason(
            text=f"{who.agent.name} did better on {len(won)} of the {len(both)} problems of pool train:"
            + (f" these, and {more} more" if more else ""),
            links=tuple(links),
        )


def _axes(race_id: str, leaders: Sequence[Leader], counted: _Scored) -> Iterator[Reason]:
    """Which axes each failed on."""
    said = []
    for one in leaders:
        name = one.agent.agent_version_id
        missed = Counter(
            axis
            for pair in counted.values()
            if name in pair and not pair[name].is_success
            for axis in pair[name].missed
        )
        told = ", ".join(
            f"{axis} {count} times" if count > 1 else f"{axis} once" for axis, count in missed.most_common()
        )
        if told:
            said.append(f"{one.agent.name} missed {told}")
    if said:
        yield Reason(text="; ".join(said) + ".", links=((f"/v1/races/{race_id}/problems", "results"),))


def _top(settlement: SettlementRecord, leaders: Sequence[Leader]) -> Iterator[Reason]:
    top = next((one for one in leaders if one.is_top), None)
    inputs = settlement.inputs
    before = inputs.incumbent.agent_version_id if inputs and inputs.incumbent else ""
    old = next((one for one in leaders if one.agent.agent_version_id == before), None)
    link = ((f"/v1/races/{settlement.race_id}/settlement", "settlement"),)
    if top is not None and settlement.is_promotion:
        text = f"{top.agent.name} came to the top in this race"
        if old is not None:
            now, then = top.standing, old.standing
            text += f", before {old.agent.name}: {_share(now.crown_score_e4)} against {_share(then.crown_score_e4)}"
            text += f", {now.wins} problems better, {now.losses} worse"
        yield Reason(text=f"{text}.", links=link)
    elif top is not None and not leaders[0].is_top:
        yield Reason(
            text=f"{top.agent.name} stays at the top: {leaders[0].agent.name} ranked first, but not by the margin.",
            links=link,
        )
    elif top is not None:
        yield Reason(text=f"{top.agent.name} stays at the top.", links=link)


def _margin(settlement: SettlementRecord, now_ms: int) -> Iterator[Reason]:
    """What the rule asks of a challenger: at the race, and today."""
    inputs = settlement.inputs
    try:
        rules: PromotionRules = policy_of(settlement).promotion
    except ArenaError:
        return
    if inputs is None or rules.kind == "sequential":
        return
    link = ((f"/v1/races/{settlement.race_id}", "the rule"),)
    if inputs.incumbent is not None:
        then = margin_e4(rules, inputs.closes_ms - inputs.incumbent.promoted_ms)
        yield Reason(
            text=f"In this race a challenger had to score {then / 100:.2f} % more than the top agent."
            if then
            else "In this race any score above the top agent's was enough: the margin had fallen to nothing.",
            links=link,
        )
    since_ms = (
        inputs.closes_ms if settlement.is_promotion else inputs.incumbent.promoted_ms if inputs.incumbent else None
    )
    if since_ms is not None:
        today = margin_e4(rules, max(0, now_ms - since_ms))
        days = rules.decay_ms / 86_400_000
        asked = f"has to score {today / 100:.2f} % more than the top agent" if today else "needs any higher score"
        yield Reason(
            text=f"Today a challenger {asked}; after a promotion the margin falls from"
            f" {rules.margin_e4 / 100:.2f} % to nothing within {days:g} days.",
            links=link,
        )


def _interval(standing: Standing) -> str:
    return f"{_share(standing.race_score_e4)} [{_share(standing.low_e4)}, {_share(standing.high_e4)}]"


def _share(value_e4: int) -> str:
    return f"{value_e4 / 10_000:.4f}"
