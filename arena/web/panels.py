"""Counts as bars, and how episodes differ: what they call, how long they are, and the long tail. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from arena.web.model import CountBar, ShapePanel
from harness.trace import EvaluationBody, ToolCall
from judge.neutral import neutral_name

SHAPES = 8
_Shape = tuple[str, ...]  # names of the tools called, in order


def bars(counts: Mapping[str, int], order: Sequence[str] = ()) -> tuple[CountBar, ...]:
    """Counts as bars: in `order`, else the greatest first."""
    names = [name for name in order if name in counts] or sorted(counts, key=lambda name: (-counts[name], name))
    most = max(counts.values(), default=1) or 1
    return tuple(CountBar(label=name, count=counts[name], percent=100 * counts[name] / most) for name in names)


def bins(values: Iterable[int], edges: Sequence[int]) -> tuple[CountBar, ...]:
    """How many values lie up to each edge, above the one before, and beyond the last."""
    lows = [0, *(edge + 1 for edge in edges)]
    labels = [f"{low:,} to {edge:,}" for low, edge in zip(lows, edges, strict=False)] + [f"over {edges[-1]:,}"]
    counts = dict.fromkeys(labels, 0)
    for value in values:
        place = next((number for number, edge in enumerate(edges) if value <= edge), len(edges))
        counts[labels[place]] += 1
    return bars(counts, labels)


def shape_of(body: EvaluationBody) -> _Shape:
    """The tools that an episode called, in order."""
    return tuple(neutral_name(event.name)[:40] for event in body.events if isinstance(event, ToolCall))


def shape_panel(shapes: Sequence[_Shape]) -> ShapePanel:
    """Which tools episodes call, and how many ways of calling them there are: the most frequent ones, and the tail."""
    calling = Counter(name for shape in shapes for name in set(shape))
    ways = Counter(shapes)
    shown = ways.most_common(SHAPES)
    counts = {_told(shape): count for shape, count in shown}
    rest = len(ways) - len(shown)
    if rest:
        counts[f"{rest} other ways"] = len(shapes) - sum(count for _, count in shown)
    return ShapePanel(
        episodes=len(shapes),
        ways=len(ways),
        once=sum(count == 1 for count in ways.values()),
        tools=bars(dict(calling.most_common(SHAPES))),
        shapes=bars(counts, list(counts)),
    )


def _told(shape: _Shape) -> str:
    """A shape in words: repeated calls are counted."""
    parts: list[tuple[str, int]] = []
    for name in shape:
        if parts and parts[-1][0] == name:
            parts[-1] = name, parts[-1][1] + 1
        else:
            parts.append((name, 1))
    said = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in parts)
    return (said if len(said) <= 90 else said[:89] + "…") or "no call"
