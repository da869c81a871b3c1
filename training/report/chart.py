"""Charts as inline SVG: lines over steps, and dots with their intervals. Made here, so that a page needs nothing else.

Promise: pure text from numbers; every axis has ticks and a name; series differ by colour and by dash, so that a chart
prints in black; a missing value is a gap, never a zero. Text from outside is escaped. Sizes are in user units, and the
page scales them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

_COLOURS = ("#1f6fb4", "#c8501e", "#2f8f4e", "#8a4fb0", "#b58900", "#5c6670", "#c23b78", "#1b8f8f")
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_WIDTH, _LEFT, _RIGHT, _TOP = 640, 64, 16, 14
_PLOT_HEIGHT, _AXIS_HEIGHT, _LEGEND_ROW = 220, 44, 18
_ROW = 26
_TICKS = 5
_FLAT, _LEAST = 1e-9, 1e-30


class ChartLine(msgspec.Struct, frozen=True, kw_only=True):
    """One curve: (x, y) in order; y None breaks it."""

    label: str
    points: tuple[tuple[float, float | None], ...]


class Dot(msgspec.Struct, frozen=True, kw_only=True):
    """One share in [0, 1] with its interval."""

    label: str
    value: float
    low: float
    high: float


def nice_ticks(low: float, high: float, count: int = _TICKS) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`, about `count` of them."""
    if high - low <= max(_FLAT * max(abs(low), abs(high)), _LEAST):  # a flat curve
        high = low + (abs(low) if abs(low) > _LEAST else 1.0)
    raw = (high - low) / max(1, count - 1)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next((size * one for one in (1, 2, 2.5, 5) if size * one >= raw), size * 10)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def line_chart(
    lines: Sequence[ChartLine], *, x_name: str, y_name: str, y_range: tuple[float, float] | None = None
) -> str:
    """Curves over a shared axis; "" when no line has a point."""
    xs = [x for line in lines for x, y in line.points if y is not None]
    ys = [y for line in lines for _, y in line.points if y is not None]
    if not xs:
        return ""
    x_ticks = nice_ticks(min(xs), max(xs))
    y_ticks = nice_ticks(*(y_range or (min(ys), max(ys))))
    frame = _Frame(x_ticks, y_ticks)
    drawn = [frame.axes(x_name, y_name)]
    for number, line in enumerate(lines):
        style = _stroke(number)
        for run in _runs(line.points):
            if len(run) == 1:
                x, y = frame.place(*run[0])
                drawn.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{_colour(number)}"/>')
            else:
                path = " ".join("{},{}".format(*frame.place(x, y)) for x, y in run)
                drawn.append(f'<polyline points="{path}" fill="none" stroke-width="1.8" {style}/>')
    drawn.append(_legend([line.label for line in lines], frame.height))
    height = frame.height + _LEGEND_ROW * len(lines) + 6
    return _svg(height, drawn, f"{y_name} by {x_name}: {', '.join(line.label for line in lines)}")


def dot_chart(dots: Sequence[Dot], *, x_name: str) -> str:
    """One row for each share, with its interval; "" without any. The axis is 0 to 100 %."""
    if not dots:
        return ""
    left, right = 200.0, 140.0
    width = _WIDTH - left - right
    bottom = _TOP + _ROW * len(dots)
    drawn = [_share_axis(left, width, bottom, x_name)]
    for number, dot in enumerate(dots):
        y = _at(_TOP + _ROW * (number + 0.5))
        low, value, high = (_at(left + min(1.0, max(0.0, one)) * width) for one in (dot.low, dot.value, dot.high))
        colour = _colour(0)
        drawn.append(
            f'<text x="{left - 10}" y="{_at(float(y) + 4)}" text-anchor="end">{escape(_short(dot.label))}</text>'
        )
        drawn.append(
            f'<line x1="{low}" y1="{y}" x2="{high}" y2="{y}" stroke="{colour}" stroke-width="3" opacity=".45"/>'
        )
        drawn.append(f'<circle cx="{value}" cy="{y}" r="4.5" fill="{colour}"/>')
        said = f"{dot.value:.1%} [{dot.low:.1%}, {dot.high:.1%}]"
        drawn.append(f'<text x="{left + width + 10}" y="{_at(float(y) + 4)}">{escape(said)}</text>')
    return _svg(bottom + 42, drawn, f"{x_name}: " + "; ".join(f"{dot.label} {dot.value:.1%}" for dot in dots))


def strip_chart(categories: Sequence[str], lines: Sequence[ChartLine], *, x_name: str) -> str:
    """One row for each category, one dot for each line: its x is the category's place, its y a share in [0, 1]."""
    if not categories or not any(y is not None for line in lines for _, y in line.points):
        return ""
    left = 110.0
    width, bottom = _WIDTH - left - _RIGHT, _TOP + _ROW * len(categories)
    drawn = [_share_axis(left, width, bottom, x_name)]
    for place, category in enumerate(categories):
        y = _at(_TOP + _ROW * (place + 0.5) + 4)
        drawn.append(f'<text x="{left - 10}" y="{y}" text-anchor="end">{escape(category)}</text>')
    for number, line in enumerate(lines):
        for row, share in line.points:
            if share is not None:
                lift = (number - (len(lines) - 1) / 2) * min(5.0, (_ROW - 8) / max(1, len(lines)))
                y = _at(_TOP + _ROW * (row + 0.5) + lift)
                drawn.append(f'<circle cx="{_at(left + share * width)}" cy="{y}" r="3.6" fill="{_colour(number)}"/>')
    drawn.append(_legend([line.label for line in lines], bottom + 46))
    said = f"{x_name}: {', '.join(line.label for line in lines)}"
    return _svg(bottom + 46 + _LEGEND_ROW * len(lines), drawn, said)


def _share_axis(left: float, width: float, bottom: float, x_name: str) -> str:
    """Grid, ticks and name of an axis from 0 to 100 %."""
    drawn = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _at(left + share * width)
        drawn.append(f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}" class="grid"/>')
        drawn.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{share:.0%}</text>')
    drawn.append(f'<text x="{_at(left + width / 2)}" y="{bottom + 34}" text-anchor="middle">{escape(x_name)}</text>')
    return "".join(drawn)


class _Frame:
    """The plot area: from values to places."""

    def __init__(self, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> None:
        self._x, self._y = x_ticks, y_ticks
        self.height = _TOP + _PLOT_HEIGHT + _AXIS_HEIGHT

    def place(self, x: float, y: float) -> tuple[str, str]:
        across = (x - self._x[0]) / (self._x[-1] - self._x[0])
        up = (min(self._y[-1], max(self._y[0], y)) - self._y[0]) / (self._y[-1] - self._y[0])
        return _at(_LEFT + across * (_WIDTH - _LEFT - _RIGHT)), _at(_TOP + (1 - up) * _PLOT_HEIGHT)

    def axes(self, x_name: str, y_name: str) -> str:
        drawn = []
        bottom, right = _TOP + _PLOT_HEIGHT, _WIDTH - _RIGHT
        for tick in self._y:
            _, y = self.place(self._x[0], tick)
            drawn.append(f'<line x1="{_LEFT}" y1="{y}" x2="{right}" y2="{y}" class="grid"/>')
            drawn.append(f'<text x="{_LEFT - 8}" y="{_at(float(y) + 4)}" text-anchor="end">{_number(tick)}</text>')
        for tick in self._x:
            x, _ = self.place(tick, self._y[0])
            drawn.append(f'<line x1="{x}" y1="{bottom}" x2="{x}" y2="{bottom + 5}" class="axis"/>')
            drawn.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{_number(tick)}</text>')
        drawn.append(f'<line x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" class="axis"/>')
        middle = _at((_LEFT + right) / 2)
        drawn.append(f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">{escape(x_name)}</text>')
        half = _at(_TOP + _PLOT_HEIGHT / 2)
        turned = f'transform="rotate(-90 14 {half})"'
        drawn.append(f'<text x="14" y="{half}" text-anchor="middle" {turned}>{escape(y_name)}</text>')
        return "".join(drawn)


def _runs(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The unbroken stretches of a curve."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]


def _legend(labels: Sequence[str], top: float) -> str:
    drawn = []
    for number, label in enumerate(labels):
        y = _at(top + _LEGEND_ROW * number + 4)
        drawn.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_LEFT + 30}" y2="{y}" stroke-width="2.5" {_stroke(number)}/>')
        drawn.append(f'<text x="{_LEFT + 38}" y="{_at(float(y) + 4)}">{escape(label)}</text>')
    return "".join(drawn)


def _stroke(number: int) -> str:
    dash = _DASHES[number // len(_COLOURS) % len(_DASHES)] or _DASHES[number % len(_DASHES)]
    return f'stroke="{_colour(number)}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _short(label: str, most: int = 30) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _number(value: float) -> str:
    return f"{value:g}"


def _at(value: float) -> str:
    """A coordinate, a tenth of a unit exact."""
    return f"{value:.1f}".removesuffix(".0")


def _svg(height: float, drawn: Sequence[str], said: str) -> str:
    inside = "".join(drawn)
    view = f'viewBox="0 0 {_WIDTH} {_at(height)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {view} role="img" aria-label="{escape(said)}">{inside}</svg>'
