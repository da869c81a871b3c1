"""One line of the benchmark table. A `bench_*.py` file offers `measure() -> Sequence[Row]`."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, and what it is held against in the same run."""

    name: str
    value: float
    unit: str
    baseline: float | None = None  # the other way of doing it, or the target, in the same unit
    command: str = "make bench"

    @property
    def ratio(self) -> float | None:
        """The value over the baseline."""
        return self.value / self.baseline if self.baseline else None
