"""Qualifying: does an agent pass the bar of the active suite with enough validators?

Pure function of what validators found. A problem whose result is owed keeps the agent pending; it is never a zero.
Only a broken problem is withdrawn, and when too much of the suite is, the agent stays pending too: nobody passes, or
fails, on a few lucky problems. Faults of a validator or an upstream close nothing here, so an agent that provokes them
never qualifies. Sources: docs/architecture.md#the-mechanism; SN15's validator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from arena.policy import Policy
from judge.rubric import lower_median

_UNIT = 10_000


class QualifyingResult(msgspec.Struct, frozen=True, kw_only=True):
    """One validator's score on one problem of the suite. None: the problem was withdrawn, nobody is charged."""

    validator: str
    problem_id: str
    score_e4: int | None


class Qualification(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent stands. `score_e4` is the lower median over finished validators, None before the first."""

    state: Literal["pending", "qualified", "unqualified"]
    score_e4: int | None
    passes: int
    finished: int


def qualify(results: Iterable[QualifyingResult], problem_ids: Iterable[str], policy: Policy) -> Qualification:
    """Judge an agent by X of Y validators, each by its mean over the suite (rounded down, ten-thousandths).

    The first result per (validator, problem) counts; results for other problems are ignored. A validator for whom more
    than `race.cancel_void_e4` of the suite is withdrawn has not finished.
    """
    suite, rules = frozenset(problem_ids), policy.qualifying
    by_validator: dict[str, dict[str, int | None]] = {}
    for result in results:
        if result.problem_id in suite:
            by_validator.setdefault(result.validator, {}).setdefault(result.problem_id, result.score_e4)
    means = []  # of what is left, for each validator that finished
    for scores in by_validator.values():
        counted = [score for score in scores.values() if score is not None]
        is_left = (len(scores) - len(counted)) * _UNIT <= policy.race.cancel_void_e4 * len(suite)
        if counted and is_left and scores.keys() == suite:
            means.append(sum(counted) // len(counted))
    passes = sum(mean >= rules.score_min_e4 for mean in means)
    finished = len(means)
    if passes >= rules.validators_required:
        state: Literal["pending", "qualified", "unqualified"] = "qualified"
    else:
        still_possible = passes + max(0, rules.validators_asked - finished)
        state = "pending" if still_possible >= rules.validators_required else "unqualified"
    return Qualification(state=state, score_e4=lower_median(means) if means else None, passes=passes, finished=finished)
