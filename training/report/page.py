"""A document as one self-contained HTML file.

One file, no script, nothing loaded from anywhere; all text is escaped. The same document gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, get_args

import msgspec
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from training.charts import ChartLine, Dot, dot_chart, line_chart
from training.evaluation.report import Estimate, Method
from training.report.document import BENCHMARK_HARNESS, METRICS, OWN_HARNESS, Document, Family

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
