"""Charts of a corpus' page in plain HTML: a histogram of columns, and bars of parts.

Text from numbers, the same bytes for the same numbers; nothing in it is fetched or refers to elsewhere. Colours are the
page's own, light and dark. What is given as a title is said where one points. Text from outside is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from markupsafe import Markup

_KINDS = {"after": "kept", "lost": "lost", "over": "alarm"}  # the page's colour of a part
_TICKS = 8
_LEAST = 0.4  # percent: what there is of a part can be seen


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A bin of a histogram from `low` to below `high`: its height, and its style."""

    low: int
    high: int
    height: int
    kind: str
    title: str


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A horizontal bar of parts: (style, count) each; `numbers` stand at its right, `title` where one points."""

    label: str
    parts: tuple[tuple[str, int], ...]
    numbers: str
    title: str


def histogram(columns: Sequence[Column], *, name: str, text_x: Callable[[int], str], mark: tuple[int, str]) -> Markup:
    """Columns over a linear axis, the highest as high as the chart. `mark`: a value where a line stands, and its words.

    `name` says what the chart shows."""
    low, high = columns[0].low, columns[-1].high
    top = max(1, *(column.height for column in columns))
    drawn = [_box("height", column.height / top, column.kind, column.title) for column in columns]
    at, words = mark
    if low <= at <= high:
        line = Markup('<b style="left:{:.2f}%">{}</b>')
        drawn.append(line.format(100 * (at - low) / (high - low), words))
    ticks = [Markup("<span>{}</span>").format(text_x(column.low)) for column in columns[:: -(-len(columns) // _TICKS)]]
    chart = Markup('<div class="columns" role="img" aria-label="{}">{}</div><div class="ticks">{}</div>')
    return chart.format(f"{name}, at most {top:,}", Markup("").join(drawn), Markup("").join(ticks))


def bars(rows: Sequence[Bar], *, name: str, whole: int) -> Markup:
    """Horizontal bars on one scale, on which `whole` fills the width."""
    line = Markup("<span>{}</span><div>{}</div><span>{}</span>")
    drawn = []
    for row in rows:
        parts = [_box("width", count / max(1, whole), kind, row.title) for kind, count in row.parts]
        drawn.append(line.format(row.label, Markup("").join(parts), row.numbers))
    return Markup('<div class="bars" role="img" aria-label="{}">{}</div>').format(name, Markup("").join(drawn))


def _box(side: str, share: float, kind: str, title: str) -> Markup:
    """A coloured box that takes a share of one side of what it stands in."""
    size = max(100 * share, _LEAST) if share else 0
    return Markup('<i title="{}" style="{}:{:.2f}%;background:var(--{})"></i>').format(title, side, size, _KINDS[kind])
