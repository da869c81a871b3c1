"""Promotion: does a challenger take the top?

Three rules, chosen by policy. `margin`: beat the top by a margin that decays linearly to nothing over the top's reign.
`window`: the same comparison on SN15's weighted score, which averages an agent's lead over the field through its last
races. `sequential`: a paired test on the shared draw that may be looked at after every race without losing its meaning.
Sources: docs/architecture.md#the-mechanism; SN15's validator. All integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, factorial

from arena.policy import PromotionRules
from arena.race.model import AgentScore
from arena.records.model import SettlementRecord

_UNIT = 10_000


def margin_e4(rules: PromotionRules, reign_ms: int) -> int:
    """The margin left after a reign, in ten-thousandths of the top's score, rounded down."""
    left = max(0, rules.decay_ms - max(0, reign_ms))
    return rules.margin_e4 * left // rules.decay_ms if rules.decay_ms else 0


def beats_margin(challenger: int, top: int, rules: PromotionRules, reign_ms: int) -> bool:
    """True when `challenger` is above `top` and at least `margin_e4` above it. Scores in any one integer unit."""
    needed = top * (_UNIT + margin_e4(rules, reign_ms))
    return challenger > top and challenger * _UNIT >= needed


def weighted_scores(
    scores_e4: Mapping[str, int], history: Sequence[SettlementRecord], window_races: int
) -> dict[str, int]:
    """SN15's crown score per agent version: this race's anchor + the mean of its leads over the last races.

    The anchor of a race is the mean of the better half of its field; a lead is the agent's score minus the anchor; a
    race the agent did not run counts as a lead of 0, so nobody wins on a debut by luck. Rounded down.
    """
    anchor = field_anchor_e4(list(scores_e4.values()))
    past = (
        [record for record in history if record.state == "settled"][-(window_races - 1) :] if window_races > 1 else []
    )
    leads = {agent: score - anchor for agent, score in scores_e4.items()}
    for record in past:
        race = {row.agent_version_id: row.race_score_e4 for row in record.standings}
        past_anchor = field_anchor_e4(list(race.values()))
        for agent in leads:
            leads[agent] += race[agent] - past_anchor if agent in race else 0
    return {agent: anchor + lead // window_races for agent, lead in leads.items()}


def field_anchor_e4(scores_e4: Sequence[int]) -> int:
    """Mean of the better half of a field (at least one agent), rounded down; 0 for an empty field."""
    better = sorted(scores_e4, reverse=True)[: max(1, len(scores_e4) // 2)]
    return sum(better) // len(better) if better else 0


def duel(challenger: AgentScore, incumbent: AgentScore, *, is_strict: bool = False) -> tuple[int, int]:
    """(wins, losses): problems of the draw on which the challenger scored higher, and lower.

    `is_strict`: one that either lacks counts as the 0 it is scored, so that nobody can drop a loss; else it drops.
    """
    wins = losses = 0
    for mine, theirs in zip(challenger.problems, incumbent.problems, strict=True):
        if is_strict or (mine.state == "scored" and theirs.state == "scored"):
            wins += mine.score_e4 > theirs.score_e4
            losses += mine.score_e4 < theirs.score_e4
    return wins, losses


def is_evidence_enough(wins: int, losses: int, alpha_e4: int) -> bool:
    """True when the e-value of `wins` against `losses` reaches 1 / alpha.

    The e-value is the likelihood ratio of a win rate drawn uniformly from (1/2, 1) against 1/2. Under "not better" it
    reaches 1 / alpha ever, over any number of races, with probability at most alpha (Ville's inequality).
    Closed form: wins! losses! / (n+1)! x sum of C(n+1, j) for j up to wins.
    """
    n = wins + losses
    tail = sum(comb(n + 1, j) for j in range(wins + 1))
    return factorial(wins) * factorial(losses) * tail * alpha_e4 >= _UNIT * factorial(n + 1)


def past_duels(agent: str, incumbent: str, history: Sequence[SettlementRecord]) -> tuple[int, int]:
    """(wins, losses) of an agent against the same incumbent in earlier settled races."""
    wins = losses = 0
    for record in history:
        if record.state == "settled" and record.top_agent_version_id == incumbent and not record.is_promotion:
            for row in record.standings:
                if row.agent_version_id == agent:
                    wins, losses = wins + row.wins, losses + row.losses
    return wins, losses


def eliminated_agents(ranked: Sequence[AgentScore], top: str, rules: PromotionRules) -> frozenset[str]:
    """Version ids of the lower `elimination_e4` of a field by raw score; the top agent always stays."""
    count = len(ranked) * rules.elimination_e4 // _UNIT
    lower = ranked[len(ranked) - count :]
    return frozenset(a.candidate.subject.agent_version_id for a in lower) - {top}
