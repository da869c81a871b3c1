"""One line of the benchmark table. A `bench_*.py` file offers `measure() -> Sequence[Row]`."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, and what it is held against in the same run. `ratio` is value over baseline as `unit` reads best."""

    name: str
    value: float
    unit: str
    baseline: float | None = None  # the other way of doing it, or the target, in the same unit
    ratio: float | None = None
    command: str = "make bench"


def held(name: str, value: float, unit: str, baseline: float | None = None, command: str = "make bench") -> Row:
    """A figure with its ratio to the baseline."""
    ratio = value / baseline if baseline else None
    return Row(name=name, value=value, unit=unit, baseline=baseline, ratio=ratio, command=command)
