"""A comparison of two corpora as one HTML page: all of it in one file, drawn here, nothing fetched, no script.

Pure and deterministic; the same comparison gives the same bytes. It holds names of tools and counts, never a
trace's text. Every picture's numbers stand in a table too.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from training.charts import ChartLine, Column, Dot, Gap, dot_chart, gap_chart, heatmap, histogram, line_chart
from training.corpus.distance.comparison import BootstrapInterval, Compared, Comparison
from training.corpus.distance.measures import END, START
from training.corpus.report.templates import read_template

_BINS_MAX = 26


def render_comparison(found: Comparison) -> str:
    """The page of a comparison."""
    one, other = found.sides
    gaps = [
        Gap(
            label=distance.name,
            value=distance.distance.value,
            low=distance.distance.low,
            high=distance.distance.high,
            chance=distance.shuffled,
        )
        for distance in found.distances
    ]
    curves = [
        ChartLine(label=side.name, points=tuple((float(x), y) for x, y in curve))
        for side, curve in zip(found.sides, found.behaviours.curves, strict=True)
    ]
    return read_template("comparison.html.j2").render(
        found=found,
        one=one,
        other=other,
        verdict=verdict(found),
        interval=interval_text,
        distances=Markup(gap_chart(gaps, x_name="distance, 0 (the same) to 1 (nothing in common)")),
        heatmaps=[
            (
                side.name,
                Markup(
                    heatmap(
                        (START, *found.tools),
                        (*found.tools, END),
                        side.transitions,
                        name=f"{side.name}: shares of what follows each call",
                    )
                ),
            )
            for side in found.sides
        ],
        lengths=_lengths(found),
        curves=Markup(line_chart(curves, x_name="episodes drawn", y_name="distinct sequences of tools")),
        outcomes=_shares(found, found.outcomes),
        coverage=_shares(found, found.coverage),
    )


def verdict(found: Comparison) -> str:
    """What the distances come to, in one sentence."""
    apart = [one for one in found.distances if one.distance.value > one.shuffled]
    if not apart:
        return "The two corpora differ by no more than one corpus differs from itself: chance explains every distance."
    names = ", ".join(one.name for one in apart)
    far = max(apart, key=lambda one: one.distance.value)
    return (
        f"They differ by more than chance gives in {len(apart)} of {len(found.distances)} distances ({names}); the "
        f"largest is {far.distance.value:.2f} ({far.name}), where chance reaches {far.shuffled:.2f}."
    )


def interval_text(one: BootstrapInterval | None, is_share: bool = False) -> str:
    """An estimate with its interval; "not defined" for None."""
    if one is None:
        return "not defined"
    if is_share:
        return f"{one.value:.1%} [{one.low:.1%}, {one.high:.1%}]"
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _shares(found: Comparison, measures: Sequence[Compared]) -> Markup:
    dots = [
        Dot(label=f"{measure.name}, {side.name}", value=value.value, low=value.low, high=value.high)
        for measure in measures
        for side, value in zip(found.sides, measure.values, strict=True)
        if value is not None
    ]
    return Markup(dot_chart(dots, x_name="share, with its 95 % interval"))


def _lengths(found: Comparison) -> Markup:
    longest = max(calls for side in found.sides for calls, _ in side.lengths)
    width = longest // _BINS_MAX + 1
    columns = []
    for low in range(0, longest + 1, width):
        counts = [sum(n for calls, n in side.lengths if low <= calls < low + width) for side in found.sides]
        heights = [
            round(10_000 * count / max(1, side.episodes)) for count, side in zip(counts, found.sides, strict=True)
        ]
        span = f"{low}" if width == 1 else f"{low} to {low + width - 1}"
        told = "; ".join(f"{side.name} {count:,} episodes" for side, count in zip(found.sides, counts, strict=True))
        kinds, title = ("before", "after"), f"{span} calls: {told}"
        columns.append(Column(low=low, high=low + width, heights=(heights[0], heights[1]), kinds=kinds, title=title))
    name = f"calls in an episode: {found.sides[0].name} and {found.sides[1].name}"
    return Markup(histogram(columns, name=name, text_x=str, text_y=lambda value: f"{value / 100:g} %", height=200))
