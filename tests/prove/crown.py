"""Who takes crown, places and pay, by the settlement's own code: attackers' plans and an improver's races, by rule.

    python -m tests.prove.crown [--reigns 20] [--races 30] [--races-max 150]

The top agent solves 70 % of problems whose difficulties are normal (1.5 logits), and an honest rival stands beside it.
Every race draws 90 problems anew and every agent is run on each by three validators. Only the reading of records is
passed over: what validators found is drawn here and handed to `arena.race.settle.settle`. Who is eliminated comes back
with a new version. `ridges` is that subnet's rule of August 2026 as its code states it: an upload is scored once on a
fixed set, leads from 3 % more than the leader had then, and is paid by its lead, halved in 14 days; a price is asked
for each upload. The tables of docs/mechanism.md come from here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from msgspec.structs import replace

from arena.policies import PAPER, SN15_2026_08
from arena.policy import Policy
from arena.race import settle as settling
from arena.race.admission import select_candidates
from arena.race.scores import PairCount, RaceCount, SettlementInputs, TrajectoryResult, control_subject
from arena.records.model import Candidate, Origin, SettlementRecord, Subject, Top
from tests.arena.race_stand import batch, inputs_of

PROBLEMS, SPREAD, SKILL = 90, 1.5, 1.0  # logits: of the problems, and of the top agent
CONTROL = -1.0  # which solves a third
COEFFICIENTS_E4 = (3_875, 5_625, 7_375, 9_125, 10_000)
DAY_MS, DAY_H = 86_400_000, 24
_DIFFICULTIES = np.random.default_rng(0).normal(0, SPREAD, 200_000)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the top agent. `better_e4`: how much more than it the honest rival solves. `attackers` solve
    what it solves, or with `is_idle` less than the control agent; with `is_copied` the gate finds them to be copies of
    it; `is_daily`: they come as new versions every race; `is_liar`: one validator reports that the first of them solves
    everything and the top agent nothing. `effect`: logits by which an agent's skill differs from race to race;
    `is_graded`: a solved problem earns one of the five coefficients."""

    better_e4: int = 0
    attackers: int = 0
    validators: int = 3
    is_idle: bool = False
    is_copied: bool = True
    is_one_owner: bool = False
    is_daily: bool = False
    is_liar: bool = False
    effect: float = 0.0
    is_graded: bool = False

    @property
    def skills(self) -> dict[str, float]:
        """In logits, by agent: top, rival and attackers."""
        theirs = CONTROL - 1 if self.is_idle else SKILL
        return {"top": SKILL, "rival": _skill_of(self.better_e4)} | {f"a{n}": theirs for n in range(self.attackers)}


class Share(msgspec.Struct, frozen=True):
    """Who stands at the top after a race, and what attackers have: the crown, and their shares of the places below it
    and of what miners get."""

    top: str
    crown: bool
    places: float
    pay: float


def _solved(skill: float) -> float:
    return float((1 / (1 + np.exp(_DIFFICULTIES - skill))).mean())


@cache
def _skill_of(better_e4: int) -> float:
    low, high = SKILL, SKILL + 3
    for _ in range(40 if better_e4 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if _solved(middle) - _solved(SKILL) < better_e4 / 10_000 else (low, middle)
    return high if better_e4 else SKILL


def _candidate(name: str, version: int, place: int, plan: Plan, *, is_top: bool) -> Candidate:
    subject = Subject(
        agent_version_id=f"{name}-{version}",
        miner_hotkey=name,
        agent_sha256="",
        commitment_block=1 + place,
        commitment_sha256="0",
    )
    is_attacker = name not in ("top", "rival")
    head = "top-0" if is_attacker and plan.is_copied else f"{name}-0"
    origin = Origin(owner="attacker" if is_attacker and plan.is_one_owner else name, head=head, order=0)
    return Candidate(subject=subject, qualifying_score_e4=5_000, is_incumbent=is_top, origin=origin)


def reign(policy: Policy, plan: Plan, races: int, dice: np.random.Generator) -> Iterator[Share]:
    """So many races by a policy's settlement."""
    race = replace(policy.race, problems=PROBLEMS, batch_problems=PROBLEMS)
    rules, validators = replace(policy, race=race), tuple(f"val-{n}" for n in range(plan.validators))
    top, history = Top(agent_version_id="top-0", miner_hotkey="top", promoted_ms=0), list[SettlementRecord]()
    versions, gone = dict.fromkeys(plan.skills, 0), set[str]()
    for number in range(1, races + 1):
        every = [
            _candidate(name, version, place, plan, is_top=name == top.miner_hotkey)
            for place, (name, version) in enumerate(versions.items())
        ]
        if not policy.gate.class_e4:
            every = [replace(each, origin=msgspec.UNSET) for each in every]
        field = select_candidates(every, 10_000, frozenset(gone))
        made = inputs_of(f"race-{number:06}", rules, batch(PROBLEMS), field, validators, evaluations=(), verdicts=())
        stated = replace(made.stated, incumbent=top, closes_ms=number * DAY_MS)

        def counted(inputs: SettlementInputs, seed: str, drawn: tuple[str, ...]) -> RaceCount:
            return _counted(plan, drawn, inputs, dice)

        with patch.object(settling, "count_results", counted):
            settled = settling.settle(replace(made, stated=stated, history=tuple(history)))
        history.append(settled)
        if settled.is_promotion:
            crowned = settled.top_agent_version_id
            top = Top(agent_version_id=crowned, miner_hotkey=crowned.split("-")[0], promoted_ms=number * DAY_MS)
        left = {row.agent_version_id for row in settled.standings if row.is_eliminated}
        gone |= left
        for name, version in versions.items():
            is_new = (plan.is_daily and name.startswith("a")) or f"{name}-{version}" in left
            versions[name] = number if is_new and name != top.miner_hotkey else version
        yield _share(settled, {row.uid: row.hotkey for row in stated.neurons}, top.miner_hotkey)


def _share(settled: SettlementRecord, hotkeys: dict[int, str], top: str) -> Share:
    paid = {hotkeys[uid]: weight for uid, weight in zip(settled.uids, settled.weights_u16, strict=True) if uid}
    theirs = {name: weight for name, weight in paid.items() if name.startswith("a")}
    below, total = len(paid.keys() - {top}), sum(paid.values())
    return Share(top, top in theirs, len(theirs.keys() - {top}) / max(below, 1), sum(theirs.values()) / max(total, 1))


def _counted(plan: Plan, drawn: Sequence[str], inputs: SettlementInputs, dice: np.random.Generator) -> RaceCount:
    """What up to three validators found of every agent on every problem, and all of the control agent."""
    validators = inputs.stated.validators
    difficulty = dice.normal(0, SPREAD, len(drawn))
    asked = [dice.permutation(len(validators))[:3] for _ in drawn]
    pairs: dict[tuple[str, str], PairCount] = {}
    for candidate in inputs.stated.field:
        name = candidate.subject.miner_hotkey
        skill = plan.skills[name] + dice.normal(0, plan.effect)
        is_solved = dice.random((len(drawn), 3)) < 1 / (1 + np.exp(difficulty - skill))[:, None]
        earned = dice.choice(COEFFICIENTS_E4 if plan.is_graded else [10_000], (len(drawn), 3))
        for row, problem_id in enumerate(drawn):
            results = []
            for place, validator in enumerate(asked[row]):
                lies = plan.is_liar and validator == 0 and name in ("top", "a0")
                outcome = name == "a0" if lies else bool(is_solved[row, place])
                results.append(_result(validators[validator], outcome, int(earned[row, place])))
            pairs[candidate.subject.agent_version_id, problem_id] = PairCount(tuple(results))
    is_control = dice.random((len(drawn), len(validators))) < 1 / (1 + np.exp(difficulty - CONTROL))[:, None]
    for problem_id, row in zip(drawn, is_control, strict=True):
        results = [_result(name, bool(one)) for name, one in zip(validators, row, strict=True)]
        pairs[control_subject(inputs.policy.race).agent_version_id, problem_id] = PairCount(tuple(results))
    return RaceCount(pairs=pairs)


def _result(validator: str, is_success: bool, coefficient_e4: int = 10_000) -> TrajectoryResult:
    score_e4 = coefficient_e4 if is_success else 0
    return TrajectoryResult(
        validator=validator, is_success=is_success, is_agentic=True, score_e4=score_e4, quality_e4=9_000
    )


def ridges(plan: Plan, days: int, dice: np.random.Generator) -> Iterator[Share]:
    """The same plans where an upload is scored once, on problems that stay."""
    difficulty, hours = dice.normal(0, SPREAD, PROBLEMS), days * DAY_H

    def score(name: str) -> float:
        found = (dice.random((3, PROBLEMS)) < 1 / (1 + np.exp(difficulty - plan.skills[name]))).mean(axis=1)
        if plan.is_liar and name in ("top", "a0"):
            found[0] = name == "a0"
        return float(found.mean())

    leader, best, since_h = "top", score("top"), 0
    rewards = [(leader, 100 * best, 0)]
    for now_h in range(DAY_H, hours + 1, DAY_H):
        uploads = [name for name in plan.skills if name != "top"] if now_h == DAY_H else []
        uploads += [name for name in plan.skills if plan.is_daily and name.startswith("a") and now_h > DAY_H]
        for name in uploads:
            found = score(name)
            if found >= 1.03 * best:
                units = math.log(found / best) / math.log(1.03)
                rewards.append((name, units * (1 + math.sqrt((now_h - since_h) / 12)), now_h))
                leader, best, since_h = name, found, now_h
        worth = [(name, value * 2 ** ((at_h - now_h) / 336)) for name, value, at_h in rewards]
        theirs = sum(value for name, value in worth if name.startswith("a"))
        yield Share(leader, leader.startswith("a"), 0, theirs / sum(value for _, value in worth))


PLANS = {
    "1 agent equal to the top one": Plan(attackers=1, is_copied=False),
    "20 that solve less than the control agent": Plan(attackers=20, is_idle=True, is_copied=False),
    "10 copies, one coldkey": Plan(attackers=10, is_one_owner=True),
    "10 copies, a coldkey each": Plan(attackers=10),
    "30 copies, a coldkey each": Plan(attackers=30),
    "the same, new versions every day": Plan(attackers=30, is_daily=True),
    "30 equal agents that are no copies": Plan(attackers=30, is_copied=False),
    "1 copy, one of 3 validators lies": Plan(attackers=1, is_liar=True),
    "1 copy, one of 10 validators lies": Plan(attackers=1, is_liar=True, validators=10),
}
HARDER: dict[str, dict[str, Any]] = {
    "": {},
    " beside 29 copies": {"attackers": 29},
    " beside 29 new copies every day": {"attackers": 29, "is_daily": True},
    ", the race shifts skill by .3 logits": {"effect": 0.3},
    ", graded": {"is_graded": True},
}
IMPROVERS = {
    f"+{better} points{what}, {validators} validator{'s'[: validators - 1]}": Plan(
        better_e4=100 * better, validators=validators, **more
    )
    for better in (10, 5, 2)
    for what, more in HARDER.items()
    for validators in (1, 3, 10)
}


def rows(reigns: int, races: int, races_max: int) -> Iterator[str]:
    """One line a plan and rule, as soon as it is known."""
    for title, plan in PLANS.items():
        for policy in (PAPER, SN15_2026_08, None):
            dice = np.random.default_rng(7)
            ends = [
                list(reign(policy, plan, races, dice) if policy else ridges(plan, races, dice)) for _ in range(reigns)
            ]
            every = [share for end in ends for share in end]
            taken = sum(any(share.crown for share in end) for end in ends)
            crown, places, pay = (
                100 * sum(float(getattr(share, name)) for share in every) / len(every)
                for name in ("crown", "places", "pay")
            )
            said = f"crown {crown:3.0f} %  places {places:3.0f} %  pay {pay:3.0f} %  in {taken} of {reigns} reigns"
            yield f"{title:<54} {policy.name if policy else 'ridges':<13} {said}"
    for title, plan in IMPROVERS.items():
        dice = np.random.default_rng(7)
        first = sorted(
            next(
                (n for n, share in enumerate(reign(PAPER, plan, races_max, dice), 1) if share.top == "rival"), math.inf
            )
            for _ in range(reigns)
        )
        in_80 = first[math.ceil(0.8 * reigns) - 1]
        yield f"{title:<54} paper         in {in_80 if in_80 < math.inf else f'over {races_max}'} races (80 %)"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.crown", description=__doc__)
    parser.add_argument("--reigns", type=int, default=20, help="of each plan (default: 20)")
    parser.add_argument("--races", type=int, default=30, help="a reign (default: 30)")
    parser.add_argument("--races-max", type=int, default=150, help="that an improver is given (default: 150)")
    options = parser.parse_args()
    for row in rows(options.reigns, options.races, options.races_max):
        print(row, flush=True)


if __name__ == "__main__":
    main()
