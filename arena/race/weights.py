"""Who takes the top, and what each place is paid: promotion rules and weight vectors, in exact integers.

Evidence for the crown is a bet of each hotkey against the top agent, carried from race to race of one reign. A hotkey
starts at 1. Each race multiplies its evidence up by its lead and down by its deficit on every problem; it carries over
races and over the hotkey's new versions until the top changes. Who is no better than the top ever reaches 200 with a
chance of at most one in 200, over any number of races (Ville's inequality), so neither waiting nor trying again helps;
and each hotkey bets against the top alone, so copies hold nobody up. What counts is the least over left-out validators:
what one of them reported alone crowns nobody. Source: docs/mechanism.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Literal

import msgspec
from msgspec.structs import replace

from arena.chain.port import Metagraph
from arena.policy import PromotionRules, WeightRules
from arena.race.draw import UNIT_E4
from arena.race.scores import AgentScore, exact_score
from arena.records.model import Evidence, HeldEvidence, SettlementRecord, Top
from arena.records.port import WeightsResult


def margin_e4(rules: PromotionRules, reign_ms: int) -> int:
    """The margin left after a reign, in ten-thousandths of the top's score, rounded down."""
    left = max(0, rules.decay_ms - max(0, reign_ms))
    return rules.margin_e4 * left // rules.decay_ms if rules.decay_ms else 0


def beats_margin(challenger: int, top: int, rules: PromotionRules, reign_ms: int) -> bool:
    """True when `challenger` is above `top` and at least `margin_e4` above it. Scores in any one integer unit."""
    return challenger > top and challenger * UNIT_E4 >= top * (UNIT_E4 + margin_e4(rules, reign_ms))


def weighted_scores(
    scores_e4: Mapping[str, int], history: Sequence[SettlementRecord], window_races: int
) -> dict[str, int]:
    """SN15's crown score per agent version: this race's anchor + the mean of its leads over the last races, of which
    `history` holds the earlier ones.

    The anchor of a race is the mean of the better half of its field; a lead is the agent's score minus the anchor; a
    race the agent did not run counts as a lead of 0, so nobody wins on a debut by luck. Rounded down.
    """
    anchor = field_anchor_e4(list(scores_e4.values()))
    leads = {agent: score - anchor for agent, score in scores_e4.items()}
    for record in history:
        race = {row.agent_version_id: row.race_score_e4 for row in record.standings}
        past_anchor = field_anchor_e4(list(race.values()))
        for agent in leads:
            leads[agent] += race[agent] - past_anchor if agent in race else 0
    return {agent: anchor + lead // window_races for agent, lead in leads.items()}


def field_anchor_e4(scores_e4: Sequence[int]) -> int:
    """Mean of the better half of a field (at least one agent), rounded down; 0 for an empty field."""
    better = sorted(scores_e4, reverse=True)[: max(1, len(scores_e4) // 2)]
    return sum(better) // len(better) if better else 0


def duel(challenger: AgentScore, incumbent: AgentScore) -> tuple[int, int]:
    """(wins, losses): problems of the draw on which the challenger scored higher, and lower. One that either lacks
    counts as the 0 it is scored, so that nobody can drop a loss."""
    pairs = zip(challenger.problems, incumbent.problems, strict=True)
    gains = [mine.score_e4 - theirs.score_e4 for mine, theirs in pairs]
    return sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)


def eliminated_agents(ranked: Sequence[AgentScore], top: str, rules: PromotionRules) -> frozenset[str]:
    """Version ids of the lower `elimination_e4` of a field by raw score; the top agent always stays."""
    count = len(ranked) * rules.elimination_e4 // UNIT_E4
    lower = ranked[len(ranked) - count :]
    return frozenset(a.candidate.subject.agent_version_id for a in lower) - {top}


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


def paid_places(ranked: Sequence[AgentScore], top: str, control: AgentScore, lambda_e4: int) -> tuple[str, ...]:
    """The hotkeys of a ranked field that are paid, best first: one of each owner and each class of likeness, and none
    that scored no more than the control agent. The top agent has its owner's and its class's place."""
    owners, heads, paid = set[str](), set[str](), set[str]()
    for agent in sorted(ranked, key=lambda each: each.candidate.subject.agent_version_id != top):
        one, is_top = agent.candidate, agent.candidate.subject.agent_version_id == top
        is_able = is_top or exact_score(agent, lambda_e4) > exact_score(control, lambda_e4)
        if is_able and one.owner not in owners and one.head not in heads:
            owners.add(one.owner)
            heads.add(one.head)
            paid.add(one.subject.miner_hotkey)
    return tuple(hotkey for each in ranked if (hotkey := each.candidate.subject.miner_hotkey) in paid)


class NoPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Why an agent has no place among those that are paid: another of its owner, of its class, or of those with next to
    nothing of their own has it (`holder`, an agent version id), or it scored no more than the control agent."""

    why: Literal["owner", "class", "template", "control"]
    holder: str = ""

    def says(self, name: str) -> str:
        """The reason in words; `name` is the holder's."""
        return {
            "owner": f"its owner has one place, and {name} has it",
            "class": f"it is too like {name}, which has the place of its class",
            "template": f"next to nothing in it is its own, and {name} has the place of all such agents",
            "control": "it scored no more than the control agent",
        }[self.why]


def no_places(record: SettlementRecord) -> dict[str, NoPlace]:
    """By hotkey, why it is not paid (`paid_places`), under policies with classes of likeness."""
    if record.inputs is None or isinstance(record.places, msgspec.UnsetType):
        return {}
    field = {one.subject.miner_hotkey: one for one in record.inputs.field}
    owners = {field[hotkey].owner: field[hotkey].subject.agent_version_id for hotkey in record.places}
    heads = {field[hotkey].head: field[hotkey].subject.agent_version_id for hotkey in record.places}
    found = {}
    for hotkey in field.keys() - set(record.places):
        one = field[hotkey]
        if one.owner in owners:
            found[hotkey] = NoPlace(why="owner", holder=owners[one.owner])
        elif one.head in heads:
            found[hotkey] = NoPlace(why="class" if one.head else "template", holder=heads[one.head])
        else:
            found[hotkey] = NoPlace(why="control")
    return found


U16_MAX = 65_535
_SHARE_TOLERANCE = 1e-9


class Finisher(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a race result as SN15's rule takes it: `race_score` is a float there."""

    miner_hotkey: str
    agent_version_id: str
    race_score: float


class WeightCase(msgspec.Struct, frozen=True, kw_only=True):
    """One input of SN15's rule as it stands in a case file."""

    case_id: str
    metagraph_hotkeys: tuple[str, ...]
    finishers: tuple[Finisher, ...]
    t_top: float
    t_burn: float


class WeightVector(msgspec.Struct, frozen=True, kw_only=True):
    """Parallel uids and u16 weights."""

    uids: tuple[int, ...]
    weights: tuple[int, ...]


def reference_vector(
    metagraph_hotkeys: Sequence[str], finishers: Iterable[Finisher], t_top: float, t_burn: float
) -> WeightVector:
    """SN15's vector over every uid (`metagraph_hotkeys[uid]`), before the chain's own normalisation.

    Entries may exceed 65535 and the maximum may lie below it, as in the reference; where the top left the subnet and
    nothing burns, every entry is 0. Fewer than two finishers burn everything, whatever the shares. Otherwise raises
    ValueError for shares that are impossible: below 0, not adding up to 1 within 1e-9, or a burn share too small for
    the tail of a race of this size, whether or not that tail is still registered.
    """
    weights = [0] * len(metagraph_hotkeys)
    ranked = sorted(finishers, key=lambda row: (-row.race_score, row.agent_version_id))
    half = len(ranked) // 2
    if weights and half == 0:
        weights[0] = U16_MAX
    elif weights:
        _pinned(t_top, t_burn, half * (half - 1) // 2)
        uid_by_hotkey = {hotkey: uid for uid, hotkey in enumerate(metagraph_hotkeys)}
        top_hotkey = ranked[0].miner_hotkey
        # A hotkey that stands twice is paid once: the top as the top, another at its lower rank.
        others = [None if row.miner_hotkey == top_hotkey else row.miner_hotkey for row in ranked[1:half]]
        tail = _taper([None if hotkey is None else uid_by_hotkey.get(hotkey) for hotkey in others], half)
        top, burn = _pinned(t_top, t_burn, sum(tail.values()))
        for uid, weight in tail.items():
            weights[uid] = weight
        weights[0] = burn
        top_uid = uid_by_hotkey.get(top_hotkey)
        if top_uid is not None:
            weights[top_uid] += top
    return WeightVector(uids=tuple(range(len(weights))), weights=tuple(weights))


def _pinned(t_top: float, t_burn: float, tail_sum: int) -> tuple[int, int]:
    """SN15's weights of top and burn, the larger exactly 65535. In its order of operations: another rounds otherwise.

    Raises ValueError as `reference_vector` does.
    """
    if t_top < 0 or t_burn < 0 or abs((t_top + t_burn) - 1.0) > _SHARE_TOLERANCE:
        raise ValueError(f"shares {t_top} and {t_burn} are impossible: neither may be below 0, and their sum is 1")
    if t_burn >= t_top:
        return round(t_top * ((U16_MAX + tail_sum) / t_burn)), U16_MAX
    burn = round(t_burn * (U16_MAX / t_top)) - tail_sum
    if burn < 0:
        raise ValueError(f"a burn share of {t_burn} does not hold a tail of {tail_sum}")
    return U16_MAX, burn


def chain_vector(
    ranked_hotkeys: Sequence[str], top_hotkey: str, metagraph: Metagraph, rules: WeightRules
) -> WeightVector:
    """The vector to set: nonzero entries by uid, the largest exactly 65535.

    `ranked_hotkeys` are the race's standings, best first; `top_hotkey` is the top agent's, which need not be first
    (the margin), or empty when nobody is at the top. The top gets `top_e4`; the other hotkeys in the upper half of N
    finishers get K-1, K-2, .. 1 units of 1/65535 of the largest entry, K = N // 2; the rest burns. A hotkey that is not
    registered in `metagraph` loses its entry: the top's share burns, a tail entry vanishes. Raises ValueError
    for a hotkey that stands twice or a top share outside 0..10000.
    """
    if len(set(ranked_hotkeys)) != len(ranked_hotkeys):
        raise ValueError("a hotkey stands twice in the standings")
    if not 0 <= rules.top_e4 <= 10_000:
        raise ValueError(f"top_e4 must lie in 0..10000, not {rules.top_e4}")
    top_uid = metagraph.uid_of(top_hotkey) if top_hotkey else None
    if rules.kind == "winner_takes_all":
        return _vector({rules.burn_uid if top_uid is None else top_uid: U16_MAX})
    half = len(ranked_hotkeys) // 2
    others = [hotkey for hotkey in ranked_hotkeys if hotkey != top_hotkey][: max(0, half - 1)]
    tail = _taper([metagraph.uid_of(hotkey) for hotkey in others], half)
    tail.pop(rules.burn_uid, None)
    if top_uid is None or top_uid == rules.burn_uid:
        return _vector(tail | {rules.burn_uid: U16_MAX})
    # The larger of top and burn is 65535, and top / (top + burn + tail) = top_e4 / 10000, rounded half up.
    top_e4, rest_e4, tail_sum = rules.top_e4, 10_000 - rules.top_e4, sum(tail.values())
    top, burn = U16_MAX + 1, U16_MAX
    if top_e4 <= rest_e4:  # the tail may still make the top the larger
        top = (2 * top_e4 * (U16_MAX + tail_sum) + rest_e4) // (2 * rest_e4)
    if top > U16_MAX:
        top, burn = U16_MAX, max(0, (2 * rest_e4 * U16_MAX + top_e4) // (2 * top_e4) - tail_sum)
    return _vector(tail | {top_uid: top, rules.burn_uid: burn})


def _taper(uids: Sequence[int | None], half: int) -> dict[int, int]:
    """Rank r in 2..K gets K+1-r; `uids` are those of rank 2 on, None where a hotkey is not registered."""
    return {uid: half - 1 - place for place, uid in enumerate(uids) if uid is not None}


def _vector(weights: dict[int, int]) -> WeightVector:
    kept = sorted((uid, weight) for uid, weight in weights.items() if weight > 0)
    return WeightVector(uids=tuple(uid for uid, _ in kept), weights=tuple(weight for _, weight in kept))


WAIT_BLOCKS_MAX = 25


def next_try_block(results: Sequence[WeightsResult], race_id: str, tempo: int) -> int:
    """The first block at which a race's weights may be tried; 0: at once. `results` come newest first.

    At once where this race was never tried; `tempo` blocks after the last success; after a refusal once a wait that
    doubles with every refusal in a row has passed, at most `WAIT_BLOCKS_MAX` blocks.
    """
    tries = [result for result in results if result.race_id == race_id]
    if not tries:
        return 0
    refused = next((count for count, result in enumerate(tries) if result.status == "ok"), len(tries))
    wait_blocks = min(1 << (refused - 1), WAIT_BLOCKS_MAX) if refused else tempo
    return tries[0].block + wait_blocks
