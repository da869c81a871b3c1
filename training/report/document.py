"""A report as one value: rows with the conditions they were taken under, tests between them, and curves of training.

Promise: pure; nothing is measured here. Every number of ours points to its conditions by a letter. Two results are
tested against each other only where their conditions are equal; every test made is shown, with its p value as it is and
corrected for their number (Holm 1979), and the difference with its interval whichever way it points. What each seed
came to stands beside the rate of all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from training.evaluate import Conditions, EvalReport, compare
from training.report.published import TABLE_1, Published
from training.report.series import RunCurves
from training.statistics import Estimate, Paired, difference_estimate

DOCUMENT_VERSION = 1
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class NamedConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions under a letter, which rows and tests refer to."""

    letter: str
    conditions: Conditions


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation of ours. Shares are in [0, 1] over problems; `episodes` counts the `unscored` ones too."""

    label: str
    conditions: str  # letter
    set: str
    is_reported: bool
    seeds: tuple[int, ...]
    asr: Estimate  # over all seeds
    asr_by_seed: tuple[float, ...]  # in the order of `seeds`
    gt_exact: Estimate
    by_bucket: dict[str, Estimate]
    axes: dict[str, float | None]
    pass_at: dict[str, Estimate]
    rule: float
    emission: float
    hallucinated: float
    steps: float
    episodes: int
    unscored: int
    overflows: int
    contamination: str
    weights: str
    lineage_sha256: str


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """`second` against `first` on the same problems.

    `difference` is second minus first in success, over problems, with its 95 % interval; `paired` the exact
    McNemar test on the first sample of each problem; `holm` its p value corrected for all tests of the document.
    """

    first: str
    second: str
    conditions: str
    difference: Estimate
    paired: Paired
    holm: float


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report shows."""

    version: int = DOCUMENT_VERSION
    title: str
    published: tuple[Published, ...]
    rows: tuple[Row, ...]
    tests: tuple[Test, ...]
    conditions: tuple[NamedConditions, ...]
    curves: tuple[RunCurves, ...]
    notes: tuple[str, ...] = ()


def make_document(
    reports: Sequence[EvalReport], curves: Sequence[RunCurves], *, title: str, notes: Sequence[str] = ()
) -> Document:
    """The document of these reports, in the order given: the first of each conditions is what others are held against.

    Raises ValueError for two reports of one label under one set of conditions.
    """
    names = _named(reports)
    letters = {_key(one.conditions): one.letter for one in names}
    seen: set[tuple[str, str]] = set()
    for report in reports:
        place = (report.label, letters[_key(report.conditions)])
        if place in seen:
            raise ValueError(f"{report.label} stands twice under the same conditions")
        seen.add(place)
    return Document(
        title=title,
        published=TABLE_1,
        rows=tuple(_row(report, letters[_key(report.conditions)]) for report in reports),
        tests=_tests(reports, letters, {one.lineage_sha256: one.parent_sha256 for one in curves if one.is_finished}),
        conditions=names,
        curves=tuple(curves),
        notes=tuple(notes),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given; each in [0, 1]."""
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted


def share_difference(first: EvalReport, second: EvalReport) -> Estimate:
    """Second minus first in the share of scored samples that succeed, over the problems both have scored.

    Raises ValueError when they share none.
    """
    mine = {one.problem_id: one.successes / one.scored for one in first.problems if one.scored}
    other = {one.problem_id: one.successes / one.scored for one in second.problems if one.scored}
    shared = sorted(mine.keys() & other.keys())
    return difference_estimate([other[name] - mine[name] for name in shared], first.conditions.seeds[0])


def _named(reports: Sequence[EvalReport]) -> tuple[NamedConditions, ...]:
    found: dict[bytes, Conditions] = {}
    for report in reports:
        found.setdefault(_key(report.conditions), report.conditions)
    return tuple(
        NamedConditions(letter=letter, conditions=one) for letter, one in zip(_letters(), found.values(), strict=False)
    )


def _letters() -> itertools.chain[str]:
    """A, B, ... Z, AA, AB, ..."""
    return itertools.chain(_LETTERS, ("".join(pair) for pair in itertools.product(_LETTERS, repeat=2)))


def _key(conditions: Conditions) -> bytes:
    return msgspec.json.encode(conditions, order="sorted")


def _row(report: EvalReport, letter: str) -> Row:
    return Row(
        label=report.label,
        conditions=letter,
        set=report.conditions.set.name,
        is_reported=report.conditions.set.is_reported,
        seeds=report.conditions.seeds,
        asr=report.asr,
        asr_by_seed=report.asr_by_seed,
        gt_exact=report.gt_exact,
        by_bucket=report.by_bucket,
        axes=report.axes,
        pass_at=report.pass_at,
        rule=report.rule,
        emission=report.emission,
        hallucinated=report.hallucinated,
        steps=report.steps,
        episodes=report.episodes,
        unscored=report.unscored,
        overflows=report.overflows,
        contamination=report.contamination,
        weights=report.weights,
        lineage_sha256=report.lineage_sha256,
    )


def _tests(reports: Sequence[EvalReport], letters: Mapping[bytes, str], parents: Mapping[str, str]) -> tuple[Test, ...]:
    """Each report against the first of its conditions and its parent's; the one before it where no lineage tells."""
    pairs: list[tuple[EvalReport, EvalReport]] = []
    for key in letters:
        alike = [report for report in reports if _key(report.conditions) == key]
        of_lineage = {report.lineage_sha256: report for report in alike}
        pairs += [(alike[0], other) for other in alike[1:]]
        for before, report in itertools.pairwise(alike):
            known = parents.get(report.lineage_sha256)
            above = before if known is None else of_lineage.get(known)
            if above is not None and above is not alike[0]:
                pairs.append((above, report))
    pairs = [pair for pair in pairs if _shares_problems(*pair)]
    paired = [compare(*pair) for pair in pairs]
    corrected = holm([one.p_value for one in paired])
    return tuple(
        Test(
            first=first.label,
            second=second.label,
            conditions=letters[_key(first.conditions)],
            difference=share_difference(first, second),
            paired=result,
            holm=p_value,
        )
        for (first, second), result, p_value in zip(pairs, paired, corrected, strict=True)
    )


def _shares_problems(first: EvalReport, second: EvalReport) -> bool:
    scored = {one.problem_id for one in first.problems if one.scored}
    return any(one.scored and one.problem_id in scored for one in second.problems)
