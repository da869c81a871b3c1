"""The figures of a report: which numbers of a document are drawn, and how they are grouped.

Rows of different conditions never share a chart, and published rows are in none. A figure without numbers is
left out, not drawn empty.
"""

from __future__ import annotations

import msgspec

from problems.model import BUCKETS
from training.charts import ChartLine, Dot, dot_chart, line_chart, strip_chart
from training.report.document import Document
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
        if len(rows) < 2 and len(document.rows) > 1:
            continue  # nothing to compare: its numbers are in the tables
        labels = [f"{row.label} (stopped)" if row.stopped_by else row.label for row in rows]  # by a guard
        where = f"Conditions {named.letter}: {named.conditions.set.name}, {named.conditions.set.problems} problems"
        dots = [
            Dot(label=label, value=row.asr.value, low=row.asr.low, high=row.asr.high)
            for label, row in zip(labels, rows, strict=True)
        ]
        caption = f"{where}. Mean over problems, with 95 % intervals over problems."
        figures.append(Figure(title="ASR by stage", caption=caption, svg=dot_chart(dots, x_name="ASR, pass@1")))
        lines = [
            ChartLine(label=label, points=tuple((float(k), one.value) for k, one in row.pass_at.items()))
            for label, row in zip(labels, rows, strict=True)
            if len(row.pass_at) > 1
        ]
        svg = line_chart(lines, x_name="k", y_name="pass@k", y_range=(0.0, 1.0))
        caption = f"{where}. Unbiased estimator; intervals stand in the JSON form."
        figures.append(Figure(title="pass@k", caption=caption, svg=svg))
        for bucket in BUCKETS:
            dots = [
                Dot(label=label, value=one.value, low=one.low, high=one.high)
                for label, row in zip(labels, rows, strict=True)
                if (one := row.by_bucket.get(bucket)) is not None
            ]
            svg = dot_chart(dots, x_name=f"ASR, {bucket}")
            caption = f"{where}; those of the bucket alone."
            figures.append(Figure(title=f"ASR of the bucket {bucket}", caption=caption, svg=svg))
        axes = list(dict.fromkeys(axis for row in rows for axis, share in row.axes.items() if share is not None))
        lines = [
            ChartLine(label=label, points=tuple((float(place), row.axes.get(axis)) for place, axis in enumerate(axes)))
            for label, row in zip(labels, rows, strict=True)
        ]
        svg = strip_chart(axes, lines, x_name="hits over totals")
        caption = f"{where}. Hits over what the queries ask for, all episodes."
        figures.append(Figure(title="Rule axes", caption=caption, svg=svg))
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
