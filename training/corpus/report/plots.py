"""Plots of the report as inline SVG: text out of numbers, no library, no script, colours by the page's own style.

Promise: pure; every mark has a title that says its numbers, so nothing is to be read off an axis alone. What is drawn
is given in integers; coordinates are rounded to a tenth of a pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import msgspec

WIDTH, HEIGHT = 720, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 28, 22, 34
_TICKS_X, _TICKS_Y = 8, 5
_ROW, _BAR = 26, 16
_LABEL, _NUMBERS = 170, 170


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A bin of a histogram from `low` to below `high`. `heights`: one a series; `kinds`: the style class of each."""

    low: int
    high: int
    heights: tuple[int, ...]
    kinds: tuple[str, ...]
    title: str


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A vertical line at a value, with words."""

    at: int
    label: str


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A horizontal bar of parts: (style class, count) each; `numbers` stand at its right, `title` where one points."""

    label: str
    parts: tuple[tuple[str, int], ...]
    numbers: str
    title: str


def histogram(
    columns: Sequence[Column],
    *,
    name: str,
    text_x: Callable[[int], str],
    text_y: Callable[[int], str],
    mark: Mark | None = None,
    height: int = HEIGHT,
) -> str:
    """Columns over a linear axis. Series stand one before the other, each narrower than the one behind it."""
    low, high = columns[0].low, columns[-1].high
    most = max([1, *(one for column in columns for one in column.heights)])
    step_y = _round_step(most, _TICKS_Y)
    ticks_y = -(-most // step_y)
    top = step_y * ticks_y
    bottom = height - _BOTTOM

    def x(value: int) -> float:
        return _LEFT + (value - low) * (WIDTH - _LEFT - _RIGHT) / (high - low)

    def y(value: int) -> float:
        return bottom - value * (bottom - _TOP) / top

    parts = [_open(WIDTH, height, name)]
    for tick in range(ticks_y + 1):
        at = y(tick * step_y)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 6}" y="{at + 4:.1f}">{escape(text_y(tick * step_y))}</text>')
    for column in columns:
        parts += _column(column, x, y, bottom)
    for at, value in _ticks(columns, x):
        parts.append(f'<text class="tick middle" x="{at:.1f}" y="{bottom + 17}">{escape(text_x(value))}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    if mark is not None and low <= mark.at <= high:
        at = x(mark.at)
        anchor, offset = ("end", -6) if at > WIDTH / 2 else ("start", 6)
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 10}" y2="{bottom}"/>')
        parts.append(f'<text class="marked {anchor}" x="{at + offset:.1f}" y="{_TOP - 4}">{escape(mark.label)}</text>')
    return "".join([*parts, "</svg>"])


def bars(rows: Sequence[Bar], *, name: str, whole: int | None = None) -> str:
    """Horizontal bars on one scale: the largest fills the width, or `whole` does."""
    most = max([1, whole or 0, *(sum(count for _, count in row.parts) for row in rows)])
    room = WIDTH - _LABEL - _NUMBERS
    parts = [_open(WIDTH, _ROW * len(rows) + 4, name)]
    for number, row in enumerate(rows):
        top = number * _ROW + 4
        parts.append(f"<g><title>{escape(row.title)}</title>")
        parts.append(f'<text class="label end" x="{_LABEL - 10}" y="{top + 12}">{escape(row.label)}</text>')
        parts.append(f'<rect class="rail" x="{_LABEL}" y="{top}" width="{room}" height="{_BAR}"/>')
        left = float(_LABEL)
        for kind, count in row.parts:
            wide = count * room / most
            if count:
                shape = f'x="{left:.1f}" y="{top}" width="{max(wide, 1.0):.1f}" height="{_BAR}"'
                parts.append(f'<rect class="{kind}" {shape}/>')
            left += wide
        at = WIDTH - _NUMBERS + 10
        parts.append(f'<text class="number" x="{at}" y="{top + 12}">{escape(row.numbers)}</text></g>')
    return "".join([*parts, "</svg>"])


def _column(column: Column, x: Callable[[int], float], y: Callable[[int], float], bottom: int) -> list[str]:
    left, right = x(column.low), x(column.high)
    parts = [f"<g><title>{escape(column.title)}</title>"]
    parts.append(f'<rect class="hit" x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{bottom - _TOP}"/>')
    for number, (height, kind) in enumerate(zip(column.heights, column.kinds, strict=True)):
        if height:
            inset = (right - left) * (0.06 + 0.19 * number)
            top = min(y(height), bottom - 1.0)
            shape = f'x="{left + inset:.1f}" y="{top:.1f}" width="{right - left - 2 * inset:.1f}"'
            parts.append(f'<rect class="{kind}" {shape} height="{bottom - top:.1f}"/>')
    return [*parts, "</g>"]


def _ticks(columns: Sequence[Column], x: Callable[[int], float]) -> list[tuple[float, int]]:
    """Where the axis says a value: below a column that is one value, at the edges of columns that are ranges."""
    if all(column.high - column.low == 1 for column in columns):
        every = [((x(column.low) + x(column.high)) / 2, column.low) for column in columns]
        return every[:: max(1, -(-len(every) // (2 * _TICKS_X)))]
    every = [(x(edge), edge) for edge in [columns[0].low, *(column.high for column in columns)]]
    return every[:: max(1, -(-len(every) // _TICKS_X))]


def _open(width: int, height: int, name: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(name)}">'


def _round_step(most: int, ticks: int) -> int:
    """The least of 1, 2, 5, 10, 20, ... of which at most `ticks` reach `most`."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor * ticks >= most:
                return step * factor
        step *= 10
