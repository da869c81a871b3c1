"""The figures of a report: which numbers of a document are drawn, and how they are grouped.

Promise: rows of different conditions never share a chart, and published rows are in none. A figure without numbers is
left out, not drawn empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from problems.model import BUCKETS
from training.report.chart import ChartLine, Dot, dot_chart, line_chart, strip_chart
from training.report.document import Document, Row
from training.report.series import METRICS


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart (SVG text) under its title, with what has to be known to read it."""

    title: str
    caption: str
    svg: str


def make_figures(document: Document) -> tuple[Figure, ...]:
    """All figures of a document, in reading order."""
    figures = []
    for named in document.conditions:
        rows = [row for row in document.rows if row.conditions == named.letter]
        where = f"Conditions {named.letter}: {named.conditions.set.name}, {named.conditions.set.problems} problems"
        if len(rows) < 2 and len(document.rows) > 1:
            continue  # nothing to compare: its numbers are in the tables
        for draw in (_asr, _pass_at_k, _buckets, _axes):
            figures += draw(rows, where)
    figures += [_curve(document, metric) for metric in METRICS]
    return tuple(figure for figure in figures if figure.svg)


def _asr(rows: Sequence[Row], where: str) -> list[Figure]:
    dots = [Dot(label=_name(row), value=row.asr.value, low=row.asr.low, high=row.asr.high) for row in rows]
    caption = f"{where}. Mean over problems, with 95 % intervals over problems."
    return [Figure(title="ASR by stage", caption=caption, svg=dot_chart(dots, x_name="ASR, pass@1"))]


def _pass_at_k(rows: Sequence[Row], where: str) -> list[Figure]:
    lines = [
        ChartLine(label=_name(row), points=tuple((float(k), one.value) for k, one in row.pass_at.items()))
        for row in rows
        if len(row.pass_at) > 1
    ]
    svg = line_chart(lines, x_name="k", y_name="pass@k", y_range=(0.0, 1.0))
    return [Figure(title="pass@k", caption=f"{where}. Unbiased estimator; intervals stand in the JSON form.", svg=svg)]


def _buckets(rows: Sequence[Row], where: str) -> list[Figure]:
    return [
        Figure(
            title=f"ASR of the bucket {bucket}",
            caption=f"{where}; those of the bucket alone.",
            svg=dot_chart(
                [
                    Dot(label=_name(row), value=one.value, low=one.low, high=one.high)
                    for row in rows
                    if (one := row.by_bucket.get(bucket)) is not None
                ],
                x_name=f"ASR, {bucket}",
            ),
        )
        for bucket in BUCKETS
    ]


def _axes(rows: Sequence[Row], where: str) -> list[Figure]:
    axes = list(dict.fromkeys(axis for row in rows for axis, share in row.axes.items() if share is not None))
    lines = [
        ChartLine(label=_name(row), points=tuple((float(place), row.axes.get(axis)) for place, axis in enumerate(axes)))
        for row in rows
    ]
    svg = strip_chart(axes, lines, x_name="hits over totals")
    return [Figure(title="Rule axes", caption=f"{where}. Hits over what the queries ask for, all episodes.", svg=svg)]


def _name(row: Row) -> str:
    """A row's label, which says where a guard ended its training."""
    return f"{row.label} (stopped)" if row.stopped_by else row.label


def _curve(document: Document, metric: str) -> Figure:
    lines = [
        ChartLine(label=run.label, points=tuple(zip(map(float, one.steps), one.values, strict=True)))
        for run in document.curves
        for one in run.series
        if one.metric == metric
    ]
    svg = line_chart(lines, x_name="step", y_name=METRICS[metric])
    return Figure(title=f"{METRICS[metric]} by step", caption="From the runs' own logs, unsmoothed.", svg=svg)
