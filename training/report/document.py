"""A report as one value, and as one HTML file: rows with their conditions, tests between them, curves of training.

Pure; nothing is measured here. Every number of ours points to its conditions by a letter. Two results are
tested against each other only where their conditions are equal; every test made is shown, with its p value as it is and
corrected for the number of its family (Holm 1979), and the difference with its interval whichever way it points. There
are two families, so that neither changes the other's numbers: between stages, and of ablations, each against the run
of all filters. What each seed came to stands beside the rate of all of them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from foundation.errors import ArenaError
from training.charts import ChartLine, Dot, dot_chart, line_chart
from training.evaluation.report import (
    Estimate,
    EvalReport,
    EvaluationConditions,
    Method,
    Paired,
    compare,
    difference_estimate,
)
from training.model import RunLineage
from training.run import LINEAGE, RECIPE, lineage_sha256

METRICS: dict[str, str] = {  # key in the log -> what it is called
    "loss": "loss",
    "reward": "reward",
    "kl": "KL to the parent",
    "groups/mixed": "groups whose rewards differ",
    "emission_rate": "emission on dev",
    "logprob_gap": "sampler to trainer, mean |Δ logprob|",
    "grad_norm": "gradient norm",
}
_LOGS = "log*.jsonl"
_Line = dict[str, float | None]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric by step; `values` holds None where the log holds no number."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]


class RunCurves(msgspec.Struct, frozen=True, kw_only=True):
    """The curves of one run. `lineage_sha256` is "" for one that is not finished, and `steps` those logged so far."""

    label: str
    series: tuple[Series, ...]
    steps: int = 0
    stopped_by: str = ""  # the guard that ended it
    lineage_sha256: str = ""
    parent_sha256: str = ""
    code_commit: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether there is a checkpoint."""
        return bool(self.lineage_sha256)


def read_curves(folder: Path) -> tuple[RunCurves, ...]:
    """The curves of a run's folder; a swept run has one for each learning rate.

    Raises ArenaError V2124 for a folder that is no run.
    """
    if not (folder / RECIPE).exists():
        raise ArenaError("V2124", f"{folder} is no folder of a run")
    name = folder.name
    end = _end(folder)
    logs = sorted(folder.glob(_LOGS))
    if not logs:
        return (RunCurves(label=name, series=(), **end),)
    found = []
    for log in logs:
        rows = sorted(_lines(log), key=lambda row: row["step"] or 0)
        said = name if len(logs) == 1 else f"{name} {log.stem.removeprefix('log').strip('-_')}".strip()
        logged = {"steps": max((int(row["step"] or 0) for row in rows), default=0)}
        series = []
        for metric in METRICS:
            points = [(int(row["step"] or 0), row[metric]) for row in rows if metric in row]
            if points:
                values = tuple(value if value is not None and math.isfinite(value) else None for _, value in points)
                series.append(Series(metric=metric, steps=tuple(step for step, _ in points), values=values))
        found.append(RunCurves(label=said, series=tuple(series), **(logged | end)))
    return tuple(found)


def _end(folder: Path) -> dict[str, Any]:
    """What the lineage says of a finished run."""
    path = folder / LINEAGE
    if not path.exists():
        return {}
    try:
        lineage = msgspec.json.decode(path.read_bytes(), type=RunLineage)
    except msgspec.DecodeError as error:
        raise ArenaError("V2124", f"{path}: {error}") from error
    return {
        "steps": lineage.steps,
        "stopped_by": lineage.stopped_by,
        "lineage_sha256": lineage_sha256(lineage),
        "parent_sha256": lineage.parent_sha256,
        "code_commit": lineage.versions.code_commit,
    }


def _lines(log: Path) -> list[_Line]:
    rows: list[_Line] = []
    for line in log.read_bytes().splitlines():
        try:
            row = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError:
            continue  # cut by a kill; the run writes it again
        if "step" in row:
            rows.append(row)
    return rows


DOCUMENT_VERSION = 1
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ARM_MARK, _CONTROL_ARM = "@", "full"  # an ablation's label is NAME@ARM or NAME@ARM-SEED

Family = Literal["stages", "ablations"]


OWN_HARNESS = "7-tool ORO ShoppingBench harness, production-strict, the paper's 75 held-out problems"
BENCHMARK_HARNESS = "the ShoppingBench paper's own harness and test set, as Table 1 quotes it"


class Published(msgspec.Struct, frozen=True):
    """One row of the paper's Table 1, as printed: what ours are laid beside, and never tested against.

    Shares are in thousandths of the whole; None where the table prints none. It prints no intervals.
    """

    label: str
    group: str
    harness: str
    asr_e3: int | None  # on the 75
    second_e3: int | None  # on the second set of 90
    notes: str
    pass_at_1_e3: int | None = None
    pass_at_8_e3: int | None = None
    source: str = "Table 1"


_BASELINES = ("Published baselines from the ShoppingBench paper", BENCHMARK_HARNESS)
_FRONTIER = ("Frontier closed-source baselines", OWN_HARNESS)
_STACK = ("SFT stack progression of the paper", OWN_HARNESS)
TABLE_1 = (
    Published("Qwen3-4B base", *_BASELINES, 180, None, "Paper baseline"),
    Published(
        "Qwen3-4B + paper SFT (synthetic)", *_BASELINES, 436, None, "Paper recipe with synthetic GPT-4.1 trajectories"
    ),
    Published("Qwen3-4B + paper SFT+GRPO", *_BASELINES, 487, None, "Paper bar this work is measured against"),
    Published("GPT-5.5", *_FRONTIER, 387, 344, ""),
    Published("Claude Sonnet 4.6", *_FRONTIER, 640, None, "Frontier teacher; sourced rollouts for Stage 3"),
    Published("rejection_v2", *_STACK, 347, 256, "Rejection-sampled re-SFT"),
    Published("opd_sonnet", *_STACK, 347, 333, "Continued teacher-SFT"),
    Published("opd_rebal", *_STACK, 400, 333, "Voucher-balanced teacher corpus"),
    Published("opd_renderers (final SFT stack)", *_STACK, 427, 356, "Final reported model", 348, 533),
    Published("+ KTO (β = 0.02, 1 ep)", *_STACK, 427, None, "No net lift on parity eval; bucket-level redistribution"),
    Published("+ KTO (β = 0.01, 2 ep)", *_STACK, 351, None, "Negative result; over-optimised"),
    Published(
        "+ Dr. GRPO v19 (per-step tool-match)",
        *_STACK,
        None,
        None,
        "Process climb: rule_score 0.02 → 0.42; hallucinations 14 → 0; exact-match unchanged",
    ),
    Published(
        "agent_23175",
        "Top miner of the paper's leaderboard",
        OWN_HARNESS,
        773,
        None,
        "Multi-LLM ensemble; 90-set: about 65%",
    ),
)


class NamedConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions under a letter, which rows and tests refer to."""

    letter: str
    conditions: EvaluationConditions


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation of ours, under the letter of its conditions.

    `trained_steps`, `stopped_by` (a guard, "" for none) and `trained_commit` are of the checkpoint's run, where one is
    given.
    """

    report: EvalReport
    letter: str
    trained_steps: int | None = None
    stopped_by: str = ""
    trained_commit: str = ""

    @property
    def label(self) -> str:
        """Of the report."""
        return self.report.label

    @property
    def ending(self) -> str:
        """That a guard ended its training, and when; "" where none did."""
        return f"stopped after {self.trained_steps} steps: {self.stopped_by.split(':')[0]}" if self.stopped_by else ""


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """`second` against `first` on the same problems.

    `difference` is second minus first in success, over problems, with its 95 % interval; `paired` the exact
    McNemar test on the first sample of each problem; `holm` its p value corrected for all tests of its family.
    """

    family: Family = "stages"
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


def make_document(reports: Sequence[EvalReport], curves: Sequence[RunCurves], *, title: str) -> Document:
    """The document of these reports, in the order given: the first of each conditions is what others are held against,
    an ablation against what its label says (`controls_of`).

    Raises ValueError for two reports of one label under one set of conditions.
    """
    found: dict[bytes, EvaluationConditions] = {}
    for report in reports:
        found.setdefault(_key(report.conditions), report.conditions)
    alphabet = itertools.chain(_LETTERS, ("".join(pair) for pair in itertools.product(_LETTERS, repeat=2)))
    letters = dict(zip(found, alphabet, strict=False))
    places = Counter((report.label, letters[_key(report.conditions)]) for report in reports)
    if twice := [label for (label, _), count in places.items() if count > 1]:
        raise ValueError(f"{twice[0]} stands twice under the same conditions")
    runs = {one.lineage_sha256: one for one in curves if one.is_finished}
    controls = controls_of(report.label for report in reports)
    stages = [report for report in reports if report.label not in controls]
    parents = {lineage: run.parent_sha256 for lineage, run in runs.items()}
    return Document(
        title=title,
        published=TABLE_1,
        rows=tuple(_row(one, letters[_key(one.conditions)], runs.get(one.lineage_sha256)) for one in reports),
        tests=(
            *_tests("stages", _stage_pairs(stages, parents), letters),
            *_tests("ablations", _ablation_pairs(reports, controls), letters),
        ),
        conditions=tuple(NamedConditions(letter=letters[key], conditions=one) for key, one in found.items()),
        curves=tuple(curves),
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


def _row(report: EvalReport, letter: str, run: RunCurves | None) -> Row:
    if run is None:
        return Row(report=report, letter=letter)
    return Row(
        report=report,
        letter=letter,
        trained_steps=run.steps,
        stopped_by=run.stopped_by,
        trained_commit=run.code_commit,
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
        )
        for (first, second), result, p_value in zip(pairs, paired, corrected, strict=True)
    ]


TEMPLATE = "page.html.j2"
METHODS: Mapping[Method, tuple[str, str]] = {  # how an interval was taken -> its letter, and what it is
    "wilson": ("w", "Wilson's score interval of a share, where each problem counts 0 or 1"),
    "newcombe": ("n", "Newcombe's score interval of a difference, where each problem counts 0 or 1 in both"),
    "bootstrap": ("b", "percentile bootstrap, where several samples of each problem are averaged"),
    "unseen": ("u", "Wilson's interval, where every problem came out the same"),
}


def render_page(document: Document) -> str:
    """The HTML of a document."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(share=_share, interval=_interval, p=p_text, points=_points)
    environment.filters["signed"] = lambda share: f"{100 * share:+.1f}"
    environment.filters["thousandths"] = lambda value: "–" if value is None else f"{value / 10:.1f}%"
    environment.filters.update(
        # tokens: 0 where a model was asked is a number that nobody counted; a model without a price comes to 0
        count=lambda value: "–" if value is None else f"{value:,.0f}" if value else "not counted",
        dollars=lambda micro: "–" if micro is None else f"{micro / 1_000_000:.6f}" if micro else "no price",
        duration=_duration,
    )
    groups: dict[str, list[Any]] = {}
    for row in document.published:
        groups.setdefault(row.group, []).append(row)
    template = environment.from_string(files("training.report").joinpath(TEMPLATE).read_text("utf-8"))
    return template.render(
        document=document,
        figures=[(figure, Markup(figure.svg)) for figure in make_figures(document)],  # made by us, escaped there
        groups=groups,
        methods=METHODS,
        families={family: [test for test in document.tests if test.family == family] for family in get_args(Family)},
        harnesses=(BENCHMARK_HARNESS, OWN_HARNESS),
    )


def p_text(value: float) -> str:
    """A p value as it is printed: three decimals, or that it is below .001."""
    return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def _duration(ms: float | None) -> str:
    if ms is None:
        return "–"
    return f"{ms / 1_000:.1f} s" if ms >= 1_000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    value, low, high = map(_share, (estimate.value, estimate.low, estimate.high))
    return Markup("{}<small>[{}, {}] {}</small>").format(value, low, high, METHODS[estimate.method][0])


def _points(estimate: Estimate) -> str:
    """A difference in percentage points, with the letter of its interval."""
    value, low, high = (100 * one for one in (estimate.value, estimate.low, estimate.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] {METHODS[estimate.method][0]}"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart (SVG text) under its title, with what has to be known to read it."""

    title: str
    caption: str
    svg: str


def make_figures(document: Document) -> tuple[Figure, ...]:
    """All figures of a document, in reading order: rows of different conditions never share a chart, published rows are
    in none, and a figure without numbers is left out."""
    figures = []
    for named in document.conditions:
        rows = [row for row in document.rows if row.letter == named.letter]
        if len(rows) < 2 and len(document.rows) > 1:
            continue  # nothing to compare: its numbers are in the tables
        labels = [f"{row.label} (stopped)" if row.stopped_by else row.label for row in rows]  # by a guard
        where = f"Conditions {named.letter}: {named.conditions.set.name}, {named.conditions.set.problems} problems"
        dots = [
            Dot(label=label, value=row.report.asr.value, low=row.report.asr.low, high=row.report.asr.high)
            for label, row in zip(labels, rows, strict=True)
        ]
        caption = f"{where}. Mean over problems, with 95 % intervals over problems."
        figures.append(Figure(title="ASR by stage", caption=caption, svg=dot_chart(dots, x_name="ASR, pass@1")))
        lines = [
            ChartLine(label=label, points=tuple((float(k), one.value) for k, one in row.report.pass_at.items()))
            for label, row in zip(labels, rows, strict=True)
            if len(row.report.pass_at) > 1
        ]
        svg = line_chart(lines, x_name="k", y_name="pass@k", y_range=(0.0, 1.0))
        caption = f"{where}. Unbiased estimator; intervals stand in the JSON form."
        figures.append(Figure(title="pass@k", caption=caption, svg=svg))
    for metric, name in METRICS.items():
        lines = [
            ChartLine(label=run.label, points=tuple(zip(map(float, one.steps), one.values, strict=True)))
            for run in document.curves
            for one in run.series
            if one.metric == metric
        ]
        svg = line_chart(lines, x_name="step", y_name=name)
        figures.append(
            Figure(title=f"{name} by step", caption="From the logs of those runs that kept them, unsmoothed.", svg=svg)
        )
    return tuple(figure for figure in figures if figure.svg)
