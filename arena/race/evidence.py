"""Evidence for the crown: a bet of each hotkey against the top agent, carried from race to race of one reign.

A hotkey starts at 1. Each race multiplies its evidence up by its lead and down by its deficit on every problem; it
carries over races and over the hotkey's new versions until the top changes. Who is no better than the top ever reaches
200 with a chance of at most one in 200, over any number of races (Ville's inequality), so neither waiting nor trying
again helps; and each hotkey bets against the top alone, so copies hold nobody up. What counts is the least over
left-out validators: what one of them reported alone crowns nobody. Exact integers, equal on all validators. Source:
docs/mechanism.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from msgspec.structs import replace

from arena.policy import PromotionRules
from arena.records.model import Evidence, HeldEvidence, SettlementRecord, Top

STAKES = (1, 2, 4, 8)  # sixteenths of what is held, put on every problem
UNIT = 1_000_000  # of carried evidence
_WHOLE = 960_000  # sixteen times six times the score of a solved problem, 10,000
_CARRIED_MAX = 10**15  # far above any threshold, and still an integer of JSON
_WINS_MAX = 500
_LEAVING_FROM = 3  # validators from which on one is left out
_FRESH = (UNIT,) * len(STAKES)

Runs = Mapping[str, int]  # by validator: what it scored an agent on one problem, in ten-thousandths


def lead(ours: Runs, theirs: Runs, left_out: str = "") -> int:
    """Six times the lead of one agent over another on one problem, in ten-thousandths: the difference of the means over
    their runs, where no run is 0. A problem says nothing where leaving a validator out leaves an agent no run."""
    means = []
    for runs in (ours, theirs):
        kept = [score for validator, score in runs.items() if validator != left_out]
        if runs and not kept:
            return 0
        means.append((sum(kept), max(1, len(kept))))
    (mine, count), (other, other_count) = means
    return 6 * (mine * other_count - other * count) // (count * other_count)


def carry(before: Evidence, raced: Mapping[str, Sequence[Runs]], theirs: Sequence[Runs]) -> Evidence:
    """The evidence after one more race of a reign: of every hotkey that raced its runs, problem by problem, against
    those of the top agent. Who did not race holds what it held."""
    seen = {validator for runs in (theirs, *raced.values()) for each in runs for validator in each}
    left_out = ("", *sorted(({*before.left_out} | seen) - {""}))
    column = {name: index for index, name in enumerate(before.left_out)}
    held = {one.miner_hotkey: one for one in before.held}
    after = []
    for hotkey in sorted(held.keys() | raced.keys()):
        fresh = HeldEvidence(miner_hotkey=hotkey, races=0, millionths=(_FRESH,) * max(1, len(before.left_out)))
        one = held.get(hotkey, fresh)
        rows = [one.millionths[column.get(name, 0)] for name in left_out]  # a new one left nothing out before
        if hotkey in raced:
            rows = [
                _multiplied(row, [lead(mine, other, name) for mine, other in zip(raced[hotkey], theirs, strict=True)])
                for name, row in zip(left_out, rows, strict=True)
            ]
        races = one.races + (hotkey in raced)
        after.append(HeldEvidence(miner_hotkey=hotkey, races=races, millionths=tuple(rows)))
    return Evidence(left_out=left_out, held=tuple(after))


def last_of_reign(history: Sequence[SettlementRecord], top: Top | None) -> SettlementRecord | None:
    """The last settlement of `history`, oldest first, where its top agent reigned before it and still does."""
    last = next((past for past in reversed(history) if past.state == "settled"), None)
    if last is None or last.is_promotion or last.top_agent_version_id != (top.agent_version_id if top else ""):
        return None
    return last


def evidence_before(history: Sequence[SettlementRecord], top: Top | None) -> Evidence:
    """What hotkeys hold against the top agent before a race: none at its first, or by another rule."""
    last = last_of_reign(history, top)
    return last.evidence if last is not None and isinstance(last.evidence, Evidence) else Evidence()


def _multiplied(row: Sequence[int], leads: Sequence[int]) -> tuple[int, ...]:
    """What each stake holds after a race, in millionths, rounded down."""
    whole = _WHOLE ** len(leads)
    factors = (prod(_WHOLE + stake * each for each in leads) for stake in STAKES)
    return tuple(min(_CARRIED_MAX, value * factor // whole) for value, factor in zip(row, factors, strict=True))


def held_millionths(one: HeldEvidence, validators: int) -> int:
    """What a hotkey holds, in millionths: the mean over the stakes, the least over left-out validators. Where fewer
    than three validators hold a permit, nobody is left out."""
    rows = one.millionths if validators >= _LEAVING_FROM else one.millionths[:1]
    return min(sum(row) // len(STAKES) for row in rows)


def held_by_hotkey(settlement: SettlementRecord) -> dict[str, int]:
    """What each hotkey holds against the top agent after a race, in millionths, most first; nobody anything under
    policies that crown by other rules."""
    if not isinstance(settlement.evidence, Evidence) or settlement.inputs is None:
        return {}
    validators = len(settlement.inputs.validators)
    held = {one.miner_hotkey: held_millionths(one, validators) for one in settlement.evidence.held}
    return dict(sorted(held.items(), key=lambda row: -row[1]))


def wins_needed(one: HeldEvidence, rules: PromotionRules, validators: int) -> int:
    """How many more problems a hotkey has to solve that the top agent does not, and lose none, until it holds enough;
    0 where it does, at most 500."""
    count, full = 0, [_WHOLE // 16]  # six times the score of a solved problem
    while held_millionths(one, validators) < needed(rules, validators) * UNIT and count < _WINS_MAX:
        count += 1
        one = replace(one, millionths=tuple(_multiplied(row, full) for row in one.millionths))
    return count


def evidence_text(evidence: float) -> str:
    """Evidence as people read it: 0.25, 3.24, 46,800,000."""
    return f"{evidence:,.0f}" if evidence >= 100 else f"{evidence:.3g}"


def needed(rules: PromotionRules, validators: int) -> int:
    """The evidence that takes the top: more where no validator can be left out."""
    return rules.evidence if validators >= _LEAVING_FROM else rules.evidence_alone


def is_enough(one: HeldEvidence, rules: PromotionRules, validators: int) -> bool:
    """Whether a hotkey takes the top where no other holds more."""
    enough = needed(rules, validators) * UNIT
    return one.races >= rules.evidence_races and held_millionths(one, validators) >= enough
