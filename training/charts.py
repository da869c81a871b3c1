"""Charts of a corpus' page as inline SVG, drawn by matplotlib: histograms, bars of parts.

Text from numbers, the same bytes for the same numbers; nothing in it is fetched or refers to elsewhere. Words and marks
follow the page's own style, light and dark. What is given as a title is said where one points. Text from outside is
escaped. Matplotlib (extras `plots` and `train`) is loaded when a chart is drawn; without it a sentence stands in the
chart's place, since pages say their numbers in tables too.
"""

from __future__ import annotations

import importlib.util
import io
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import msgspec

NO_MATPLOTLIB = "<p>No chart: matplotlib is not installed (pip install -c constraints.txt -e '.[plots]').</p>"

_STYLED = ("", "line", "kept", "was", "lost", "guess", "alarm", "rail")  # colours of the page, drawn as #000001 and on
_KINDS = {"after": "kept", "before": "was", "lost": "lost", "guess": "guess", "over": "alarm", "rail": "rail"}
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 64, 28, 22, 44
_ROW, _LINE = 26, 14
_LABEL, _NUMBERS = 170, 150  # columns of words beside bars
_LABEL_CHARS = 26
_TICKS = 8


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A bin of a histogram from `low` to below `high`. `heights`: one a series; `kinds`: the style of each."""

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
    """A horizontal bar of parts: (style, count) each; `numbers` stand at its right, `title` where one points."""

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
    height: int = 230,
) -> str:
    """Columns over a linear axis. Series stand one before the other, each narrower than the one behind it."""
    if not _has_matplotlib():
        return NO_MATPLOTLIB
    low, high = columns[0].low, columns[-1].high
    top = max([1, *(one for column in columns for one in column.heights)])
    axes = _open_axes(height, bottom=34)
    axes.set(xlim=(low, high), ylim=(0, top * 1.05))
    axes.locator_params(axis="y", nbins=5, integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: text_y(round(value)))
    axes.grid(axis="y", color=_styled("line"), clip_on=False)
    for column in columns:
        for number, (value, kind) in enumerate(zip(column.heights, column.kinds, strict=True)):
            width = (column.high - column.low) * (0.88 - 0.38 * number)
            middle = (column.low + column.high) / 2
            axes.bar(middle, max(value, top / 200) if value else 0, width, color=_styled(_KINDS[kind]))
        axes.bar(column.low, top, column.high - column.low, align="edge", alpha=0)[0].set_gid(f"title {column.title}")
    if all(column.high - column.low == 1 for column in columns):  # each is one value, and its name stands below it
        ticks = [((column.low + column.high) / 2, column.low) for column in columns]
    else:
        ticks = [(edge, edge) for edge in [low, *(column.high for column in columns)]]
    ticks = ticks[:: max(1, -(-len(ticks) // _TICKS))]
    axes.set_xticks([at for at, _ in ticks], [text_x(value) for _, value in ticks])
    if mark is not None and low <= mark.at <= high:
        axes.axvline(mark.at, color=_styled("alarm"), linestyle="--")
        side = "right" if mark.at > (low + high) / 2 else "left"
        axes.text(mark.at, top * 1.08, f" {mark.label} ", ha=side, color=_styled("alarm"), parse_math=False)
    return _svg(axes, name)


def bars(rows: Sequence[Bar], *, name: str, whole: int | None = None) -> str:
    """Horizontal bars on one scale: the largest fills the width, or `whole` does."""
    if not _has_matplotlib():
        return NO_MATPLOTLIB
    most = max([1, whole or 0, *(sum(count for _, count in row.parts) for row in rows)])
    axes = _open_rows([row.label for row in rows], right=_NUMBERS, bottom=0)
    axes.set(xlim=(0, most), xticks=[])
    for number, row in enumerate(rows):
        axes.barh(number, most, 0.62, color=_styled("rail"))
        left = 0
        for kind, count in row.parts:
            if count:
                axes.barh(number, max(count, most / 400), 0.62, left, color=_styled(_KINDS[kind]))
            left += count
        axes.barh(number, most, 0.62, alpha=0)[0].set_gid(f"title {row.title}")
        axes.text(most * 1.02, number, row.numbers, va="center", parse_math=False)
    return _svg(axes, name)


def _has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _styled(name: str) -> str:
    """A colour that `_svg` writes as the page's own `--NAME`."""
    return f"#{_STYLED.index(name):06x}"


def _open_axes(height: int, *, left: int = _LEFT, right: int = _RIGHT, bottom: int = _BOTTOM) -> Any:
    """Axes in a figure of that height, a user unit a point, with these margins and no frame."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH / 72, height / 72))
    axes = figure.add_axes(
        (left / _WIDTH, bottom / height, (_WIDTH - left - right) / _WIDTH, (height - _TOP - bottom) / height)
    )
    for patch in (figure.patch, axes.patch, *axes.spines.values()):
        patch.set_visible(False)
    axes.tick_params(length=0)  # marks would refer to a shape elsewhere in the page
    axes.set_axisbelow(True)
    return axes


def _open_rows(labels: Sequence[str], *, right: int, bottom: int) -> Any:
    """Axes with a row for each label, the first on top."""
    lines = [textwrap.wrap(one, _LABEL_CHARS) or [""] for one in labels]  # a name cut short could be another's
    row = max([_ROW, *(_LINE * len(one) for one in lines)])
    axes = _open_axes(_TOP + row * len(labels) + bottom, left=_LABEL, right=right, bottom=bottom)
    axes.set_yticks(range(len(labels)), ["\n".join(one) for one in lines], parse_math=False)
    axes.tick_params(axis="y", pad=8)  # a dot at 0 stands beside its name
    axes.set_ylim(len(labels) - 0.5, -0.5)
    return axes


def _svg(axes: Any, name: str) -> str:
    """The figure of these axes as one element; `name` says what it shows."""
    from matplotlib import rc_context

    stream = io.StringIO()
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set_parse_math(False)
    for artist in axes.findobj():
        artist.set_clip_on(False)  # a clip would refer to a shape elsewhere in the page
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "chart"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # letters are the page's own
        axes.figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))

    def in_page_style(found: re.Match[str]) -> str:
        """A tag in the page's letters and colours, without what matplotlib calls it: charts are called alike."""
        tag = re.sub(r"font-family: [^;\"]*; ?", "", re.sub(r' id="[^"]*"', "", found[0]))
        return re.sub(r"#00000([1-9])", lambda colour: f"var(--{_STYLED[int(colour[1])]})", tag)

    drawn = stream.getvalue()
    inside = drawn[drawn.index(">", drawn.index("<svg")) + 1 : drawn.rindex("</svg>")]
    inside = re.sub(r"<metadata>.*?</metadata>|<defs>.*?</defs>|<!--.*?-->", "", inside, flags=re.DOTALL)
    inside = re.sub(r'<g id="title ([^"]*)">', r"<g><title>\1</title>", inside)
    inside = re.sub(r"<[^>]+>", in_page_style, inside).replace("<g/>", "")
    inside = re.sub(r"\s*\n\s*", " ", inside)
    height = axes.figure.get_figheight() * 72
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(name)}">{inside}</svg>'
