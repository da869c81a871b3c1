"""Who takes the crown, by the settlement's own code: an attacker's plans and an improver's races, policy by policy.

    python -m tests.prove.crown [--reigns 40] [--races 30]

The top agent solves 70 % of problems whose difficulties are normal (1.5 logits). Every race draws 90 problems anew and
every agent is run on each by three validators. Only the reading of records is passed over: what validators found is
drawn here and handed to `arena.race.settle.settle`. Two tables of docs/mechanism.md come from it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import msgspec
import numpy as np
from msgspec.structs import replace

from arena.policies import PAPER, SN15_2026_08
from arena.policy import Policy, PromotionRules
from arena.race import settle as settling
from arena.race.scores import Counted, PairCount, TrajectoryResult
from arena.records.model import Candidate, SettlementRecord, Subject, Top
from tests.arena.race_stand import batch, inputs_of

SPREAD, SKILL = 1.5, 1.0  # logits: of the problems, and of the top agent
DAY_MS = 86_400_000
MARGIN = replace(PAPER, name="margin", promotion=PromotionRules())
POLICIES = (PAPER, MARGIN, SN15_2026_08)
_DIFFICULTIES = np.random.default_rng(0).normal(0, SPREAD, 200_000)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Who races against the top agent. `better_e4`: how much more than it the first challenger solves; `copies`: agents
    equal to it; `daily`: the copies come as new versions every race; `liar`: one validator reports that the first
    challenger solves everything and the top agent nothing."""

    better_e4: int = 0
    copies: int = 0
    validators: int = 3
    is_daily: bool = False
    is_liar: bool = False


def _solved(skill: float) -> float:
    return float((1 / (1 + np.exp(_DIFFICULTIES - skill))).mean())


def _skill_of(better_e4: int) -> float:
    low, high = SKILL, SKILL + 3
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _solved(middle) - _solved(SKILL) < better_e4 / 10_000 else (low, middle)
    return high if better_e4 else SKILL


def _candidate(name: str, version: int, block: int) -> Candidate:
    subject = Subject(
        agent_version_id=f"v-{name}-{version}",
        miner_hotkey=f"hk-{name}",
        agent_sha256="",
        commitment_block=block,
        commitment_sha256="0",
    )
    return Candidate(subject=subject, qualifying_score_e4=5_000)


def reign(policy: Policy, plan: Plan, races: int, dice: np.random.Generator) -> tuple[int, str]:
    """(race in which the top changed, who took it), or (0, "")."""
    race = replace(policy.race, problems=90, batch_problems=90)
    rules, validators = replace(policy, race=race), tuple(f"val-{n}" for n in range(plan.validators))
    skills = {"top": SKILL, "first": _skill_of(plan.better_e4)} | {f"copy{n}": SKILL for n in range(plan.copies)}
    history: list[SettlementRecord] = []
    for number in range(1, races + 1):
        field = [
            _candidate(name, number if plan.is_daily and name.startswith("copy") else 0, place)
            for place, name in enumerate(skills)
        ]
        ids = {name: who.subject.agent_version_id for name, who in zip(skills, field, strict=True)}
        top = Top(agent_version_id=ids["top"], miner_hotkey="hk-top", promoted_ms=0)
        made = inputs_of(f"race-{number:06}", rules, batch(90), field, validators, evaluations=(), verdicts=())
        stated = replace(made.stated, incumbent=top, closes_ms=number * DAY_MS)
        made = replace(made, stated=stated, history=tuple(history))

        def counted(inputs, seed, drawn, ids=ids) -> Counted:
            return _counted(plan, skills, ids, drawn, inputs.stated.validators, dice)

        with patch.object(settling, "count_results", counted):
            history.append(settling.settle(made))
        if history[-1].is_promotion:
            crowned = history[-1].top_agent_version_id
            return number, next(name for name, agent in ids.items() if agent == crowned)
    return 0, ""


def _counted(
    plan: Plan,
    skills: dict[str, float],
    ids: dict[str, str],
    drawn: Sequence[str],
    validators: Sequence[str],
    dice: np.random.Generator,
) -> Counted:
    """What up to three validators found of every agent on every problem."""
    difficulty = dice.normal(0, SPREAD, len(drawn))
    asked = [dice.permutation(len(validators))[:3] for _ in drawn]
    pairs, solved = {}, _result("", True)
    for name, skill in skills.items():
        is_solved = dice.random((len(drawn), 3)) < 1 / (1 + np.exp(difficulty - skill))[:, None]
        for row, problem_id in enumerate(drawn):
            results = []
            for place, validator in enumerate(asked[row]):
                lies = plan.is_liar and validator == 0 and name in ("top", "first")
                outcome = name == "first" if lies else bool(is_solved[row, place])
                results.append(_result(validators[validator], outcome))
            pairs[ids[name], problem_id] = PairCount(tuple(results))
    return Counted(pairs=pairs, control=dict.fromkeys(drawn, dict.fromkeys(validators, solved)))


def _result(validator: str, is_success: bool) -> TrajectoryResult:
    score_e4 = 10_000 if is_success else 0
    return TrajectoryResult(
        validator=validator, is_success=is_success, is_agentic=True, score_e4=score_e4, quality_e4=9_000
    )


def _row(policy: Policy, plan: Plan, reigns: int, races: int) -> str:
    dice = np.random.default_rng(7)
    ends = [reign(policy, plan, races, dice) for _ in range(reigns)]
    right = sorted(number if who == "first" else math.inf for number, who in ends)
    lost = sum(bool(who) for _, who in ends)
    in_80 = right[math.ceil(0.8 * reigns) - 1]
    races_80 = in_80 if in_80 < math.inf else f"> {races}"
    return f"lost {100 * lost // reigns:>3} %  the first challenger in {races_80} races (80 %)"


ATTACKS = {
    "1 copy": Plan(),
    "10 copies": Plan(copies=9),
    "30 copies": Plan(copies=29),
    "30 copies, daily new versions": Plan(copies=29, is_daily=True),
    "1 copy, one liar of 3": Plan(is_liar=True),
    "1 copy, one liar of 10": Plan(is_liar=True, validators=10),
}
IMPROVERS = {
    f"+{better} points{f' beside {copies} copies' if copies else ''}, {validators} validators": Plan(
        better_e4=100 * better, copies=copies, validators=validators
    )
    for better in (5, 10)
    for copies in (0, 29)
    for validators in (1, 3, 10)
}


def rows(reigns: int, races: int) -> Iterator[str]:
    """One line a plan and policy, as soon as it is known."""
    for title, plan in (ATTACKS | IMPROVERS).items():
        for policy in POLICIES if title in ATTACKS else (PAPER,):
            yield f"{title:<34} {policy.name:<13} {_row(policy, plan, reigns, races)}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.crown", description=__doc__)
    parser.add_argument("--reigns", type=int, default=40, help="of each plan (default: 40)")
    parser.add_argument("--races", type=int, default=30, help="a reign at most (default: 30)")
    options = parser.parse_args()
    for row in rows(options.reigns, options.races):
        print(row, flush=True)


if __name__ == "__main__":
    main()
