"""Qualifying: does an agent pass the bar of the active suite with enough validators?

Pure function of the scores validators gave. A problem whose result is owed keeps the agent pending; it is never a zero.
Sources: DESIGN section 9; SN15 mechanics, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from arena.policy import QualifyingRules
from judge.panel import lower_median


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


def qualify(results: Iterable[QualifyingResult], problem_ids: Iterable[str], rules: QualifyingRules) -> Qualification:
    """Judge an agent by X of Y validators, each by its mean over the suite (rounded down, ten-thousandths).

    The first result per (validator, problem) counts; results for other problems are ignored.
    """
    suite = frozenset(problem_ids)
    by_validator: dict[str, dict[str, int | None]] = {}
    for result in results:
        if result.problem_id in suite:
            by_validator.setdefault(result.validator, {}).setdefault(result.problem_id, result.score_e4)
    means = [mean for scores in by_validator.values() if (mean := _mean(scores, suite)) is not None]
    passes = sum(mean >= rules.score_min_e4 for mean in means)
    finished = len(means)
    return Qualification(
        state=_state(passes, finished, rules),
        score_e4=lower_median(means) if means else None,
        passes=passes,
        finished=finished,
    )


def _mean(scores: dict[str, int | None], suite: frozenset[str]) -> int | None:
    """The mean of a finished suite, or None while results are owed or when nothing of it is left."""
    if scores.keys() != suite:
        return None
    counted = [score for score in scores.values() if score is not None]
    return sum(counted) // len(counted) if counted else None


def _state(passes: int, finished: int, rules: QualifyingRules) -> Literal["pending", "qualified", "unqualified"]:
    if passes >= rules.validators_required:
        return "qualified"
    still_possible = passes + max(0, rules.validators_asked - finished)
    return "pending" if still_possible >= rules.validators_required else "unqualified"
