"""A report as one value: rows with the conditions they were taken under, tests between them, and curves of training.

Pure; nothing is measured here. Every number of ours points to its conditions by a letter. Two results are
tested against each other only where their conditions are equal; every test made is shown, with its p value as it is and
corrected for the number of its family (Holm 1979), and the difference with its interval whichever way it points. There
are two families, so that neither changes the other's numbers: between stages, and of ablations, each against the run
of all filters. What each seed came to stands beside the rate of all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from training.evaluation.report import EvalReport, EvaluationConditions, SetSpend, compare
from training.evaluation.statistics import Estimate, Paired, difference_estimate
from training.report.claims import Endings, StudyClaim
from training.report.published import TABLE_1, Published
from training.report.series import RunCurves

DOCUMENT_VERSION = 5  # 2: claims and endings were notes; 3: comparisons too; 4: no commits, and weights by version
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ARM_MARK, _CONTROL_ARM = "@", "full"  # an ablation's label is NAME@ARM or NAME@ARM-SEED

Family = Literal["stages", "ablations"]


class NamedConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions under a letter, which rows and tests refer to."""

    letter: str
    conditions: EvaluationConditions


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation of ours. Shares are in [0, 1] over problems; `episodes` counts the `unscored` ones too.

    `rule` to `steps` are means over scored episodes; where `is_over_all`, an earlier version took `emission`,
    `hallucinated` and `steps` over all. `trained_steps` and `stopped_by` (a guard, "" for none) are of the checkpoint's
    run, None where no run is given. `weights` is what the sampler was called (a lineage, a served model's name),
    `weights_sha256` the weights' own hash, "" where nobody told; the commits are those of the code, "" where not known.
    """

    label: str
    conditions: str  # letter
    set: str
    is_reported: bool
    seeds: tuple[int, ...]
    asr: Estimate  # over all seeds
    asr_by_seed: tuple[float, ...]  # in the order of `seeds`
    gt_exact: Estimate
    partial: Estimate | None = None  # None: not recorded
    by_bucket: dict[str, Estimate]
    axes: dict[str, float | None]
    pass_at: dict[str, Estimate]
    rule: float
    emission: float
    hallucinated: float
    steps: float
    is_over_all: bool = False
    trained_steps: int | None = None
    stopped_by: str = ""
    episodes: int
    unscored: int
    overflows: int
    contamination: str
    spent: SetSpend | None = None  # None: not recorded
    processor_s: float | None = None  # of the process that ran the episodes, turns of several sampled together
    weights: str
    weights_sha256: str = ""
    lineage_sha256: str
    trained_commit: str = ""
    measured_commit: str = ""

    @property
    def processor_ms_a_solved(self) -> float | None:
        """Processor time for each sample that succeeds, those that failed paid for too; None where none did."""
        solved = sum(self.asr_by_seed) / len(self.asr_by_seed) * (self.episodes - self.unscored)
        return 1_000 * self.processor_s / solved if self.processor_s is not None and solved else None

    @property
    def ending(self) -> str:
        """That a guard ended its training, and when; "" where none did."""
        return f"stopped after {self.trained_steps} steps: {self.stopped_by.split(':')[0]}" if self.stopped_by else ""


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """`second` against `first` on the same problems.

    `difference` is second minus first in success, over problems, with its 95 % interval; `paired` the exact
    McNemar test on the first sample of each problem; `holm` its p value corrected for all tests of its family;
    `matched` what an ablation has in common with the first, "" where nothing was said.
    """

    family: Family = "stages"
    first: str
    second: str
    conditions: str
    difference: Estimate
    paired: Paired
    holm: float
    matched: str = ""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report shows. `arms` says of each ablation what it was trained on, a line an arm.

    What follows it is a study's: tests that were named before any run, comparisons that were not, what limits both, how
    episodes ended, what else was looked at, and what of the plan is open.
    """

    version: int = DOCUMENT_VERSION
    title: str
    published: tuple[Published, ...]
    rows: tuple[Row, ...]
    tests: tuple[Test, ...]
    conditions: tuple[NamedConditions, ...]
    curves: tuple[RunCurves, ...]
    notes: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    claims: tuple[StudyClaim, ...] = ()
    comparisons: tuple[StudyClaim, ...] = ()
    limits: tuple[str, ...] = ()
    endings: tuple[Endings, ...] = ()
    explored: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def overview(self) -> list[tuple[list[NamedConditions], dict[str, list[Row]]]]:
        """Labels that stand under the same conditions, two at least of each, with their rows in that order."""
        by_label: dict[str, list[Row]] = {}
        for row in self.rows:
            by_label.setdefault(row.label, []).append(row)
        named = {one.letter: one for one in self.conditions}
        groups: dict[tuple[str, ...], dict[str, list[Row]]] = {}
        for label, rows in by_label.items():
            ordered = sorted(rows, key=lambda row: (len(row.conditions), row.conditions))
            groups.setdefault(tuple(row.conditions for row in ordered), {})[label] = ordered
        return [
            ([named[letter] for letter in letters], labels)
            for letters, labels in groups.items()
            if len(letters) > 1 and len(labels) > 1
        ]


def make_document(
    reports: Sequence[EvalReport],
    curves: Sequence[RunCurves],
    *,
    title: str,
    notes: Sequence[str] = (),
    arms: Sequence[str] = (),
    claims: Sequence[StudyClaim] = (),
    comparisons: Sequence[StudyClaim] = (),
    limits: Sequence[str] = (),
    endings: Sequence[Endings] = (),
    explored: Sequence[str] = (),
    lacking: Sequence[str] = (),
    controls: Mapping[str, str] | None = None,
    matched: Mapping[str, str] = {},
    processor_s: Mapping[tuple[str, str, float], float] = {},
    measured_commits: Mapping[str, str] = {},
) -> Document:
    """The document of these reports, in the order given: the first of each conditions is what others are held against.

    `controls` says of each ablation's label which label it is held against, its own for the control itself; None: as
    the labels of the reports say (`controls_of`); `matched` what it has in common with that. `processor_s` is what
    reports took, by label, name of the set and temperature, where that was kept; `measured_commits` by label. Raises
    ValueError for two reports of one label under one set of conditions.
    """
    found: dict[bytes, EvaluationConditions] = {}
    for report in reports:
        found.setdefault(_key(report.conditions), report.conditions)
    alphabet = itertools.chain(_LETTERS, ("".join(pair) for pair in itertools.product(_LETTERS, repeat=2)))
    names = tuple(
        NamedConditions(letter=letter, conditions=one) for letter, one in zip(alphabet, found.values(), strict=False)
    )
    letters = {_key(one.conditions): one.letter for one in names}
    seen: set[tuple[str, str]] = set()
    for report in reports:
        place = (report.label, letters[_key(report.conditions)])
        if place in seen:
            raise ValueError(f"{report.label} stands twice under the same conditions")
        seen.add(place)
    runs = {one.lineage_sha256: one for one in curves if one.is_finished}
    if controls is None:
        controls = controls_of(report.label for report in reports)
    stages = [report for report in reports if report.label not in controls]
    parents = {lineage: run.parent_sha256 for lineage, run in runs.items()}
    tests = _tests("stages", _stage_pairs(stages, parents), letters)
    tests += _tests("ablations", _ablation_pairs(reports, controls), letters, matched)
    return Document(
        title=title,
        published=TABLE_1,
        rows=tuple(
            _row(
                report,
                letters[_key(report.conditions)],
                runs.get(report.lineage_sha256),
                processor_s.get((report.label, report.conditions.set.name, report.conditions.decode.temperature)),
                measured_commits.get(report.label, ""),
            )
            for report in reports
        ),
        tests=tuple(tests),
        conditions=names,
        curves=tuple(curves),
        notes=tuple(notes),
        arms=tuple(arms),
        claims=tuple(claims),
        comparisons=tuple(comparisons),
        limits=tuple(limits),
        endings=tuple(endings),
        explored=tuple(explored),
        lacking=tuple(lacking),
    )


def controls_of(labels: Iterable[str]) -> dict[str, str]:
    """Of the labels NAME@ARM, the NAME@full that each is held against, where it is among them too; of NAME@ARM-SEED the
    NAME-SEED."""
    known, found = set(labels), {}
    for label in sorted(known):
        name, mark, rest = label.partition(_ARM_MARK)
        controls = (f"{name}{_ARM_MARK}{_CONTROL_ARM}", f"{name}-{rest.rpartition('-')[2]}") if mark else ()
        control = next((one for one in controls if one in known), None)
        if control is not None:
            found[label] = control
    return found


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
    return difference_estimate(
        [mine[name] for name in shared], [other[name] for name in shared], first.conditions.seeds[0]
    )


def _key(conditions: EvaluationConditions) -> bytes:
    return msgspec.json.encode(conditions, order="sorted")


def _row(
    report: EvalReport, letter: str, run: RunCurves | None, processor_s: float | None, measured_commit: str
) -> Row:
    return Row(
        label=report.label,
        conditions=letter,
        set=report.conditions.set.name,
        is_reported=report.conditions.set.is_reported,
        seeds=report.conditions.seeds,
        asr=report.asr,
        asr_by_seed=report.asr_by_seed,
        gt_exact=report.gt_exact,
        partial=report.partial,
        by_bucket=report.by_bucket,
        axes=report.axes,
        pass_at=report.pass_at,
        rule=report.rule,
        emission=report.emission,
        hallucinated=report.hallucinated,
        steps=report.steps,
        is_over_all=report.version < 2 and report.unscored > 0,
        trained_steps=run.steps if run else None,
        stopped_by=run.stopped_by if run else "",
        episodes=report.episodes,
        unscored=report.unscored,
        overflows=report.overflows,
        contamination=report.contamination,
        spent=report.spent,
        processor_s=processor_s,
        weights=report.weights,
        weights_sha256=report.weights_sha256,
        lineage_sha256=report.lineage_sha256,
        trained_commit=run.code_commit if run else "",
        measured_commit=measured_commit,
    )


def _stage_pairs(reports: Sequence[EvalReport], parents: Mapping[str, str]) -> list[tuple[EvalReport, EvalReport]]:
    """Each report against the first of its conditions and its parent's.

    The one before it stands for a parent that no run tells of; a control, which has no lineage where runs have theirs,
    has none.
    """
    pairs: list[tuple[EvalReport, EvalReport]] = []
    for alike in _by_conditions(reports):
        of_lineage = {report.lineage_sha256: report for report in alike if report.lineage_sha256}
        pairs += [(alike[0], other) for other in alike[1:]]
        for before, report in itertools.pairwise(alike):
            known = parents.get(report.lineage_sha256)
            if known is not None:
                above = of_lineage.get(known)
            else:
                above = before if report.lineage_sha256 or not parents else None
            if above is not None and above is not alike[0]:
                pairs.append((above, report))
    return pairs


def _ablation_pairs(reports: Sequence[EvalReport], controls: Mapping[str, str]) -> list[tuple[EvalReport, EvalReport]]:
    """Each ablation against its control under the same conditions."""
    pairs = []
    for alike in _by_conditions(reports):
        of_label = {report.label: report for report in alike}
        held = ((of_label.get(controls.get(report.label, "")), report) for report in alike)
        pairs += [(control, report) for control, report in held if control is not None and control is not report]
    return pairs


def _by_conditions(reports: Sequence[EvalReport]) -> list[list[EvalReport]]:
    found: dict[bytes, list[EvalReport]] = {}
    for report in reports:
        found.setdefault(_key(report.conditions), []).append(report)
    return list(found.values())


def _tests(
    family: Family,
    pairs: Sequence[tuple[EvalReport, EvalReport]],
    letters: Mapping[bytes, str],
    matched: Mapping[str, str] = {},
) -> list[Test]:
    """One family of tests, of the pairs that share a scored problem."""
    scored = {
        id(report): {one.problem_id for one in report.problems if one.scored} for pair in pairs for report in pair
    }
    pairs = [(first, second) for first, second in pairs if scored[id(first)] & scored[id(second)]]
    paired = [compare(*pair) for pair in pairs]
    corrected = holm([one.p_value for one in paired])
    return [
        Test(
            family=family,
            first=first.label,
            second=second.label,
            conditions=letters[_key(first.conditions)],
            difference=share_difference(first, second),
            paired=result,
            holm=p_value,
            matched=matched.get(second.label, ""),
        )
        for (first, second), result, p_value in zip(pairs, paired, corrected, strict=True)
    ]
