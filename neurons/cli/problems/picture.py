"""The picture of `arena problems stats`: six panels, one colour per set. Matplotlib is loaded when a picture is drawn.

Without matplotlib the answer is V2086 with the command that installs it; no display is needed or opened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foundation.errors import ArenaError
from problems.model import Problem, RewardItem
from problems.scoring.axes import attribute_pairs_of, sku_pairs_of
from problems.synthesis.constraints import count_constraints
from problems.synthesis.difficulty import LEVELS, Difficulty

_COLOURS = ("#2a6f97", "#e07a2f", "#4f8f4f", "#8d5a97", "#8a8a8a")
_SIZE_INCHES = (13.0, 7.5)
_DOTS_PER_INCH = 130

Draw = Callable[[Any, str, str, Sequence[Sequence[float]]], None]


def draw(
    path: Path, names: Sequence[str], sets: Sequence[Sequence[Problem]], difficulties: Sequence[Sequence[Difficulty]]
) -> None:
    """Write the picture of some sets to a .png or .svg file.

    Raises ArenaError V2086 when matplotlib is not installed, V2027 when the file can't be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ArenaError("V2086", str(error)) from error
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 3).flatten()
    items = [[item for problem in problems for item in problem.rewards] for problems in sets]
    _draw_difficulty(panels[0], names, difficulties)
    kinds: dict[str, Callable[[RewardItem], object]] = {
        "sku": sku_pairs_of,
        "attributes": attribute_pairs_of,
        "service": lambda item: item.service,
        "price": lambda item: item.price,
        "title only": lambda item: count_constraints(item) == 0,
    }
    panels[1].set_title("constraint mix, % of items", loc="left", fontsize=10)
    shares = [
        [100 * sum(bool(asks(item)) for item in held) / max(1, len(held)) for asks in kinds.values()] for held in items
    ]
    _grouped(panels[1], names, tuple(kinds), shares)
    _bars(panels[2], "constraints per item", names, [list(map(count_constraints, held)) for held in items])
    prices = [[rule for item in held for rule in item.price] for held in items]
    bounds = [[bound for rule in held for bound in (rule.low, rule.high) if bound is not None] for held in prices]
    _steps(panels[3], "price bounds: % of bounds at or below", "PHP", names, bounds)
    vouchers = [[problem.voucher for problem in problems if problem.voucher] for problems in sets]
    budgets = [[one.budget for one in held] for held in vouchers]
    _steps(panels[4], "voucher budget: % of vouchers at or below", "PHP", names, budgets)
    lengths = [[len(one.query) for one in problems] for problems in sets]
    _steps(panels[5], "query length: % of problems at or below", "characters", names, lengths)
    handles, _ = panels[5].get_legend_handles_labels()
    labels = [f"{name} ({len(problems):,} problems)" for name, problems in zip(names, sets, strict=True)]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(names)), frameon=False)
    try:
        figure.savefig(path, dpi=_DOTS_PER_INCH)
    except OSError as error:
        raise ArenaError("V2027", f"{path}: {error.strerror or error}") from error


def _draw_difficulty(panel: Any, names: Sequence[str], difficulties: Sequence[Sequence[Difficulty]]) -> None:
    panel.set_title("difficulty, % of problems", loc="left", fontsize=10)
    if not any(difficulties):
        panel.text(0.5, 0.5, "give a catalogue to measure it", ha="center", va="center", color="#777777")
        panel.set_axis_off()
        return
    counts = [[sum(one.level == level for one in held) for level in LEVELS] for held in difficulties]
    shares = [
        [100 * count / max(1, len(held)) for count in row] for row, held in zip(counts, difficulties, strict=True)
    ]
    _grouped(panel, names, LEVELS, shares)
    unmeasured = [name for name, held in zip(names, difficulties, strict=True) if not held]
    if unmeasured:
        text = f"not in this catalogue:\n{chr(10).join(unmeasured)}"
        panel.text(0.98, 0.96, text, ha="right", va="top", fontsize=8, color="#777777", transform=panel.transAxes)


def _bars(panel: Any, title: str, names: Sequence[str], values: Sequence[Sequence[int]]) -> None:
    """Shares of small whole numbers, side by side; what is above 10 stands with the 10."""
    panel.set_title(f"{title}, % of items", loc="left", fontsize=10)
    highest = max((max(held, default=0) for held in values), default=0)
    most = min(10, highest)
    shares = [
        [100 * sum(min(value, most) == number for value in held) / max(1, len(held)) for number in range(most + 1)]
        for held in values
    ]
    labels = [str(number) for number in range(most)] + [f"{most}+" if highest > most else str(most)]
    _grouped(panel, names, labels, shares)


def _grouped(panel: Any, names: Sequence[str], labels: Sequence[str], shares: Sequence[Sequence[float]]) -> None:
    width = 0.8 / len(names)
    for place, (name, row) in enumerate(zip(names, shares, strict=True)):
        left = [number - 0.4 + (place + 0.5) * width for number in range(len(labels))]
        panel.bar(left, row, width * 0.92, label=name, color=_COLOURS[place % len(_COLOURS)])
    panel.set_xticks(range(len(labels)), labels, fontsize=8)
    _plain(panel)


def _steps(panel: Any, title: str, unit: str, names: Sequence[str], values: Sequence[Sequence[float]]) -> None:
    """Cumulative shares over a logarithmic axis: sets of different sizes compare point by point."""
    from matplotlib.ticker import StrMethodFormatter

    panel.set_title(title, loc="left", fontsize=10)
    panel.set_xlabel(unit, fontsize=9)
    panel.set_xscale("log")
    panel.set_ylim(0, 102)
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    panel.xaxis.set_minor_formatter("")
    for place, (name, held) in enumerate(zip(names, values, strict=True)):
        ordered = sorted(value for value in held if value > 0 and math.isfinite(value))
        heights = [100 * (rank + 1) / len(ordered) for rank in range(len(ordered))]
        colour = _COLOURS[place % len(_COLOURS)]
        panel.step(ordered, heights, where="post", label=name, color=colour, linewidth=1.6)
    _plain(panel)


def _plain(panel: Any) -> None:
    panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
