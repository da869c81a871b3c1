"""The tests of a study, as they were written down before it ran, and what they came to.

Which rows, set, decoding and statistic are compared stands in a file that the plan's folder holds
(`hypotheses.toml`); nothing here chooses. A test is made when all of its rows are finished, and not before: a part of
them has no p value. Holm's correction is over all tests of the file, those not made yet counted as p = 1. Comparisons
that were named later (`comparisons.toml`) are made in the same way, corrected among themselves, and shown apart.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from foundation.errors import ArenaError
from training.evaluation.report import compare
from training.evaluation.resampling import seed_interval, seed_spread, sign_flip_p
from training.report.claims import RowComparison, SetDifference, StudyClaim
from training.report.document import holm
from training.study.findings.notes import Limits
from training.study.findings.results import RowResult
from training.study.measure import CONTROLS, SET_NAMES
from training.study.parts import BASE
from training.study.plan import SetKey, StudyPlan

HYPOTHESES, COMPARISONS = "hypotheses.toml", "comparisons.toml"
FROZEN: SetKey = "eval"  # shown beside, and decides nothing


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`better` solves more than `worse`: rows without their seed. `better` against `control` is shown beside.

    `decode` names another decoding of the plan than the tests' ("": theirs), for a row that has no other.
    """

    name: str
    better: str
    worse: str
    control: str = ""
    decode: str = ""


class Hypotheses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All tests of a study. `p_value` and `beside` name decodings of the plan."""

    alpha: float
    set: SetKey
    p_value: str
    beside: str
    seeds: tuple[int, ...]
    draws_seed: int
    hypotheses: tuple[Hypothesis, ...]


class Comparisons(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is compared beside the tests, by their set, decodings and seeds."""

    comparisons: tuple[Hypothesis, ...] = ()


AskedT = TypeVar("AskedT", Hypotheses, Comparisons, Limits)


def read_asked(path: Path, kind: type[AskedT]) -> AskedT:
    """The file's tests, comparisons or limits. Raises ArenaError V2120."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), kind)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ArenaError("V2120", f"{path}: {error}") from error


def run_tests(asked: Hypotheses, plan: StudyPlan, results: Mapping[str, RowResult]) -> tuple[StudyClaim, ...]:
    """Every test, made or not. Raises KeyError for a decoding the plan lacks."""
    compared = [_compared(asked, plan, results, one, one.worse) for one in asked.hypotheses]
    corrected = holm([1.0 if found is None else found.p_value for found in compared])
    return tuple(
        StudyClaim(
            name=one.name,
            alpha=asked.alpha,
            missing=tuple(row for row in rows_of(asked, one) if row not in results),
            comparison=found,
            holm=None if found is None else p_value,
            control=_compared(asked, plan, results, one, one.control) if one.control else None,
        )
        for one, found, p_value in zip(asked.hypotheses, compared, corrected, strict=True)
    )


def rows_of(asked: Hypotheses, one: Hypothesis) -> tuple[str, ...]:
    """The rows that a test needs."""
    return tuple(dict.fromkeys(_row(recipe, seed) for recipe in (one.better, one.worse) for seed in asked.seeds))


def _compared(
    asked: Hypotheses, plan: StudyPlan, results: Mapping[str, RowResult], one: Hypothesis, worse: str
) -> RowComparison | None:
    """`one.better` against `worse`; None while a row is missing."""
    found = [(results.get(_row(worse, seed)), results.get(_row(one.better, seed))) for seed in asked.seeds]
    pairs = [(mine, other) for mine, other in found if mine is not None and other is not None]
    if len(pairs) < len(found):
        return None
    decodes = {rules.name: rules.temperature for rules in plan.decodes}
    drawn, beside = decodes[one.decode or asked.p_value], decodes[asked.beside]
    place, frozen = SET_NAMES[asked.set], SET_NAMES[FROZEN]
    differences = _differences(pairs, place, drawn)
    mean, low, high = seed_interval(differences, asked.draws_seed)
    by_seed = tuple(sum(values) / len(values) for values in differences)
    exact = [compare(mine.report(place, beside), other.report(place, beside)) for mine, other in pairs]
    is_frozen = asked.set != FROZEN and all(row.has_report(frozen, drawn) for pair in pairs for row in pair)
    return RowComparison(
        better=one.better,
        worse=worse,
        problems=len(differences[0]),
        difference=mean,
        low=low,
        high=high,
        by_seed=by_seed,
        p_value=sign_flip_p([sum(values) / len(values) for values in zip(*differences, strict=True)], asked.draws_seed),
        greedy=tuple((test.p_value, test.second_only, test.first_only) for test in exact),
        spread=seed_spread(by_seed),
        frozen=_set_difference(pairs, frozen, drawn, asked.draws_seed) if is_frozen else None,
        decode=one.decode,
    )


def _set_difference(
    pairs: Sequence[tuple[RowResult, RowResult]], place: str, temperature: float, draws_seed: int
) -> SetDifference:
    differences = _differences(pairs, place, temperature)
    mean, low, high = seed_interval(differences, draws_seed)
    return SetDifference(set=place, problems=len(differences[0]), difference=mean, low=low, high=high)


def _differences(pairs: Sequence[tuple[RowResult, RowResult]], place: str, temperature: float) -> list[list[float]]:
    """Second minus first by seed and problem, over the problems that all have scored: shares of successes."""
    reports = [[row.report(place, temperature) for row in pair] for pair in pairs]
    shares = [
        [{one.problem_id: one.successes / one.scored for one in report.problems if one.scored} for report in pair]
        for pair in reports
    ]
    shared = sorted(set.intersection(*(mine.keys() & other.keys() for mine, other in shares)))
    return [[other[name] - mine[name] for name in shared] for mine, other in shares]


def _row(recipe: str, seed: int) -> str:
    return recipe if recipe in (BASE, *CONTROLS) else f"{recipe}-{seed}"
